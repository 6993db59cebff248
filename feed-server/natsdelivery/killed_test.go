// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// A feed server is killed, and messages that consumers had acknowledged leave the stream. The feed
// server that takes over reports no gap to these consumers, whether they selected the messages or
// not; it reports waiting messages that left.
func TestKilledAfterAcknowledged(t *testing.T) {
	l, _ := oneServer(t)
	entry := func(name string, instruments ...string) wire.ConsumerEntry {
		return wire.ConsumerEntry{Consumer: name, NoTelemetry: true, Instruments: instruments, Flow: wire.FlowEntry{Mode: wire.FlowAll}}
	}
	l.declare(entry("quick"))
	l.declare(entry("quiet", "camera-2"))
	l.declare(entry("away"))
	l.announce(camera, 0)
	quick, quiet, away := newTaken(), newTaken(), newTaken()
	consume(t, l.connect("quick"), wire.NoticeStream(site), "quick", quick, 0, nil)
	consume(t, l.connect("quiet"), wire.NoticeStream(site), "quiet", quiet, 0, nil)
	consumers := []string{"quick", "quiet", "away"}
	next := func(consumer string) uint64 { return l.cursor(consumer).Places[wire.NoticeStream(site)].Next }
	first := l.serve("pod-0")
	for _, name := range consumers {
		testenv.Await(t, name+" is looked after", func() bool { return next(name) > 0 })
	}
	const count = 50
	for i := range count {
		l.announce(camera, 1+i)
	}
	for _, name := range consumers[:2] {
		testenv.Await(t, "it is noted how far it is: "+name, func() bool { return l.filled(name).Notices.Sequence > count })
	}
	first.kill()
	s, err := l.js.Stream(t.Context(), wire.NoticeStream(site))
	if err != nil {
		t.Fatal(err)
	}
	last := s.CachedInfo().State.LastSeq
	if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(last+1)); err != nil {
		t.Fatal(err)
	}
	l.serve("pod-1")
	for _, name := range consumers {
		testenv.Await(t, name+" is looked after again", func() bool { return next(name) > last })
	}
	consume(t, l.connect("away"), wire.NoticeStream(site), "away", away, 0, nil)
	testenv.Await(t, "who was away is told", func() bool { return len(away.allGaps()) == 1 })
	if g := away.allGaps()[0]; g.Count != last || g.Reason != wire.GapRetention {
		t.Errorf("gap record %+v", g)
	}
	for _, name := range consumers[:2] {
		if n := l.cursor(name).Gaps; n != 0 {
			t.Errorf("%s is told of %d gaps", name, n)
		}
	}
	same(t, "gaps of the quick one", nil, quick.allGaps())
	same(t, "gaps of the quiet one", nil, quiet.allGaps())
}
