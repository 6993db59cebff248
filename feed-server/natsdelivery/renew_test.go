// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// If the consumer's Secret was rewritten, its durable has another name, and begins behind the
// messages that the earlier one acknowledged: it is still watched, and the consumer is notified
// that messages may come again.
func TestDurableUnderAnotherName(t *testing.T) {
	l, _ := oneServer(t)
	l.declare(wire.ConsumerEntry{Consumer: "model", NoTelemetry: true, Flow: wire.FlowEntry{Mode: wire.FlowAll}})
	l.serve("pod-0")
	k := newTaken()
	stop := consume(t, l.connect("model"), wire.NoticeStream(site), "model", k, 0, nil)
	for i := range 50 {
		l.announce(camera, i)
	}
	testenv.Await(t, "the place is reported", func() bool {
		s, _ := l.status("model")
		token, err := wire.ParseFeedToken(s.Token)
		return err == nil && token.Notices.Sequence == 50
	})
	for i := range 10 { // no feed server looks in between
		l.announce(camera, 50+i)
	}
	testenv.Await(t, "more is taken", func() bool { return k.count("notice") == 60 })
	stop()

	// As the operator does.
	entry := l.consumers["model"]
	earlier := entry.Durable
	entry.Durable = wire.ConsumerDurable("model", "another")
	old, err := l.js.Consumer(t.Context(), wire.NoticeStream(site), earlier)
	if err != nil {
		t.Fatal(err)
	}
	cfg := old.CachedInfo().Config
	cfg.Name, cfg.Durable = entry.Durable, entry.Durable
	floor := old.CachedInfo().AckFloor.Stream
	cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, floor+1
	cfg.Metadata = map[string]string{wire.ConsumerMetadataAfter: fmt.Sprint(floor)}
	durable, err := l.js.CreateConsumer(t.Context(), wire.NoticeStream(site), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.js.DeleteConsumer(t.Context(), wire.NoticeStream(site), earlier); err != nil {
		t.Fatal(err)
	}
	l.revision++
	entry.Revision = l.revision
	value, err := wire.Encode(entry)
	l.put(wire.RegistryConsumerKey("model"), value, err)
	l.complete()

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			readDurable(ctx, t, durable, k, 0, nil)
			time.Sleep(100 * time.Millisecond) // a consumer's pause before it asks again
		}
	}()
	defer func() { cancel(); <-done }()
	for i := range 20 {
		l.announce(camera, 60+i)
	}
	testenv.Await(t, "all is taken, and the record", func() bool { return k.count("notice") == 80 && len(k.allGaps()) == 1 })
	if g := k.allGaps()[0]; g.Reason != wire.GapConsumerDeleted || g.Count != 0 || g.From != "" {
		t.Errorf("gap record %+v", g)
	}
	testenv.Await(t, "the report is of the new one", func() bool {
		s, _ := l.status("model")
		token, err := wire.ParseFeedToken(s.Token)
		return err == nil && token.Notices.Sequence >= 80 && s.LagMessages == 0
	})
}
