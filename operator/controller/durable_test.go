// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan/workload"
)

// TestDurableDeletedByHand: a deleted durable is recreated at its position.
func TestDurableDeletedByHand(t *testing.T) {
	w := newFeedWorld(t)
	js := w.nats.JetStream(t)
	w.applyFeed("all", "")
	w.applyConsumer("client", "all", "NATS", "")
	w.durable("OBS_hub", "client")
	w.publish(js, "obs.hub.mag-1.raw", "1", "2", "3")
	c := w.natsClient("client")
	if got := c.takes("OBS_hub", 2); !slices.Equal(got, []string{"1", "2"}) {
		t.Fatalf("%q", got)
	}
	epoch := wire.StreamEpoch(w.streamInfo("OBS_hub").Created)
	w.awaitPosition("client")
	before := w.durable("OBS_hub", "client").Created
	again := func(what string) {
		eventually(t, what, func() error {
			c, err := js.Consumer(t.Context(), "OBS_hub", w.durableName("client"))
			if err == nil && !c.CachedInfo().Created.After(before) {
				err = errors.New("it is the old one")
			}
			return err
		})
	}
	if err := js.DeleteConsumer(t.Context(), "OBS_hub", w.durableName("client")); err != nil {
		t.Fatal(err)
	}
	again("the durable is back")
	if got := c.takes("OBS_hub", 1); !slices.Equal(got, []string{"3"}) {
		t.Errorf("after it was made anew: %q", got)
	}

	// An operator that begins knows the place as it was last written.
	w.stop()
	at, err := wire.ParseResumeToken(w.position("client").Streams["OBS_hub"])
	if err != nil || at.Epoch != epoch || at.Sequence == 0 || at.Sequence > 3 {
		t.Fatalf("the place that is kept: %+v, %v", at, err)
	}
	before = w.durable("OBS_hub", "client").Created
	w.publish(js, "obs.hub.mag-1.raw", "4")
	if err := js.DeleteConsumer(t.Context(), "OBS_hub", w.durableName("client")); err != nil {
		t.Fatal(err)
	}
	w.start()
	again("the durable is back after a restart of the operator")
	want := []string{"1", "2", "3", "4"}[at.Sequence:]
	if got := c.takes("OBS_hub", len(want)); !slices.Equal(got, want) {
		t.Errorf("after the restart, from %v: %q", at, got)
	}
	if n := w.durable("OBS_hub", "client").NumPending; n != 0 {
		t.Errorf("%d more messages wait", n)
	}

	// So does one whose bucket was deleted: it writes what it knows.
	if err := js.DeleteKeyValue(t.Context(), wire.CursorBucket("hub")); err != nil {
		t.Fatal(err)
	}
	w.awaitPosition("client")

	// If both are gone, the consumer gets everything again and misses nothing.
	w.stop()
	err = errors.Join(js.DeleteKeyValue(t.Context(), wire.CursorBucket("hub")), js.DeleteConsumer(t.Context(), "OBS_hub", w.durableName("client")))
	if err != nil {
		t.Fatal(err)
	}
	w.start()
	if w.durable("OBS_hub", "client"); !slices.Equal(c.takes("OBS_hub", 4), []string{"1", "2", "3", "4"}) {
		t.Error("not all came again")
	}
}

// position returns how far a consumer has come, as stored by the operator; empty if none is stored.
func (w *world) position(consumer string) (is wire.PositionCursor) {
	w.t.Helper()
	kv, err := w.nats.JetStream(w.t).KeyValue(w.t.Context(), wire.CursorBucket("hub"))
	if err != nil {
		return is
	}
	if e, err := kv.Get(w.t.Context(), wire.PositionCursorKey(consumer)); err == nil {
		if is, err = wire.Decode[wire.PositionCursor](e.Value()); err != nil {
			w.t.Fatal(err)
		}
	}
	return is
}

func (w *world) awaitPosition(consumer string) {
	w.t.Helper()
	eventually(w.t, "the place of "+consumer+" is kept", func() error {
		if is := w.position(consumer); is.Streams["OBS_hub"] == "" {
			return fmt.Errorf("%+v", is)
		}
		return nil
	})
}

