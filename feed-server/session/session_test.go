// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// lab is a Site's two streams, and their hubs.
type lab struct {
	t    *testing.T
	js   jetstream.JetStream
	hubs map[string]*hub.Hub
	last map[string]uint64
}

const site = "hub"

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, js: testenv.NATS(t, testenv.NATSOptions{Unsynced: true}).JetStream(t), hubs: map[string]*hub.Hub{}, last: map[string]uint64{}}
	testenv.CreateSite(t, l.js, site)
	for _, name := range []string{wire.NoticeStream(site), wire.ObservationStream(site)} {
		l.hubs[name] = l.follow(name)
	}
	return l
}

// follow returns a hub that follows a stream from now on.
func (l *lab) follow(stream string) *hub.Hub {
	l.t.Helper()
	h := hub.New(hub.Config{JetStream: l.js, Stream: stream, Budget: hub.NewBudget(32 << 20), Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(l.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); h.Run(ctx) }()
	l.t.Cleanup(func() { cancel(); <-done })
	if _, err := h.Current(ctx); err != nil {
		l.t.Fatal(err)
	}
	return h
}

// telemetry publishes a message of about so many bytes.
func (l *lab) telemetry(instrument string, size int) {
	l.publish(wire.ObservationStream(site), wire.ObservationSubject(site, instrument, "raw"), make([]byte, size))
}

func (l *lab) publish(stream, subject string, data []byte) {
	l.t.Helper()
	ack, err := l.js.Publish(l.t.Context(), subject, data)
	if err != nil {
		l.t.Fatal(err)
	}
	l.last[stream] = ack.Sequence
}

// settle waits until the hubs have all that was published.
func (l *lab) settle() {
	l.t.Helper()
	for name, h := range l.hubs {
		place, err := h.Current(l.t.Context())
		if err != nil {
			l.t.Fatal(err)
		}
		testenv.Await(l.t, "the hub has all of "+name, func() bool { _, next := place.Ring.Span(); return next > l.last[name] })
	}
}

// meter counts.
type meter struct {
	mu   sync.Mutex
	gaps map[wire.GapReason]uint64
}

func (*meter) Given([]Entry, int)     {}
func (*meter) Dropped(string, uint64) {}
func (m *meter) Gap(reason wire.GapReason, count uint64, _ time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gaps[reason] += count
}

func (l *lab) open(change func(*Config)) *Session {
	l.t.Helper()
	cfg := Config{
		Consumer: "c", Flow: wire.FlowEntry{Mode: wire.FlowAll}, Notices: wire.NoticeStream(site), Telemetry: wire.ObservationStream(site),
		Hub: func(name string) *hub.Hub { return l.hubs[name] }, Slots: semaphore.NewWeighted(4), Priorities: &Priorities{},
		Filter: func() *Filter { return filter("mag-1", "mag-2") }, Meter: &meter{gaps: map[wire.GapReason]uint64{}},
		Write: func(context.Context, []Entry, wire.FeedToken) (int, error) {
			return 0, fmt.Errorf("the test writes itself")
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	change(&cfg)
	s, err := New(l.t.Context(), cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(s.Close)
	return s
}

// filter lets through all of some instruments.
func filter(instruments ...string) *Filter {
	f := &Filter{Notices: true, Telemetry: true, Site: site, Instruments: map[string]time.Duration{}}
	for _, name := range instruments {
		f.Instruments[name] = 0
	}
	return f
}

// A stream that always has more than fits does not keep the other one waiting,
// whichever of the two that is.
func TestSourcesTakeTurns(t *testing.T) {
	t.Parallel()
	notices, telemetry := wire.NoticeStream(site), wire.ObservationStream(site)
	subjects := map[string]string{notices: wire.NoticeSubject(site, "mag-1"), telemetry: wire.ObservationSubject(site, "mag-1", "raw")}
	for full, other := range map[string]string{notices: telemetry, telemetry: notices} {
		l := newLab(t)
		s := l.open(func(c *Config) { c.Flow.MaxBytesPerSecond = 20_000 })
		for range 10 {
			l.publish(full, subjects[full], make([]byte, 40_000))
		}
		l.settle()
		entries, _ := s.gather(nil, time.Now())
		l.publish(other, subjects[other], []byte("{}"))
		l.settle()
		came := false
		for range 2 {
			entries, _ = s.gather(entries, time.Now())
			large := 0
			for _, e := range entries {
				came = came || e.Message.Subject == subjects[other]
				if e.Message.Subject == subjects[full] {
					large++
				}
			}
			if large > 1 {
				t.Errorf("%d messages of 40000 bytes at a time, at 20000 a second", large)
			}
		}
		if !came {
			t.Errorf("that of %s does not come; last: %d entries", other, len(entries))
		}
	}
}

// An urgent message delays no other message for long, however long it waits itself.
func TestUrgentStopsNobody(t *testing.T) {
	t.Parallel()
	priorities := &Priorities{}
	priorities.Waits()
	yielded := make(chan struct{})
	go func() { priorities.Yield(t.Context()); close(yielded) }()
	select {
	case <-yielded:
	case <-time.After(testenv.Patience):
		t.Error("priority Normal waits for ever")
	}
}

// A client without messages gets its place before anything is waited for.
func TestPlaceIsToldFirst(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var told wire.FeedToken
	s := l.open(func(c *Config) {
		c.Write = func(_ context.Context, _ []Entry, place wire.FeedToken) (int, error) { told = place; return 0, nil }
	})
	err := s.beatOr(t.Context(), time.Now(), s.token, func(time.Time) error { return fmt.Errorf("it waits") })
	if err != nil || told != s.token || told == (wire.FeedToken{}) {
		t.Errorf("told %v, %v", told, err)
	}
}
