// SPDX-License-Identifier: Apache-2.0

package session

import (
	"time"

	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/internal/wire"
)

// fallback is a source of mode All that is further behind than flow.maxLag: the messages that it
// did not give are read, and the newest of each instrument and channel is given, behind a gap
// record of the others.
type fallback struct {
	conflater *conflater
	from, to  wire.ResumeToken
	count     uint64
	// reached is set once the source has caught up: then what was kept is given.
	reached bool
}

func newFallback() *fallback {
	c, _ := newConflater(0, conflateBounds) // its bounds are good
	return &fallback{conflater: c}
}

// tooFarBehind reports whether what a source brought is older than may be.
func (s *Session) tooFarBehind(b hub.Batch, now time.Time) bool {
	most := time.Duration(s.cfg.Flow.MaxLagMillis) * time.Millisecond
	return most > 0 && len(b.Messages) > 0 && now.Sub(b.Messages[0].At) > most
}

// takeInto reads through what a source brought.
func (s *Session) takeInto(src *source, b hub.Batch, now time.Time) {
	f := src.fallback
	f.conflater.offer(src, b.Epoch, b.Messages, now)
	for _, m := range b.Messages {
		f.to = wire.ResumeToken{Epoch: b.Epoch, Sequence: m.Sequence, Index: m.Last}
		if f.count++; f.from.Epoch == "" {
			f.from = wire.ResumeToken{Epoch: b.Epoch, Sequence: m.Sequence}
		}
		src.at = m.At
	}
	// The token stays where it was until what is kept is given.
}

// fallBack continues with a source that fell back. Came reports whether there was something.
func (s *Session) fallBack(src *source, entries []Entry, most hub.Most, now time.Time) (_ []Entry, came bool) {
	f := src.fallback
	for !f.reached {
		b, ok := s.poll(src, hub.Most{Messages: batchEntries, Bytes: batchBytes}, now)
		switch {
		case !ok && src.again.IsZero() && src.wait.Normal != nil && !src.cursor.Behind():
			f.reached = true
			entries = append(entries, s.record(s.gap(src.stream, wire.Gap{
				From: f.from.String(), To: f.to.String(), Count: f.count, Exact: true, Reason: wire.GapMaxLag,
			}, now)))
		case !ok:
			return entries, came
		case b.Missing != nil:
			entries = append(entries, s.record(s.missing(src, *b.Missing, now)))
			return entries, true
		default:
			came = true
			s.takeInto(src, b, now)
		}
	}
	begin := len(entries)
	entries, _ = f.conflater.take(entries, most.Bytes, now, s.wanted)
	f.conflater.reportDropped(s.cfg.Meter)
	for i := range entries[begin:] {
		entries[begin+i].Token = s.token
	}
	if items, _ := f.conflater.latest.Waiting(); items == 0 { // the place is reached with the last of them
		epoch, next := src.cursor.Place()
		*s.placeOf(src) = placeBefore(epoch, next, 0)
		src.fallback = nil
		if len(entries) > 0 {
			entries[len(entries)-1].Token = s.token
		}
	}
	return entries, true
}
