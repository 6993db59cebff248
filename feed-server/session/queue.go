// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/internal/wire"
)

// queue is what waits for a client whose connection reads on while it writes: in
// modes Latest and Sample, and in lane Urgent. It is used under the session's lock.
type queue interface {
	// offer takes what a source brought; place is behind it.
	offer(s *Session, src *source, b hub.Batch, place wire.FeedToken, now time.Time)
	// gap takes the entry of a gap record.
	gap(e Entry)
	// take returns what is written next, of at most so many bytes; the place behind
	// that, where all that lies before reached was taken from the sources; and when
	// more is due by the clock alone.
	take(s *Session, into []Entry, most int, reached wire.FeedToken, now time.Time) (entries []Entry, place wire.FeedToken, next time.Time)
	lag() hub.Lag
	// close takes back what others were told.
	close(s *Session)
}

// runQueue reads and writes at a time.
func (s *Session) runQueue(ctx context.Context) error {
	some := make(chan struct{}, 1)
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return s.fill(ctx, some) })
	both.Go(func() error { return s.drain(ctx, some) })
	err := both.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.close(s)
	return err
}

// fill reads until ctx ends, however slowly the client takes it.
func (s *Session) fill(ctx context.Context, some chan<- struct{}) error {
	for {
		now := time.Now()
		looked := false
		for _, src := range s.sources {
			b, ok := s.poll(src, hub.Most{Messages: batchEntries, Bytes: batchBytes}, now)
			if !ok {
				continue
			}
			looked = true
			s.put(src, b, now)
		}
		if looked {
			select {
			case some <- struct{}{}:
			default:
			}
			continue
		}
		if err := s.idle(ctx, time.Time{}); err != nil {
			return err
		}
	}
}

// put has what a source brought wait.
func (s *Session) put(src *source, b hub.Batch, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.Missing != nil {
		s.passed(src, b)
		s.queue.gap(s.missing(src, *b.Missing, now))
		return
	}
	s.queue.offer(s, src, b, s.token, now)
	s.passed(src, b)
}

// drain writes until ctx ends or a write fails.
func (s *Session) drain(ctx context.Context, some <-chan struct{}) error {
	var entries []Entry
	for {
		now := time.Now()
		if wait := s.pace.wait(now); wait > 0 {
			if err := sleep(ctx, wait); err != nil {
				return err
			}
			continue
		}
		s.mu.Lock()
		clear(entries)
		var place wire.FeedToken
		var next time.Time
		entries, place, next = s.queue.take(s, entries[:0], s.pace.most(s.most), s.token, now)
		s.mu.Unlock()
		if len(entries) > 0 {
			if !s.urgent {
				s.cfg.Lanes.Yield(ctx)
			}
			if err := s.write(ctx, entries, place); err != nil {
				return err
			}
			continue
		}
		err := s.beatOr(ctx, now, place, func(until time.Time) error { return await(ctx, sooner(until, next), some) })
		if err != nil {
			return err
		}
	}
}

// await waits for a moment or for something.
func await(ctx context.Context, until time.Time, some <-chan struct{}) error {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
	case <-some:
	}
	return nil
}

// conflating is the queue of modes Latest and Sample.
type conflating struct {
	*conflater
	gaps []Entry
	// Of what was told already.
	replaced, sampled, overflowed uint64
}

func newConflating(interval time.Duration) (*conflating, error) {
	c, err := newConflater(interval)
	return &conflating{conflater: c}, err
}

func (c *conflating) offer(s *Session, src *source, b hub.Batch, _ wire.FeedToken, now time.Time) {
	c.conflater.offer(src, b.Epoch, b.Messages, now)
	if all := c.latest.Overflowed(); all > c.overflowed {
		c.gap(s.gap(src.stream, wire.Gap{To: s.placeOf(src).String(), Count: all - c.overflowed, Exact: true, Reason: wire.GapOverflow}, now))
		c.overflowed = all
	}
}

func (c *conflating) close(*Session) {}

