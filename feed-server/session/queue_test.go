// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/internal/wire"
)

// run runs a session until the test ends.
func (l *lab) run(s *Session) {
	ctx, cancel := context.WithCancel(l.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	l.t.Cleanup(func() { cancel(); <-done })
}

// stall is a client that never takes anything.
func stall(ctx context.Context, _ []Entry, _ wire.FeedToken) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// A client that takes nothing from its first byte on is behind, in each mode, also by messages
// before those in memory.
func TestStalledFromTheStart(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for range 50 {
		l.telemetry("mag-1", 1000)
	}
	l.settle()
	place, err := l.hubs[wire.ObservationStream(site)].Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	token := wire.FeedToken{Telemetry: wire.ResumeToken{Epoch: place.Epoch, Sequence: 10}}
	l.hubs[wire.ObservationStream(site)] = l.follow(wire.ObservationStream(site)) // its memory holds none of them
	s := l.open(func(c *Config) { c.Token, c.Write = token, stall })
	l.run(s)
	if lag := s.Lag(); lag.Messages != 41 || lag.Since.IsZero() {
		t.Errorf("lag %+v", lag)
	}
	newest := l.open(func(c *Config) { c.Write = stall })
	l.run(newest)
	for range 5 {
		l.telemetry("mag-1", 1000)
	}
	l.settle()
	if lag := newest.Lag(); lag.Messages != 5 || lag.Since.IsZero() {
		t.Errorf("one that began at the newest: lag %+v", lag)
	}
	// Before its queue has read anything all of it is behind.
	latest := l.open(func(c *Config) { c.Token, c.Flow.Mode = token, wire.FlowLatest })
	if lag := latest.Lag(); lag.Messages < 41 || lag.Since.IsZero() {
		t.Errorf("mode Latest: lag %+v", lag)
	}
}

// taken is what a queue has, given at once.
func (s *Session) taken(t *testing.T) (names []string, gaps []wire.Gap) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	entries, _, _ := s.queue.take(s, nil, 1<<20, s.token, time.Now().Add(time.Hour))
	for _, e := range entries {
		if e.Message != nil {
			names = append(names, e.Message.Instrument)
			continue
		}
		g, err := wire.Decode[wire.Gap](e.Gap)
		if err != nil {
			t.Fatal(err)
		}
		gaps = append(gaps, g)
	}
	return names, gaps
}

// put has all that the hubs have wait in the queue.
func (l *lab) put(s *Session) {
	l.t.Helper()
	l.settle()
	for _, src := range s.sources {
		for {
			b, ok := s.poll(src, hub.Most{Messages: batchEntries, Bytes: batchBytes}, time.Now())
			if !ok {
				break
			}
			s.put(src, b, time.Now())
		}
	}
}

// Messages that wait for a client that may no longer have them are not given.
func TestNarrowedRightClosesWhatWaits(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for name, flow := range map[string]wire.FlowEntry{
		"Latest": {Mode: wire.FlowLatest}, "Sample": {Mode: wire.FlowSample, IntervalMillis: 60_000},
		"Urgent": {Mode: wire.FlowAll, Priority: wire.PriorityUrgent}, "Latest and Urgent": {Mode: wire.FlowLatest, Priority: wire.PriorityUrgent},
	} {
		var current atomic.Pointer[Filter]
		current.Store(filter("mag-1", "mag-2"))
		s := l.open(func(c *Config) { c.Flow, c.Filter = flow, current.Load })
		l.telemetry("mag-1", 100)
		l.telemetry("mag-2", 100)
		l.put(s)
		current.Store(filter("mag-2"))
		if got, _ := s.taken(t); fmt.Sprint(got) != "[mag-2]" {
			t.Errorf("%s: given %v", name, got)
		}
		if lag := s.queue.lag(); lag != (hub.Lag{}) {
			t.Errorf("%s: %+v waits", name, lag)
		}
	}
}

// Gap records that wait for a client which takes nothing are few, and lose nothing.
func TestGapsAreJoined(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for name, flow := range map[string]wire.FlowEntry{"Latest": {Mode: wire.FlowLatest}, "Urgent": {Mode: wire.FlowAll, Priority: wire.PriorityUrgent}} {
		s := l.open(func(c *Config) { c.Flow = flow })
		s.put(s.sources[0], hub.Batch{Epoch: "a", Missing: &hub.Missing{Epoch: "b", From: 7, To: 7, Count: 1, Reason: wire.GapStreamRecreated}}, time.Now())
		for n := range uint64(1000) {
			s.put(s.sources[1], hub.Batch{Epoch: "a", Missing: &hub.Missing{Epoch: "a", From: 10 * n, To: 10*n + 4, Count: 3, Reason: wire.GapRetention}}, time.Now())
		}
		counts := map[wire.GapReason]uint64{}
		records := 0
		for range 10 {
			_, gaps := s.taken(t)
			records += len(gaps)
			for _, g := range gaps {
				counts[g.Reason] += g.Count
			}
		}
		if records > urgentMessages+2 || counts[wire.GapRetention] != 3000 || counts[wire.GapStreamRecreated] != 1 {
			t.Errorf("%s: %d gap records of %v messages", name, records, counts)
		}
	}
}

// Mode Latest of priority Urgent keeps to the priority's bounds, announces what waits, and
// undoes that when it is about to be written.
func TestLatestOfPriorityUrgent(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	priorities := &Priorities{}
	f := filter()
	for n := range 300 {
		f.Instruments[fmt.Sprintf("mag-%d", n)] = 0
	}
	s := l.open(func(c *Config) {
		c.Flow, c.Priorities = wire.FlowEntry{Mode: wire.FlowLatest, Priority: wire.PriorityUrgent}, priorities
		c.Filter = func() *Filter { return f }
	})
	for n := range 300 {
		l.telemetry(fmt.Sprintf("mag-%d", n), 10)
	}
	l.put(s)
	if priorities.waiting != 1 {
		t.Errorf("%d are announced", priorities.waiting)
	}
	names, gaps := s.taken(t)
	if len(names) != urgentMessages || len(gaps) != 1 || gaps[0].Count != 300-urgentMessages || gaps[0].Reason != wire.GapOverflow {
		t.Errorf("given %d, gaps %+v", len(names), gaps)
	}
	if priorities.waiting != 0 {
		t.Errorf("%d are announced after it was taken", priorities.waiting)
	}
}

// A writer of priority Normal lets one of priority Urgent go first.
func TestUrgentGoesFirst(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{wire.FlowAll, wire.FlowLatest} {
		l := newLab(t)
		priorities := &Priorities{most: time.Hour}
		var urgentWrote atomic.Bool
		order := make(chan error, 1)
		normal := l.open(func(c *Config) {
			c.Flow.Mode, c.Priorities = mode, priorities
			c.Write = func(_ context.Context, entries []Entry, _ wire.FeedToken) (int, error) {
				if len(entries) == 0 { // its place
					return 0, nil
				}
				var err error
				if !urgentWrote.Load() {
					err = errors.New("priority Normal was written first")
				}
				select {
				case order <- err:
				default:
				}
				return 0, nil
			}
		})
		priorities.Waits() // as a writer of priority Urgent does whose turn has not come yet
		l.run(normal)
		l.telemetry("mag-1", 10)
		l.settle()
		select { // time enough for one that does not wait
		case err := <-order:
			t.Errorf("%s: %v", mode, err)
		case <-time.After(100 * time.Millisecond):
			urgentWrote.Store(true)
			priorities.Written()
			if err := <-order; err != nil {
				t.Errorf("%s: %v", mode, err)
			}
		}
	}
}
