// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// notice publishes the notice of an object that was observed at a minute.
func (l *lab) notice(instrument string, minute int, backfill bool) {
	l.t.Helper()
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	observed := noon.Add(time.Duration(minute) * time.Minute)
	n := wire.Notice{Site: site, Instrument: instrument, Record: wire.Record{ID: "o", Key: "o", Name: fmt.Sprint(minute), State: wire.StateCurrent,
		ReceivedAt: noon.Add(time.Hour), ObservedFrom: &observed, ObservedTo: &observed, TimeSource: wire.TimeSourcePayload, Backfill: backfill}}
	data, err := wire.Encode(n)
	if err != nil {
		l.t.Fatal(err)
	}
	l.publish(wire.NoticeStream(site), n.Subject(), data)
}

// due is what a queue has: the names of the objects, and how many notices each replaced.
func (s *Session) due(t *testing.T) (all []string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	entries, _, _ := s.queue.take(s, nil, 1<<20, s.token, time.Now().Add(time.Hour))
	for _, e := range entries {
		n, err := wire.Decode[wire.Notice](e.Message.Data)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s/%s/%d", n.Instrument, n.Name, e.Replaced))
	}
	return all
}

// A late notice replaces nothing newer: neither one that waits nor one that was given. If
// nothing newer came, the newest late one is given, and those that were left out are counted.
func TestBackfillReplacesNothingNewer(t *testing.T) {
	t.Parallel()
	for name, flow := range map[string]wire.FlowEntry{
		"Latest": {Mode: wire.FlowLatest}, "Sample": {Mode: wire.FlowSample, IntervalMillis: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			counted := &dropMeter{}
			s := l.open(func(c *Config) {
				c.Flow, c.Meter = flow, counted
				c.Filter = func() *Filter {
					f := filter("mag-1", "mag-2")
					f.Backfill = true
					return f
				}
			})
			step := func(what, want string) {
				t.Helper()
				l.put(s)
				if got := fmt.Sprint(s.due(t)); got != want {
					t.Errorf("%s: given %s, want %s", what, got, want)
				}
			}
			l.notice("mag-1", 3, true)
			step("nothing newer came", "[mag-1/3/0]")
			l.notice("mag-1", 2, true)
			step("older than what came late", "[]")
			l.notice("mag-1", 10, false)
			l.notice("mag-1", 5, true)
			l.notice("mag-2", 5, true)
			step("a newer one waits", "[mag-1/10/0 mag-2/5/0]")
			l.notice("mag-1", 9, true)
			step("a newer one was given", "[]")
			l.notice("mag-1", 12, true)
			step("the newest, though late, after three that were not given", "[mag-1/12/3]")
			l.notice("mag-1", 11, false)
			step("what came in time is given", "[mag-1/11/0]")
			if counted.replaced != 3 {
				t.Errorf("%d count as replaced, want 3", counted.replaced)
			}
		})
	}
}

// However many instruments there are, not more are remembered than may wait.
func TestBackfillIsBounded(t *testing.T) {
	var b backfill
	for i := range 3 * conflateBounds.Items {
		b.note(instrument{site, fmt.Sprint(i)}, newest{at: time.Unix(int64(i), 0)})
	}
	if len(b.newest) != conflateBounds.Items {
		t.Errorf("%d instruments are remembered, want %d", len(b.newest), conflateBounds.Items)
	}
}

// dropMeter counts what was replaced.
type dropMeter struct {
	meter
	replaced uint64
}

func (m *dropMeter) Dropped(reason string, count uint64) {
	if reason == DroppedReplaced {
		m.replaced += count
	}
}
