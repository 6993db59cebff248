// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

func same[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func oneServer(t *testing.T) (*lab, *testenv.NATSServer) {
	t.Helper()
	t.Parallel()
	n := testenv.NATS(t, testenv.NATSOptions{Operator: true})
	return newLab(t, n, 1), n
}

// A plain client with its own credentials gets all, also what it did not acknowledge,
// and through a restart of the server; nothing of that is a gap.
func TestAll(t *testing.T) {
	l, server := oneServer(t)
	l.declare(wire.ConsumerEntry{Consumer: "model", Flow: wire.FlowEntry{Mode: wire.FlowAll}})
	l.serve("pod-0")
	nc := l.connect("model")
	k := newTaken()
	var refused atomic.Int64
	notAlways := func(m jetstream.Msg) bool {
		meta, err := m.Metadata()
		if err == nil && meta.NumDelivered == 1 && meta.Sequence.Stream%17 == 0 {
			refused.Add(1)
			_ = m.Nak()
			return false
		}
		return true
	}
	consume(t, nc, wire.NoticeStream(site), "model", k, 0, notAlways)
	consume(t, nc, wire.ObservationStream(site), "model", k, 0, notAlways)
	const count = 400
	for i := range count {
		if i == count/2 {
			server.Kill()
			server.Start()
		}
		l.announce(camera, i)
		l.telemetry(mag, i*3, 3)
	}
	testenv.Await(t, "all is taken", func() bool { return k.count("notice") == count && k.count("obs") == 3*count })
	same(t, "notices", upTo(count), k.distinct("notice"))
	same(t, "datagrams", upTo(3*count), k.distinct("obs"))
	if refused.Load() == 0 {
		t.Error("nothing was delivered again: the test shows less than it says")
	}
	testenv.Await(t, "the report says so", func() bool {
		s, _ := l.status("model")
		return s.State == wire.StateFlowing && s.LagMessages == 0
	})
	// Messages are counted since the pod last took the lease, which may have been lost with the server.
	l.announce(camera, count)
	testenv.Await(t, "what comes then is counted", func() bool {
		s, _ := l.status("model")
		return s.Messages > 0 && s.LagMessages == 0
	})
	same(t, "gaps", nil, k.allGaps())
}

// Messages that leave the streams before a slow consumer acknowledged them are reported once,
// and everything else is given, also if the feed server changes meanwhile.
func TestPurgedUnderASlowConsumer(t *testing.T) {
	l, _ := oneServer(t)
	l.declare(wire.ConsumerEntry{Consumer: "slow", NoTelemetry: true, Flow: wire.FlowEntry{Mode: wire.FlowAll}})
	l.declare(wire.ConsumerEntry{Consumer: "quick", NoTelemetry: true, Flow: wire.FlowEntry{Mode: wire.FlowAll}})
	// One whose instrument sends nothing misses nothing, whatever goes.
	l.declare(wire.ConsumerEntry{Consumer: "other", NoTelemetry: true, Instruments: []string{"camera-2"}, Flow: wire.FlowEntry{Mode: wire.FlowAll}})
	servers := []*server{l.serve("pod-0"), l.serve("pod-1")}
	k, quick := newTaken(), newTaken()
	var pause sync.RWMutex
	consume(t, l.connect("slow"), wire.NoticeStream(site), "slow", k, 20*time.Millisecond, func(jetstream.Msg) bool {
		pause.RLock()
		defer pause.RUnlock()
		return true
	})
	consume(t, l.connect("quick"), wire.NoticeStream(site), "quick", quick, 0, nil)
	l.announce("camera-2", 5000)
	other := newTaken()
	consume(t, l.connect("other"), wire.NoticeStream(site), "other", other, 0, nil)
	testenv.Await(t, "the other one took its own", func() bool { return other.count("notice") == 1 })
	const count = 1000
	for i := range count {
		l.announce(camera, i)
		if i%200 == 199 {
			testenv.Await(t, "the quick one took all", func() bool { return quick.count("notice") == i+2 })
			pause.Lock()
			s, err := l.js.Stream(t.Context(), wire.NoticeStream(site))
			if err != nil {
				t.Fatal(err)
			}
			last := s.CachedInfo().State.LastSeq
			for _, name := range []string{"quick", "other"} {
				testenv.Await(t, "it is noted what it acknowledged", func() bool { return l.filled(name).Notices.Sequence >= last })
			}
			if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(last-20)); err != nil {
				t.Fatal(err)
			}
			pause.Unlock()
			servers[i/200%2].stop()
			servers[i/200%2] = l.serve(fmt.Sprint("pod-", i))
		}
	}
	quick.mu.Lock()
	sequences := quick.sequences
	quick.mu.Unlock()
	var gone map[uint64]bool
	missing := 0
	testenv.Await(t, "all is given or in gap records", func() bool {
		gone, missing = covered(t, k.allGaps()), 0
		given := k.distinct("notice")
		for i := range count {
			if _, found := slices.BinarySearch(given, i); found {
				continue
			}
			if missing++; !gone[sequences[i]] {
				return false
			}
		}
		return true
	})
	t.Logf("%d of %d are missing, %d in %d gap records", missing, count, len(gone), len(k.allGaps()))
	for _, g := range k.allGaps() {
		if g.Reason != wire.GapRetention || g.Consumer != "slow" || g.Stream != wire.NoticeStream(site) || g.Count == 0 {
			t.Errorf("gap record %+v", g)
		}
	}
	// The client may have taken messages that were delivered, and not acknowledged when they left.
	if extra := len(gone) - missing; extra > 5*100 {
		t.Errorf("%d messages are in gap records that were given", extra)
	}
	if missing == 0 {
		t.Error("nothing is missing: the test shows nothing")
	}
	for id, times := range k.times() {
		if len(id) > 4 && id[:4] == "gap/" && times != 1 {
			t.Errorf("gap record %s came %d times", id, times)
		}
	}
	same(t, "gaps of the quick one", nil, quick.allGaps())
	same(t, "gaps of the other one", nil, other.allGaps())
	testenv.Await(t, "the state is overrun", func() bool { s, _ := l.status("slow"); return s.State == wire.StateOverrun })
}

