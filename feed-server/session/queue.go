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
// modes Latest and Sample, and of priority Urgent. It is used under the session's lock.
type queue interface {
	// offer takes what a source brought.
	offer(s *Session, src *source, b hub.Batch, now time.Time)
	// gap takes a gap record.
	gap(s *Session, g wire.Gap)
	// take returns what is written next, of at most so many bytes; the place behind that, if
	// everything before reached was taken from the sources; and when more is due by the clock
	// alone.
	take(s *Session, into []Entry, most int, reached wire.FeedToken, now time.Time) (entries []Entry, place wire.FeedToken, next time.Time)
	lag() hub.Lag
	// close undoes what was reported to others.
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
			s.notePositions()
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
		s.advancePlace(src, b)
		s.queue.gap(s, s.missing(src, *b.Missing, now))
		return
	}
	s.queue.offer(s, src, b, now)
	s.advancePlace(src, b)
	if n := len(b.Messages); n > 0 {
		src.at = b.Messages[n-1].At
	}
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
				s.cfg.Priorities.Yield(ctx)
			}
			if err := s.write(ctx, entries, place); err != nil {
				return err
			}
			continue
		}
		err := s.beatOr(ctx, now, place, func(until time.Time) error { return await(ctx, hub.Sooner(until, next), some) })
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
