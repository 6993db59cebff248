// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"log/slog"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/internal/wire"
)

type metrics struct {
	connections *prometheus.GaugeVec
	refused     *prometheus.CounterVec
	unexpected  *prometheus.CounterVec
	waits       *prometheus.CounterVec
	paced       *prometheus.CounterVec
	controls    *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{
		connections: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "substorm_gateway_connections",
			Help: "TCP connections that are open, by instrument; those that are turned away are not counted.",
		}, []string{"instrument"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_gateway_refused_total",
			Help: "Objects that were refused or cut off, by instrument (_unknown for strangers) and cause.",
		}, []string{"instrument", "cause"}),
		unexpected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_gateway_unexpected_objects_total",
			Help: "Objects that do not meet tcp.expect of their instrument, by instrument; they are kept, as Unverified.",
		}, []string{"instrument"}),
		waits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_gateway_pipeline_waits_total",
			Help: "Times that a connection was not read from because as many of its objects as may be were on their way, by instrument.",
		}, []string{"instrument"}),
		paced: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_gateway_paced_total",
			Help: "Times that a connection was not read from, for at most 50 ms, because of limits.bytesPerSecond, by instrument.",
		}, []string{"instrument"}),
		controls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "substorm_gateway_control_frames_total",
			Help: "Control frames of senders, by instrument and type: heartbeat, or passed over as unknown or malformed.",
		}, []string{"instrument", "type"}),
	}
	reg.MustRegister(m.connections, m.refused, m.unexpected, m.waits, m.paced, m.controls)
	return m
}

// refusals counts every refusal and logs it, unless one instrument is refused
// for one cause so often that the log would hold little else.
type refusals struct {
	log     *slog.Logger
	metrics *metrics

	mu     sync.Mutex
	limits map[refusalKey]*refusalLimit
}

type refusalKey struct {
	instrument string
	cause      wire.Cause
}

type refusalLimit struct {
	rate.Limiter
	// quiet is how many refusals were not logged since the last one that was.
	quiet int
}

// Of each instrument and cause, a burst of refusals is logged whole, then one a
// second that says how many were left out.
const refusalBurst = 10

func (r *refusals) say(instrument string, cause wire.Cause, source netip.AddrPort, size int64, err error) {
	r.tell(instrument, cause, err, "source", source, "bytes", size)
}

// sayNearly is for somebody who is nobody that may send.
func (r *refusals) sayNearly(instrument string, refusal intake.Refusal, source netip.AddrPort, port uint16, err error) {
	args := []any{"source", source, "port", port}
	if refusal.Instrument != "" && refusal.Instrument != instrument {
		args = append(args, "nearly", refusal.Instrument)
	}
	if refusal.Shown != "" {
		args = append(args, "shown", refusal.Shown)
	}
	r.tell(instrument, refusal.Cause, err, args...)
}

func (r *refusals) tell(instrument string, cause wire.Cause, err error, more ...any) {
	r.metrics.refused.WithLabelValues(instrument, string(cause)).Inc()
	quiet, ok := r.allow(refusalKey{instrument, cause})
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
	r.log.Warn("no receipt", args...)
}

func (r *refusals) allow(key refusalKey) (quiet int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.limits[key]
	if l == nil {
		if r.limits == nil {
			r.limits = map[refusalKey]*refusalLimit{}
		}
		l = &refusalLimit{Limiter: *rate.NewLimiter(1, refusalBurst)}
		r.limits[key] = l
	}
	if !l.Allow() {
		l.quiet++
		return 0, false
	}
	quiet, l.quiet = l.quiet, 0
	return quiet, true
}