// A durable that was deleted by hand is recreated at its position: nothing is missing, and the
// consumer is notified that messages may come again.
func TestDurableDeleted(t *testing.T) {
	l, _ := oneServer(t)
	entry := wire.ConsumerEntry{Consumer: "model", NoTelemetry: true, Flow: wire.FlowEntry{Mode: wire.FlowAll}}
	l.declare(entry)
	l.serve("pod-0")
	nc := l.connect("model")
	k := newTaken()
	consume(t, nc, wire.NoticeStream(site), "model", k, 0, nil)
	for i := range 100 {
		l.announce(camera, i)
	}
	testenv.Await(t, "the place is reported", func() bool {
		s, _ := l.status("model")
		token, err := wire.ParseFeedToken(s.Token)
		return err == nil && token.Notices.Sequence == 100
	})
	if err := l.js.DeleteConsumer(t.Context(), wire.NoticeStream(site), wire.ConsumerDurable("model", issue)); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		l.announce(camera, 100+i)
	}
	s, _ := l.status("model")
	token, err := wire.ParseFeedToken(s.Token)
	if err != nil {
		t.Fatal(err)
	}
	l.makeDurable(l.consumers["model"], wire.NoticeStream(site), token.Notices)
	testenv.Await(t, "all is taken, and the record", func() bool { return k.count("notice") == 150 && len(k.allGaps()) == 1 })
	if g := k.allGaps()[0]; g.Reason != wire.GapConsumerDeleted || g.Count != 0 || g.From != "" {
		t.Errorf("gap record %+v", g)
	}

	// Recreated by hand without its position: the messages in between are missing.
	testenv.Await(t, "it is seen that all is acknowledged", func() bool {
		s, _ := l.status("model")
		token, err := wire.ParseFeedToken(s.Token)
		return err == nil && token.Notices.Sequence >= 151
	})
	if err := l.js.DeleteConsumer(t.Context(), wire.NoticeStream(site), wire.ConsumerDurable("model", issue)); err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		l.announce(camera, 150+i)
	}
	stream, err := l.js.Stream(t.Context(), wire.NoticeStream(site))
	if err != nil {
		t.Fatal(err)
	}
	last := stream.CachedInfo().State.LastSeq
	l.makeDurable(l.consumers["model"], wire.NoticeStream(site), wire.ResumeToken{Epoch: token.Notices.Epoch, Sequence: last})
	testenv.Await(t, "the second record", func() bool { return len(k.allGaps()) == 2 })
	gone := covered(t, k.allGaps())
	for s := last - 29; s <= last; s++ {
		if !gone[s] {
			t.Errorf("%d was not given, and in no gap record", s)
		}
	}
	if g := k.allGaps()[1]; g.Reason != wire.GapConsumerDeleted || g.Count != 30 {
		t.Errorf("gap record %+v", g)
	}
}

