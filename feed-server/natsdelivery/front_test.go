// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// If another subject's message is at the stream's front, messages that leave behind it before
// they are acknowledged are reported as well.
func TestPurgedBehindTheFront(t *testing.T) {
	l, _ := oneServer(t)
	l.declare(wire.ConsumerEntry{Consumer: "model", NoTelemetry: true, Flow: wire.FlowEntry{Mode: wire.FlowAll}})
	l.announce("elsewhere", 0) // of no Feed
	for i := range 20 {
		l.announce(camera, i)
	}
	server := l.serve("pod-0")
	testenv.Await(t, "what waits is known", func() bool { s, _ := l.status("model"); return s.LagMessages == 20 && s.LagMillis > 0 })
	if s, _ := l.status("model"); s.LagBytes != nil || s.Bytes != nil {
		t.Errorf("who says how many bytes it lags, %v, and took, %v?", s.LagBytes, s.Bytes)
	}
	server.stop() // its place is saved
	s, err := l.js.Stream(t.Context(), wire.NoticeStream(site))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSubject(wire.NoticeSubject(site, camera)), jetstream.WithPurgeSequence(12)); err != nil {
		t.Fatal(err)
	}
	l.serve("pod-1")
	k := newTaken()
	consume(t, l.connect("model"), wire.NoticeStream(site), "model", k, 0, nil)
	testenv.Await(t, "the rest is taken, and the record", func() bool { return k.count("notice") == 10 && len(k.allGaps()) >= 1 })
	g := k.allGaps()[0]
	if from, err := wire.ParseResumeToken(g.From); err != nil || from.Sequence != 2 || g.Count < 10 || g.Reason != wire.GapRetention {
		t.Errorf("gap record %+v", g)
	}
}

// If a leaf's message that waits holds the stream's front, and the durable's floor, messages that
// leave behind it are reported to the consumer: both while a feed server watches, and while none
// does.
func TestPurgedBehindALeaf(t *testing.T) {
	const leaf = "north"
	for name, away := range map[string]bool{"looked at": false, "looked at later": true} {
		t.Run(name, func(t *testing.T) {
			l, _ := oneServer(t)
			s, err := l.js.Stream(t.Context(), wire.NoticeStream(site))
			if err != nil {
				t.Fatal(err)
			}
			cfg := s.CachedInfo().Config
			cfg.Subjects = append(cfg.Subjects, wire.NoticeSubjects(leaf)) // as the hub sources them
			if s, err = l.js.UpdateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			l.declare(wire.ConsumerEntry{Consumer: "model", NoTelemetry: true, Instruments: []string{camera, wire.LeafInstruments(leaf)},
				Flow: wire.FlowEntry{Mode: wire.FlowAll}})
			l.declare(wire.ConsumerEntry{Consumer: "quick", NoTelemetry: true, Instruments: []string{camera, wire.LeafInstruments(leaf)},
				Flow: wire.FlowEntry{Mode: wire.FlowAll}})
			ofLeaf := func(number int) {
				n := l.notice("ionosonde", number)
				n.Site = leaf
				l.publishNotice(n)
			}
			ofLeaf(1000)
			for i := range 20 {
				l.announce(camera, i)
			}
			// One leaves the leaf's unacknowledged, and acknowledges the others: it misses
			// nothing.
			quick, k := newTaken(), newTaken()
			consume(t, l.connect("quick"), wire.NoticeStream(site), "quick", quick, 0, func(m jetstream.Msg) bool {
				return m.Subject() != wire.NoticeSubject(leaf, "ionosonde")
			})
			testenv.Await(t, "the quick one took all but the leaf's", func() bool { return quick.count("notice") == 20 })
			server := l.serve("pod-0")
			marked := func(consumer string, origin string, at uint64) func() bool {
				return func() bool { return l.cursor(consumer).Marks[wire.NoticeStream(site)][origin] == at }
			}
			if away {
				testenv.Await(t, "what waits is known", func() bool { s, _ := l.status("model"); return s.LagMessages == 21 && s.LagMillis > 0 })
				server.stop() // its places are saved
			} else {
				testenv.Await(t, "what waits is known", marked("model", site, 2))
			}
			if err := s.Purge(t.Context(), jetstream.WithPurgeSubject(wire.NoticeSubjects(site)), jetstream.WithPurgeSequence(12)); err != nil {
				t.Fatal(err)
			}
			if away {
				l.serve("pod-1")
			}
			testenv.Await(t, "the rest is marked", marked("model", site, 12))
			consume(t, l.connect("model"), wire.NoticeStream(site), "model", k, 0, nil)
			testenv.Await(t, "the rest is taken, and the record", func() bool { return k.count("notice") == 11 && len(k.allGaps()) == 1 })
			g := k.allGaps()[0]
			from, errFrom := wire.ParseResumeToken(g.From)
			to, errTo := wire.ParseResumeToken(g.To)
			if errFrom != nil || errTo != nil || from.Sequence != 2 || to.Sequence != 11 || g.Count != 10 || g.Reason != wire.GapRetention {
				t.Errorf("gap record %+v", g)
			}
			for i := range 10 { // and it goes on
				ofLeaf(2000 + i)
				l.announce(camera, 100+i)
			}
			testenv.Await(t, "what came then is taken", func() bool { return k.count("notice") == 31 && quick.count("notice") == 30 })
			testenv.Await(t, "its report", func() bool { s, _ := l.status("model"); return s.LagMessages == 0 && s.Gaps == 1 })
			same(t, "gaps of the quick one", nil, quick.allGaps())
		})
	}
}

// cursor is what feed servers saved of a consumer.
func (l *lab) cursor(consumer string) wire.DeliveryCursor {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), wire.CursorBucket(site))
	if err != nil {
		l.t.Fatal(err)
	}
	e, err := kv.Get(l.t.Context(), wire.DeliveryCursorKey(consumer))
	if err != nil {
		return wire.DeliveryCursor{}
	}
	c, err := wire.Decode[wire.DeliveryCursor](e.Value())
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}
