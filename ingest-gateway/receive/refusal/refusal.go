// SPDX-License-Identifier: Apache-2.0

// Package refusal counts and logs what the listeners refuse or cut off, in the same
// words whichever listener it is.
package refusal

import (
	"log/slog"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/wire"
)

// Log counts every refusal and logs it, unless one instrument is refused for one
// cause so often that the log would hold little else. Its methods may be called
// from many goroutines.
type Log struct {
	log     *slog.Logger
	refused *prometheus.CounterVec

	mu     sync.Mutex
	limits map[key]*limit
}

type key struct {
	instrument string
	cause      wire.Cause
}

type limit struct {
	rate.Limiter
	// quiet is how many refusals were not logged since the last one that was.
	quiet int
}

// New returns a Log.
func New(log *slog.Logger, reg prometheus.Registerer) *Log {
	return &Log{
		log: log, limits: map[key]*limit{},
		refused: metric.Counters(reg, "substorm_gateway_refused_total",
			"Objects that were refused or cut off, by instrument (_unknown for unknown senders) and cause.", "instrument", "cause"),
	}
}

// burst is how many refusals of each instrument and cause are logged one by one; after
// that one a second is logged, which says how many were left out.
const burst = 10

// Say counts and logs a refusal of an object after size bytes had come. Err may be nil.
func (l *Log) Say(instrument string, cause wire.Cause, source netip.AddrPort, size int64, err error) {
	l.tell(instrument, cause, err, "source", source, "bytes", size)
}

// SayNearly counts and logs a refusal of a sender that may not send. Err may be nil.
func (l *Log) SayNearly(instrument string, nearly intake.Refusal, source netip.AddrPort, port uint16, err error) {
	args := []any{"source", source, "port", port}
	if nearly.Instrument != "" && nearly.Instrument != instrument {
		args = append(args, "nearly", nearly.Instrument)
	}
	if nearly.Shown != "" {
		args = append(args, "shown", nearly.Shown)
	}
	l.tell(instrument, nearly.Cause, err, args...)
}

func (l *Log) tell(instrument string, cause wire.Cause, err error, more ...any) {
	l.refused.WithLabelValues(instrument, string(cause)).Inc()
	quiet, ok := l.allow(key{instrument, cause})
	if !ok {
		return
	}
	args := append([]any{"instrument", instrument, "cause", cause}, more...)
	if err != nil {
		args = append(args, "error", err)
	}
	if quiet > 0 {
		args = append(args, "notLogged", quiet)
	}
	l.log.Warn("no receipt", args...)
}

func (l *Log) allow(k key) (quiet int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.limits[k]
	if of == nil {
		of = &limit{Limiter: *rate.NewLimiter(1, burst)}
		l.limits[k] = of
	}
	if !of.Allow() {
		of.quiet++
		return 0, false
	}
	quiet, of.quiet = of.quiet, 0
	return quiet, true
}