// A record that a feed server had noted when it ended is published once by the next,
// whether or not it was published before.
func TestOneRecordWhoeverTells(t *testing.T) {
	l, _ := oneServer(t)
	l.declare(wire.ConsumerEntry{Consumer: "model", NoTelemetry: true, Flow: wire.FlowEntry{Mode: wire.FlowAll}})
	cursors, err := l.js.KeyValue(t.Context(), wire.CursorBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	key := wire.DeliveryCursorKey("model")
	cursor := func() wire.DeliveryCursor {
		e, err := cursors.Get(t.Context(), key)
		if err != nil {
			return wire.DeliveryCursor{}
		}
		c, err := wire.Decode[wire.DeliveryCursor](e.Value())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := l.serve("pod-0")
	for i := range 20 {
		l.announce(camera, i)
	}
	testenv.Await(t, "it is watched", func() bool { _, pod := l.status("model"); return pod == "pod-0" })
	s, err := l.js.Stream(t.Context(), wire.NoticeStream(site))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(11)); err != nil {
		t.Fatal(err)
	}
	records := func() (n uint64) {
		s, err := l.js.Stream(t.Context(), wire.NoticeStream(site))
		if err != nil {
			t.Fatal(err)
		}
		info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(wire.GapSubject(site, "model")))
		if err != nil {
			t.Fatal(err)
		}
		return info.State.Subjects[wire.GapSubject(site, "model")]
	}
	testenv.Await(t, "the record is published", func() bool { return records() == 1 })
	first.stop()
	told := cursor()
	for _, published := range []bool{true, false} {
		if !published {
			m, err := s.GetLastMsgForSubject(t.Context(), wire.GapSubject(site, "model"))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.DeleteMsg(t.Context(), m.Sequence); err != nil {
				t.Fatal(err)
			}
			told.Gaps = 2 // JetStream would take the first one for a duplicate
		}
		told.Sequence = 0
		value, err := wire.Encode(told)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cursors.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
		next := l.serve(fmt.Sprint("pod-", published))
		testenv.Await(t, "the record is there", func() bool { return records() == 1 })
		testenv.Await(t, "another looks after it", func() bool { _, pod := l.status("model"); return pod == fmt.Sprint("pod-", published) })
		next.stop()
		if n := records(); n != 1 {
			t.Errorf("%d records", n)
		}
		told = cursor()
	}
	k := newTaken()
	consume(t, l.connect("model"), wire.NoticeStream(site), "model", k, 0, nil)
	testenv.Await(t, "the rest is taken, and the record", func() bool { return k.count("notice") == 10 && len(k.allGaps()) == 1 })
	if g := k.allGaps()[0]; g.Count != 10 || g.Reason != wire.GapRetention {
		t.Errorf("gap record %+v", g)
	}
}

// A consumer that is gone from the registry is forgotten; another one of its name starts from the
// beginning.
func TestForgotten(t *testing.T) {
	l, _ := oneServer(t)
	l.declare(wire.ConsumerEntry{Consumer: "model", NoTelemetry: true, Flow: wire.FlowEntry{Mode: wire.FlowAll}})
	l.declare(wire.ConsumerEntry{Consumer: "stays", NoTelemetry: true, Flow: wire.FlowEntry{Mode: wire.FlowAll}})
	l.serve("pod-0")
	cursors, err := l.js.KeyValue(t.Context(), wire.CursorBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	known := func(consumer string) func() bool {
		return func() bool { _, err := cursors.Get(t.Context(), wire.DeliveryCursorKey(consumer)); return err == nil }
	}
	l.announce(camera, 0)
	testenv.Await(t, "both are known", func() bool {
		_, first := l.status("model")
		_, second := l.status("stays")
		return first != "" && second != ""
	})
	l.mu.Lock()
	delete(l.consumers, "model")
	l.revision++
	l.mu.Unlock()
	if err := l.registry.Delete(t.Context(), wire.RegistryConsumerKey("model")); err != nil {
		t.Fatal(err)
	}
	l.complete()
	testenv.Await(t, "it is forgotten", func() bool { _, pod := l.status("model"); return pod == "" && !known("model")() })
	if _, pod := l.status("stays"); pod == "" {
		t.Error("the other one is forgotten, too")
	}
}
