// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan/finding"
)

// refusalEvery is the least time between two events about refusals of one cause for an instrument.
const refusalEvery = 10 * time.Minute

// longID: an event has space for 1024 bytes.
const longID = 400

// Refusals are what gateways reported about senders that nearly matched an instrument, and about retractions that were requested of it and
// refused; and which of these had events.
type Refusals struct {
	// seen counts by pod and cause.
	seen map[string]podRefusals
	// due by cause.
	due map[wire.Cause]*refusalsDue
}

type podRefusals struct {
	incarnation string
	counts      map[wire.Cause]uint64
}

type refusalsDue struct {
	told  time.Time // when the last event was due; zero for never
	count uint64    // not in an event yet
	since time.Time // when the first of these was reported
	// last is the last of these refusals: a sender or, if it is set, a change.
	last   wire.Refused
	change *wire.RefusedChange
}

// RefusalEvent is for the people who declared an instrument.
type RefusalEvent struct {
	Cause   wire.Cause `json:"cause"`
	Message string     `json:"message"`
}

// Take notes what a pod reported. Refusals that were reported before the operator looked (replayed) get an event if they are younger than
// refusalEvery.
func (r *Refusals) Take(pod string, report wire.RefusalStatus, replayed bool, now time.Time) {
	if r.seen == nil {
		r.seen, r.due = map[string]podRefusals{}, map[wire.Cause]*refusalsDue{}
	}
	was := r.seen[pod]
	if was.incarnation != report.Incarnation {
		was = podRefusals{incarnation: report.Incarnation}
	}
	is := podRefusals{incarnation: report.Incarnation, counts: map[wire.Cause]uint64{}}
	more := func(cause wire.Cause, count uint64, at time.Time) *refusalsDue {
		is.counts[cause] = count
		more := count - min(was.counts[cause], count)
		// How long ago it was is right even where the pod's clock is wrong.
		if more == 0 || replayed && report.ReportedAt.Sub(at) > refusalEvery {
			return nil
		}
		return r.add(cause, more, now)
	}
	for cause, refused := range report.Refused {
		if d := more(cause, refused.Count, refused.At); d != nil {
			d.last = refused
		}
	}
	for reason, refused := range report.Changes {
		if d := more(wire.Cause(reason), refused.Count, refused.At); d != nil {
			d.change = &refused
		}
	}
	r.seen[pod] = is
}

func (r *Refusals) add(cause wire.Cause, count uint64, now time.Time) *refusalsDue {
	d := r.due[cause]
	if d == nil {
		d = &refusalsDue{}
		r.due[cause] = d
	}
	if d.count == 0 {
		d.since = now
	}
	d.count += count
	return d
}

// Due returns the events that are due now, and after how long to ask again; 0 if nothing waits.
func (r *Refusals) Due(now time.Time) (events []RefusalEvent, wait time.Duration) {
	for _, cause := range slices.Sorted(maps.Keys(r.due)) {
		d := r.due[cause]
		if d.count == 0 {
			continue
		}
		if left := refusalEvery - now.Sub(d.told); !d.told.IsZero() && left > 0 {
			wait = finding.Soonest(wait, left)
			continue
		}
		events = append(events, RefusalEvent{Cause: cause, Message: d.text(cause)})
		d.told, d.count = now, 0
	}
	return events, wait
}

// text says who was refused, why, and what to do.
func (d *refusalsDue) text(cause wire.Cause) string {
	if d.change != nil {
		return d.changeText()
	}
	times := "a sender was refused"
	if d.count > 1 {
		times = fmt.Sprintf("senders were refused %d times since %s, the last one", d.count, d.since.UTC().Format(time.RFC3339))
	}
	shown := ""
	if d.last.Shown != "" {
		shown = " It showed " + d.last.Shown + "."
	}
	return fmt.Sprintf("%s at %s on %s port %d: %s.%s %s",
		times, d.last.Source, d.last.Protocol, d.last.Port, refusalWhy(cause), shown, refusalStep(cause))
}

// changeText says what was not retracted, who asked, and why.
func (d *refusalsDue) changeText() string {
	before := ""
	if d.count > 1 {
		before = fmt.Sprintf("%d requests were refused since %s, the last one: ", d.count, d.since.UTC().Format(time.RFC3339))
	}
	id := d.change.ID
	if len(id) > longID {
		id = strings.ToValidUTF8(id[:longID], "") + "…"
	}
	return fmt.Sprintf("%s%s asked that %s be %s, and it is not: %s", before, d.change.By, id, strings.ToLower(d.change.Asked), d.change.Why)
}

func refusalWhy(cause wire.Cause) string {
	switch cause {
	case wire.CauseUnknownSource:
		return "no Instrument has its address among the sources of a listener on that port, and this one's are the nearest"
	case wire.CauseUnknownInstrument:
		return "no Instrument has the name that it gave there"
	case wire.CauseBadCertificate:
		return "its certificate is missing, of another authority, or for another name than spec.listeners[].clientCertificate.names"
	case wire.CauseBadToken:
		return "its token is missing, or another one than spec.listeners[].tokenSecretKeyRef names"
	case wire.CauseTLSHandshake:
		return "no TLS connection came about, and the listener is one over TLS"
	case wire.CauseRetired:
		return "the Instrument is retired"
	default:
		return string(cause)
	}
}

func refusalStep(cause wire.Cause) string {
	switch cause {
	case wire.CauseUnknownSource:
		return "If it is this instrument, add the address to spec.listeners[].sources."
	case wire.CauseUnknownInstrument:
		return "If it is this instrument, correct the name in the path that it sends to."
	case wire.CauseBadCertificate:
		return "If it is this instrument, add the name, or have the pool's client authority (spec.tls.caSecretRef of the IngestGateway) sign its certificate."
	case wire.CauseBadToken:
		return "If it is this instrument, compare its token with the Secret's."
	case wire.CauseTLSHandshake:
		return "If it is this instrument, have it send over TLS 1.2 or newer, and trust the authority of the pool's certificate."
	case wire.CauseRetired:
		return "If it should send again, set spec.state to Active."
	default:
		return "See the log of the gateway."
	}
}
