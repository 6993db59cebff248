// SPDX-License-Identifier: Apache-2.0

package session

import (
	"time"

	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/internal/wire"
)

// Bounds of the queue of priority Urgent.
const (
	urgentMessages = 256
	urgentBytes    = 1 << 20
)

// announcement of priority Urgent: the writers of priority Normal wait. They do not while
// the one that announced writes, however long that takes.
type announcement struct {
	announced, writing bool
}

// announce records that something waits to be written.
func (a *announcement) announce(s *Session) {
	if !a.announced && !a.writing {
		a.announced = true
		s.cfg.Priorities.Waits()
	}
}

// cancel undoes that: what waited is about to be written, or nothing does.
func (a *announcement) cancel(s *Session, writing bool) {
	a.close(s)
	a.writing = writing
}

func (a *announcement) close(s *Session) {
	if a.announced {
		a.announced = false
		s.cfg.Priorities.Written()
	}
}

// urgentQueue is the queue of mode All of priority Urgent: short, so that nothing in
// it is old.
type urgentQueue struct {
	announcement
	entries []Entry
	bytes   int
	// lost is the run of messages that did not fit, behind what waits.
	lost   wire.Gap
	stream string
	// gaps are gap records that did not fit.
	gaps gaps
}

func (q *urgentQueue) offer(s *Session, src *source, b hub.Batch, now time.Time) {
	for _, m := range b.Messages {
		place := wire.ResumeToken{Epoch: b.Epoch, Sequence: m.Sequence, Index: m.Last}
		*s.placeOf(src) = placeAfter(b.Epoch, m)
		if len(q.entries) >= urgentMessages || q.bytes+len(m.Data) > urgentBytes && len(q.entries) > 0 {
			if q.lost.Count > 0 && q.stream != src.stream {
				q.flushLost(s, now)
			}
			if q.lost.Count == 0 {
				q.stream, q.lost = src.stream, wire.Gap{From: place.String(), Exact: true, Reason: wire.GapOverflow}
			}
			q.lost.Count++
			q.lost.To = place.String()
			continue
		}
		q.flushLost(s, now)
		q.push(s, Entry{Message: m, Token: s.token})
	}
}

// flushLost writes the gap record of messages that did not fit, if there are any.
func (q *urgentQueue) flushLost(s *Session, now time.Time) {
	if q.lost.Count > 0 {
		q.gap(s, s.gap(q.stream, q.lost, now))
		q.lost = wire.Gap{}
	}
}

func (q *urgentQueue) push(s *Session, e Entry) {
	q.announce(s)
	q.entries = append(q.entries, e)
	q.bytes += len(e.Payload())
}

// gap takes a gap record: where the queue is full it waits beside it, with others.
func (q *urgentQueue) gap(s *Session, g wire.Gap) {
	if len(q.entries) < urgentMessages && len(q.gaps) == 0 {
		q.push(s, s.record(g))
		return
	}
	q.gaps = q.gaps.add(g)
}

func (q *urgentQueue) take(s *Session, into []Entry, most int, reached wire.FeedToken, now time.Time) ([]Entry, wire.FeedToken, time.Time) {
	if len(q.entries) == 0 {
		q.flushLost(s, now)
	}
	n, bytes := 0, 0
	for ; n < len(q.entries); n++ {
		e := q.entries[n]
		size := len(e.Payload())
		closed := e.Message != nil && !s.wanted(e.Message)
		if !closed {
			if bytes += size; bytes > most && len(into) > 0 {
				break
			}
			into = append(into, e)
		}
		q.bytes -= size
		reached = e.Token
	}
	q.entries = append(q.entries[:0:0], q.entries[n:]...)
	if len(q.entries) == 0 {
		for _, g := range q.gaps {
			into = append(into, s.record(g))
		}
		q.gaps = nil
	}
	q.cancel(s, len(into) > 0)
	if len(into) > 0 {
		into[len(into)-1].Token = reached
	}
	return into, reached, time.Time{}
}

func (q *urgentQueue) lag() hub.Lag {
	l := hub.Lag{Messages: uint64(len(q.entries)), Bytes: int64(q.bytes)}
	for _, e := range q.entries {
		if e.Message != nil {
			l.Since = e.Message.At
			break
		}
	}
	return l
}