// gap keeps the newest of the gap records that wait: they are few, unless the
// client takes nothing at all.
func (c *conflating) gap(e Entry) {
	if len(c.gaps) >= gapsMost {
		c.gaps = c.gaps[1:]
	}
	c.gaps = append(c.gaps, e)
}

const gapsMost = 64

func (c *conflating) take(s *Session, into []Entry, most int, reached wire.FeedToken, now time.Time) ([]Entry, wire.FeedToken, time.Time) {
	into = append(into, c.gaps...)
	c.gaps = nil
	entries, next := c.conflater.take(into, most, now)
	replaced, sampled := c.dropped()
	s.cfg.Meter.Dropped(DroppedReplaced, replaced-c.replaced)
	s.cfg.Meter.Dropped(DroppedSampled, sampled-c.sampled)
	c.replaced, c.sampled = replaced, sampled
	place := c.place(reached)
	for i := range entries {
		entries[i].Token = s.place
	}
	if len(entries) > 0 { // the place is reached with the last of them
		entries[len(entries)-1].Token = place
	}
	return entries, place, next
}

// Bounds of the queue of lane Urgent.
const (
	urgentMessages = 256
	urgentBytes    = 1 << 20
)

// urgentQueue is the queue of mode All in lane Urgent: short, so that nothing in
// it is old.
type urgentQueue struct {
	entries []Entry
	bytes   int
	// lost is the run of messages that did not fit, behind what waits.
	lost   wire.Gap
	stream string
	// announced: the writers of lane Normal wait. They do not while this one writes,
	// however long that takes.
	announced, writing bool
}

func (q *urgentQueue) offer(s *Session, src *source, b hub.Batch, _ wire.FeedToken, now time.Time) {
	for _, m := range b.Messages {
		place := wire.ResumeToken{Epoch: b.Epoch, Sequence: m.Sequence, Index: m.Last}
		*s.placeOf(src) = behind(b.Epoch, m)
		if len(q.entries) >= urgentMessages || q.bytes+len(m.Data) > urgentBytes && len(q.entries) > 0 {
			if q.lost.Count > 0 && q.stream != src.stream {
				q.tell(s, now)
			}
			if q.lost.Count == 0 {
				q.stream, q.lost = src.stream, wire.Gap{From: place.String(), Exact: true, Reason: wire.GapOverflow}
			}
			q.lost.Count++
			q.lost.To = place.String()
			continue
		}
		q.tell(s, now)
		q.push(s, Entry{Message: m, Token: s.token})
	}
}

// tell writes the gap record of what did not fit, where there is something.
func (q *urgentQueue) tell(s *Session, now time.Time) {
	if q.lost.Count > 0 {
		q.push(s, s.gap(q.stream, q.lost, now))
		q.lost = wire.Gap{}
	}
}

func (q *urgentQueue) push(s *Session, e Entry) {
	if !q.announced && !q.writing {
		q.announced = true
		s.cfg.Lanes.Waits()
	}
	q.entries = append(q.entries, e)
	q.bytes += len(e.Payload())
}

func (q *urgentQueue) gap(e Entry) {
	q.entries = append(q.entries, e) // bounded by how often streams are made anew
	q.bytes += len(e.Payload())
}

func (q *urgentQueue) take(s *Session, into []Entry, most int, reached wire.FeedToken, now time.Time) ([]Entry, wire.FeedToken, time.Time) {
	if len(q.entries) == 0 {
		q.tell(s, now)
	}
	q.close(s)
	n, bytes := 0, 0
	for ; n < len(q.entries); n++ {
		if bytes += len(q.entries[n].Payload()); n > 0 && bytes > most {
			break
		}
		q.bytes -= len(q.entries[n].Payload())
		into = append(into, q.entries[n])
	}
	if q.writing = n > 0; q.writing {
		q.entries = append(q.entries[:0:0], q.entries[n:]...)
		reached = into[len(into)-1].Token
	}
	return into, reached, time.Time{}
}

func (q *urgentQueue) close(s *Session) {
	if q.announced {
		q.announced = false
		s.cfg.Lanes.Written()
	}
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
