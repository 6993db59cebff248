// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// accessLines is how many lines of the access log wait to be written: what comes while
	// so many do is dropped, and counted.
	accessLines = 4096
	// longestPath is how much of a path a line has.
	longestPath = 1024
)

// refusedLines bounds the lines about refused requests: any client can cause these.
var refusedLines = Rate{PerSecond: 10, Burst: 100}

// loggedQueries are the parts of a query that a line has: those that say what was asked
// for, and nothing that may be a secret.
var loggedQueries = []string{"instrument", "dataset", "id", "start", "stop", "time.min", "time.max", "from", "to", "version", "type", "consumer"}

// The values of AccessLine.Event.
const (
	// EventAnswered: a request was answered.
	EventAnswered = "answered"
	// EventOpened and EventClosed: a live connection.
	EventOpened = "opened"
	EventClosed = "closed"
)

// AccessLine is a line of the access log: a request for data that is not public.
type AccessLine struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	// Reader is as in spec.access.readers; empty: an anonymous reader.
	Reader string `json:"reader,omitempty"`
	// Address is the client's as limits count it: of IPv6 its network of 64 bits. Remote
	// is the connection's own.
	Address netip.Addr `json:"address"`
	Remote  string     `json:"remote"`
	Method  string     `json:"method"`
	Path    string     `json:"path"`
	// Instruments whose data was asked for, and Access why that is not for everybody:
	// Restricted or Embargoed.
	Instruments []string `json:"instruments"`
	Access      string   `json:"access"`
	Status      int      `json:"status"`
	Bytes       int64    `json:"bytes"`
	// NotLogged is how many refused requests came since the last line about one, and have
	// no line.
	NotLogged int64 `json:"notLogged,omitempty"`
}

// The values of AccessLine.Access.
const (
	AccessRestricted = wire.AccessRestricted
	AccessEmbargoed  = "Embargoed"
)

// AccessLog writes requests for data that is Restricted or under embargo, a line of JSON for each
// answer. No request waits for it.
type AccessLog struct {
	out     io.Writer
	lines   chan AccessLine
	refused *rate.Limiter
	untold  atomic.Int64
	dropped prometheus.Counter
}

// NewAccessLog returns a log that Run writes to out.
func NewAccessLog(out io.Writer, metrics prometheus.Registerer) *AccessLog {
	return &AccessLog{
		out: out, lines: make(chan AccessLine, accessLines), refused: rate.NewLimiter(rate.Limit(refusedLines.PerSecond), refusedLines.Burst),
		dropped: metric.Counter(metrics, "substorm_feed_access_log_dropped_total",
			"Lines of the access log that were lost because it could not be written in time."),
	}
}

// Write notes a line about a request. If the log is nil, it does nothing.
func (l *AccessLog) Write(r *http.Request, line AccessLine) {
	if l == nil {
		return
	}
	if line.Status >= http.StatusBadRequest {
		if !l.refused.Allow() {
			l.untold.Add(1)
			return
		}
		line.NotLogged = l.untold.Swap(0)
	}
	line.Time, line.Remote, line.Method, line.Path = time.Now().UTC(), r.RemoteAddr, r.Method, pathOf(r.URL)
	select {
	case l.lines <- line:
	default:
		l.dropped.Inc()
	}
}

// Run writes what comes until ctx ends, and then what waits.
func (l *AccessLog) Run(ctx context.Context) error {
	if l == nil {
		return nil
	}
	out := json.NewEncoder(l.out)
	out.SetEscapeHTML(false)
	write := func(line AccessLine) {
		if out.Encode(line) != nil {
			l.dropped.Inc()
		}
	}
	for {
		select {
		case line := <-l.lines:
			write(line)
			continue
		case <-ctx.Done():
		}
		for {
			select {
			case line := <-l.lines:
				write(line)
			default:
				return nil
			}
		}
	}
}

// pathOf is what was asked for, without secrets.
func pathOf(u *url.URL) string {
	is := u.EscapedPath()
	asked, logged := u.Query(), url.Values{}
	for _, name := range loggedQueries {
		if asked.Has(name) {
			logged[name] = asked[name]
		}
	}
	if len(logged) > 0 {
		is += "?" + logged.Encode()
	}
	return strings.ToValidUTF8(is[:min(len(is), longestPath)], "")
}

// guarded says why data of an instrument that a request was about is not for everybody;
// empty: it is.
func (v *Request) guarded(instrument string) string {
	in, known := v.Snapshot.Instruments[instrument]
	if !known {
		return ""
	}
	is := in.Access.InForce()
	if is.Archive == wire.AccessRestricted {
		return AccessRestricted
	}
	embargo := is.Embargo()
	switch {
	case embargo <= 0, !v.observed.IsZero() && v.Now.Sub(v.observed) >= embargo:
		return ""
	case v.Reader.Named(instrument, in.Access), !v.observed.IsZero():
		return AccessEmbargoed
	default: // they were given what is older
		return ""
	}
}

// logAccess notes what was sent of an instrument, if it is not for everybody.
func (v *Request) logAccess(instrument string, bytes int64) {
	log := v.check.cfg.Admission.cfg.AccessLog
	if log == nil || instrument == "" {
		return
	}
	why := v.guarded(instrument)
	if why == "" {
		return
	}
	log.Write(v.Request, AccessLine{
		Event: EventAnswered, Reader: v.Reader.String(), Address: v.check.cfg.Admission.AddressOf(v.Request),
		Instruments: []string{instrument}, Access: why, Status: v.sent.status, Bytes: bytes,
	})
}

// GuardedLive are the instruments of some whose live data is not for everybody, at most
// so many, and why.
func GuardedLive(entries map[string]wire.InstrumentEntry, some map[string]time.Duration, reader access.Reader, most int) (instruments []string, why string) {
	for name := range some {
		is := entries[name].Access.InForce()
		switch {
		case is.Live == wire.AccessRestricted:
			why = AccessRestricted
		case is.Embargo() > 0 && reader.Named(name, entries[name].Access):
			why = cmp.Or(why, AccessEmbargoed)
		default:
			continue
		}
		if len(instruments) < most {
			instruments = append(instruments, name)
		}
	}
	return instruments, why
}
