// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// Where another subject's message keeps the stream's front, what leaves behind it
// before it is acknowledged is told as well.
func TestPurgedBehindTheFront(t *testing.T) {
	l, _ := oneServer(t)
	l.declare(wire.ConsumerEntry{Consumer: "model", NoTelemetry: true, Flow: wire.FlowEntry{Mode: wire.FlowAll}})
	l.announce("elsewhere", 0) // of no Feed
	for i := range 20 {
		l.announce(camera, i)
	}
	server := l.serve("pod-0")
	await(t, "what waits is known", func() bool { s, _ := l.status("model"); return s.LagMessages == 20 && s.LagMillis > 0 })
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
	await(t, "the rest is taken, and the record", func() bool { return k.count("notice") == 10 && len(k.allGaps()) >= 1 })
	g := k.allGaps()[0]
	if from, err := wire.ParseResumeToken(g.From); err != nil || from.Sequence != 2 || g.Count < 10 || g.Reason != wire.GapRetention {
		t.Errorf("gap record %+v", g)
	}
}