// TestConsumerDeleted: durables, the stream that is filled for the consumer, the Secret and the entry are removed; a consumer that is
// created again starts over.
func TestConsumerDeleted(t *testing.T) {
	w := newFeedWorld(t)
	js := w.nats.JetStream(t)
	w.applyFeed("all", "")
	w.applyConsumer("client", "all", "NATS", "")
	w.applyConsumer("latest", "all", "NATS", ", flow: {mode: Latest}")
	w.applyConsumer("stays", "all", "NATS", "")
	w.durable("OBS_hub", "client")
	w.durable("OBS_hub", "stays")
	w.durable("CONS_hub_latest", "latest")
	s := w.feedServer("feed-0")
	w.publish(js, "obs.hub.mag-1.raw", "1")
	c := w.natsClient("client")
	c.takes("OBS_hub", 1)
	w.awaitPosition("client")

	s.says("client", wire.ConsumerStatus{State: wire.StateFlowing})
	s.says("stays", wire.ConsumerStatus{State: wire.StateFlowing})
	w.remove(w.consumer("client"))
	w.remove(w.consumer("latest"))
	g := w.gateway("pool", "pool-0")
	reported := func(consumer string) error {
		_, err := g.get(wire.StatusBucket("hub"), wire.ConsumerStatusKey(consumer, s.pod))
		return err
	}
	w.vanishes("the report about it", func() error { return reported("client") }, jetstream.ErrKeyNotFound)
	if err := reported("stays"); err != nil {
		t.Error("the report about another:", err)
	}
	for _, stream := range []string{"OBS_hub", "NOTICE_hub"} {
		w.vanishes("durable of "+stream, func() error { _, err := js.Consumer(t.Context(), stream, w.durableName("client")); return err }, jetstream.ErrConsumerNotFound)
	}
	w.vanishes("the stream that is filled", func() error { _, err := js.Stream(t.Context(), "CONS_hub_latest"); return err }, jetstream.ErrStreamNotFound)
	for _, name := range []string{"client", "latest"} {
		w.vanishes("the entry of "+name, func() error { _, err := s.consumerEntry(name); return err }, jetstream.ErrKeyNotFound)
	}
	eventually(t, "its place is forgotten", func() error {
		if is := w.position("client"); is.UID != "" {
			return fmt.Errorf("%+v", is)
		}
		return nil
	})
	if _, err := s.consumerEntry("stays"); err != nil {
		t.Error(err)
	}
	w.durable("OBS_hub", "stays")
	if secret := w.awaitSecret("client-consumer", workload.KeyUserCreds); len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0].Kind != "FeedConsumer" {
		t.Errorf("nobody would collect the Secret: %+v", secret.OwnerReferences)
	}

	// With another mode it needs another stream, and the old durables are removed.
	w.applyConsumer("stays", "all", "NATS", ", flow: {mode: Sample, interval: 1s}")
	w.durable("CONS_hub_stays", "stays")
	w.vanishes("its durable", func() error { _, err := js.Consumer(t.Context(), "OBS_hub", w.durableName("stays")); return err }, jetstream.ErrConsumerNotFound)
}

// TestConsumerMadeAgain: a FeedConsumer that is recreated while no operator runs is a new one.
func TestConsumerMadeAgain(t *testing.T) {
	w := newFeedWorld(t)
	js := w.nats.JetStream(t)
	w.applyFeed("all", "")
	w.applyConsumer("client", "all", "NATS", "")
	w.durable("OBS_hub", "client")
	w.publish(js, "obs.hub.mag-1.raw", "1")
	w.natsClient("client").takes("OBS_hub", 1)
	w.awaitPosition("client")
	w.stop()
	w.remove(w.consumer("client"))
	secret := w.awaitSecret("client-consumer", workload.KeyUserCreds)
	w.remove(secret) // as the garbage collector would, which this API server lacks
	w.applyConsumer("client", "all", "NATS", "")
	w.start()
	uid := string(w.object("FeedConsumer", "client").GetUID())
	eventually(t, "a durable of its own", func() error {
		if is := w.durable("OBS_hub", "client").Config.Metadata[wire.ConsumerMetadataUID]; is != uid {
			return fmt.Errorf("it is of %s", is)
		}
		return nil
	})
	if got := w.natsClient("client").takes("OBS_hub", 1); !slices.Equal(got, []string{"1"}) {
		t.Errorf("%q", got)
	}
}
