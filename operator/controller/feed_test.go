// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

func (w *world) feed(name string) *v1alpha1.Feed {
	return &v1alpha1.Feed{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}}
}

// subjects reads what a stream holds, in order.
func (w *world) subjects(stream string) []string {
	w.t.Helper()
	s, err := w.nats.JetStream(w.t).Stream(w.t.Context(), stream)
	if err != nil {
		return nil
	}
	var all []string
	for n := s.CachedInfo().State.FirstSeq; n <= s.CachedInfo().State.LastSeq && n > 0; n++ {
		if m, err := s.GetMsg(w.t.Context(), n); err == nil {
			all = append(all, m.Subject+"="+string(m.Data))
		}
	}
	slices.Sort(all)
	return all
}

func (w *world) awaitSubjects(stream string, want ...string) {
	w.t.Helper()
	slices.Sort(want)
	eventually(w.t, "messages of stream "+stream, func() error {
		if diff := cmp.Diff(want, w.subjects(stream)); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// TestFeedsOverlap: two Feeds with streams of their own share an instrument, and a
// third is a selection.
func TestFeedsOverlap(t *testing.T) {
	w := newFeedWorld(t)
	js := w.nats.JetStream(t)
	w.publish(js, "notice.hub.mag-1", "before")
	w.applyFeed("all", "")
	w.applyFeed("everything", ", stream: {retention: 1h, maxSize: 8Mi}")
	w.applyFeed("fields", `, selector: {matchLabels: {group: fields}}, messageTypes: [Telemetry], channels: [raw], stream: {maxSize: 8Mi, storage: Memory}`)
	for _, name := range []string{"all", "everything", "fields"} {
		w.awaits("Feed", name, "Ready", "True/Ready")
	}
	w.publish(js, "notice.hub.camera", "frame")
	w.publish(js, "obs.hub.mag-1.raw", "1")
	w.publish(js, "obs.hub.mag-1.fast", "2")
	w.publish(js, "obs.hub.mag-2.raw", "3")
	w.awaitSubjects("FEED_hub_everything", "notice.hub.mag-1=before", "notice.hub.camera=frame", "obs.hub.mag-1.raw=1", "obs.hub.mag-1.fast=2", "obs.hub.mag-2.raw=3")
	w.awaitSubjects("FEED_hub_fields", "obs.hub.mag-1.raw=1", "obs.hub.mag-2.raw=3")

	// An instrument that comes to match brings what the base streams hold of it;
	// those that matched before bring nothing twice.
	w.publish(js, "obs.hub.mag-3.raw", "4")
	w.applyLabeled("mag-3", 30110, "fields")
	w.awaitSubjects("FEED_hub_fields", "obs.hub.mag-1.raw=1", "obs.hub.mag-2.raw=3", "obs.hub.mag-3.raw=4")
	w.publish(js, "obs.hub.mag-1.raw", "5")
	w.awaitSubjects("FEED_hub_fields", "obs.hub.mag-1.raw=1", "obs.hub.mag-2.raw=3", "obs.hub.mag-3.raw=4", "obs.hub.mag-1.raw=5")

	var s v1alpha1.FeedStatus
	eventually(t, "the Feed counts its instruments", func() error {
		if w.status("Feed", "fields", &s); ptr.Deref(s.InstrumentCount, 0) != 3 {
			return fmt.Errorf("%d instruments", ptr.Deref(s.InstrumentCount, 0))
		}
		return nil
	})
	g := w.gateway("pool", "pool-0")
	entry, err := g.get(wire.RegistryBucket("hub"), wire.RegistryFeedKey("fields"))
	if err != nil {
		t.Fatal(err)
	}
	is, err := wire.Decode[wire.FeedEntry](entry)
	if err != nil {
		t.Fatal(err)
	}
	want := wire.FeedEntry{UID: is.UID, Generation: 1, Revision: is.Revision, Feed: "fields", Telemetry: "FEED_hub_fields",
		Instruments: []string{"mag-1", "mag-2", "mag-3"}, Channels: []string{"raw"}}
	if diff := cmp.Diff(want, is); diff != "" {
		t.Errorf("entry of fields:\n%s", diff)
	}
	if c, err := g.complete(); err != nil || c.Feeds != 3 || c.Count != 4 {
		t.Errorf("marker %+v, %v", c, err)
	}
}

func TestFeedChangesInPlace(t *testing.T) {
	w := newFeedWorld(t)
	w.applyFeed("all", ", stream: {retention: 1h, maxSize: 8Mi}")
	w.awaits("Feed", "all", "Ready", "True/Ready")
	created := w.streamInfo("FEED_hub_all").Created
	w.applyFeed("all", ", stream: {retention: 2h, maxSize: 16Mi}, deletionPolicy: Delete")
	eventually(t, "the stream changes", func() error {
		if cfg := w.stream("FEED_hub_all"); cfg.MaxAge != 2*time.Hour || cfg.MaxBytes != 16<<20 || cfg.Discard != jetstream.DiscardOld {
			return fmt.Errorf("%+v", cfg)
		}
		return nil
	})
	w.awaits("Feed", "all", "Ready", "True/Ready")
	w.applyFeed("all", ", stream: {retention: 2h, maxSize: 16Mi, storage: Memory}, deletionPolicy: Delete")
	c := w.awaits("Feed", "all", "Accepted", "False/Immutable")
	says(t, c, "FEED_hub_all", "File", "Memory", "set spec.stream.storage back")
	w.awaits("Feed", "all", "Stalled", "True/Immutable")
	if info := w.streamInfo("FEED_hub_all"); info.Created != created || info.Config.Storage != jetstream.FileStorage {
		t.Errorf("the stream was made anew: %+v", info)
	}
	w.applyFeed("all", ", stream: {retention: 2h, maxSize: 16Mi}, deletionPolicy: Delete")
	w.awaits("Feed", "all", "Ready", "True/Ready")
	w.applyFeed("all", ", stream: {retention: 2h, maxSize: 16Mi, replicas: 5}, deletionPolicy: Delete") // of one server
	c = w.awaits("Feed", "all", "Ready", "False/StreamRefused")
	says(t, c, "FEED_hub_all", "replicas")
}

func (w *world) streamInfo(name string) *jetstream.StreamInfo {
	w.t.Helper()
	s, err := w.nats.JetStream(w.t).Stream(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	return s.CachedInfo()
}

func TestFeedsThatCannotBe(t *testing.T) {
	w := newFeedWorld(t)
	w.applyFeed("nothing", ", selector: {matchLabels: {group: riometers}}")
	c := w.awaits("Feed", "nothing", "InstrumentsSelected", "False/SelectsNothing")
	says(t, c, `Site "hub"`, "group=riometers", "label some")
	w.awaits("Feed", "nothing", "Ready", "True/Ready")
	w.applyFeed("near", ", selector: {matchExpressions: [{key: group, operator: Near, values: [a]}]}")
	c = w.awaits("Feed", "near", "Accepted", "False/InvalidSelector")
	says(t, c, "spec.selector", "Near")
	w.applyConsumer("client", "nowhere", "NATS", "")
	c = w.awaits("FeedConsumer", "client", "Accepted", "False/FeedNotFound")
	says(t, c, `Feed "nowhere" does not exist`, "create it")
	w.applyConsumer("viewer", "nothing", "WebSocket", "")
	w.awaits("FeedConsumer", "viewer", "InstrumentsSelected", "False/SelectsNothing")

	w.applyFeed("nowhere", ", stream: {maxSize: 1Mi}")
	w.awaits("FeedConsumer", "client", "Accepted", "True/Accepted")
	w.applyConsumer("client", "nowhere", "NATS", ", flow: {window: 5000}")
	c = w.awaits("FeedConsumer", "client", "Accepted", "False/InvalidFlow")
	says(t, c, "spec.flow.window is 5000", "FEED_hub_nowhere", "4096", "smaller window")

	// The label that was missing.
	w.applyLabeled("rio", 30120, "riometers")
	w.awaits("Feed", "nothing", "InstrumentsSelected", "True/Selected")
	w.awaits("FeedConsumer", "viewer", "InstrumentsSelected", "True/Selected")
}

// TestSelectsNothingYet: who selects nothing is given nothing, and what comes to match at
// once, from the base streams and from a stream of the Feed's own.
func TestSelectsNothingYet(t *testing.T) {
	w := newFeedWorld(t)
	js := w.nats.JetStream(t)
	for feed, spec := range map[string]string{"based": "", "own": ", stream: {maxSize: 8Mi}"} {
		w.applyFeed(feed, ", selector: {matchLabels: {group: riometers}}"+spec)
		w.applyConsumer("of-"+feed, feed, "NATS", "")
		w.applyConsumer("newest-of-"+feed, feed, "NATS", ", flow: {mode: Latest}")
	}
	w.applyFeed("all", "")
	w.applyConsumer("picky", "all", "NATS", ", filter: {instrumentNames: [rio]}")
	streams := map[string]string{"of-based": "OBS_hub", "of-own": "FEED_hub_own", "picky": "OBS_hub",
		"newest-of-based": "CONS_hub_newest-of-based", "newest-of-own": "CONS_hub_newest-of-own"}
	w.feedServer("feed-0").says("picky", wire.ConsumerStatus{State: wire.StateIdle})
	for consumer, stream := range streams {
		w.awaits("FeedConsumer", consumer, "InstrumentsSelected", "False/SelectsNothing")
		w.durable(stream, consumer)
	}
	w.publish(js, "obs.hub.mag-1.raw", "of another")
	for _, consumer := range []string{"of-based", "of-own", "picky"} {
		if n := w.durable(streams[consumer], consumer).NumPending; n != 0 {
			t.Errorf("%d messages wait for %s, which selects nothing", n, consumer)
		}
	}
	w.awaits("Feed", "own", "Ready", "True/Ready")
	w.awaits("Feed", "based", "Ready", "True/Ready")

	w.applyLabeled("rio", 30120, "riometers")
	w.publish(js, "obs.hub.rio.raw", "its own")
	for _, consumer := range []string{"of-based", "of-own", "picky"} {
		w.awaits("FeedConsumer", consumer, "InstrumentsSelected", "True/Selected")
		if got := w.natsClient(consumer).takes(streams[consumer], 1); !slices.Equal(got, []string{"its own"}) {
			t.Errorf("%s got %q", consumer, got)
		}
	}
}

// TestFeedDeleted: its own stream goes where it asked for that, even if it is deleted
// while no operator runs.
func TestFeedDeleted(t *testing.T) {
	w := newFeedWorld(t)
	w.applyFeed("kept", ", stream: {maxSize: 8Mi}")
	w.applyFeed("dropped", ", stream: {maxSize: 8Mi}, deletionPolicy: Delete")
	w.applyFeed("dropped-later", ", stream: {maxSize: 8Mi}, deletionPolicy: Delete")
	for _, name := range []string{"kept", "dropped", "dropped-later"} {
		w.awaits("Feed", name, "Ready", "True/Ready")
	}
	js := w.nats.JetStream(t)
	gone := func(stream string) {
		w.vanishes("stream "+stream, func() error { _, err := js.Stream(t.Context(), stream); return err }, jetstream.ErrStreamNotFound)
	}
	w.remove(w.feed("dropped"))
	gone("FEED_hub_dropped")
	w.remove(w.feed("kept"))
	g := w.gateway("pool", "pool-0")
	eventually(t, "the registry", func() error {
		if c, err := g.complete(); err != nil || c.Feeds != 1 {
			return fmt.Errorf("%+v, %w", c, err)
		}
		return nil
	})
	w.isGone("Feed", "dropped")
	w.isGone("Feed", "kept")
	w.stop()
	w.remove(w.feed("dropped-later"))
	w.start()
	w.isGone("Feed", "dropped-later")
	gone("FEED_hub_dropped-later")
	w.streamInfo("FEED_hub_kept") // there it is
	w.streamInfo("OBS_hub")
}

// TestFeedFigures: a selection and a stream of its own count the same messages.
func TestFeedFigures(t *testing.T) {
	w := newFeedWorld(t)
	js := w.nats.JetStream(t)
	w.publish(js, "notice.hub.camera", "a", "b")
	w.publish(js, "obs.hub.mag-1.raw", "c", "d", "e")
	w.publish(js, "obs.hub.mag-1.fast", "f")
	w.applyFeed("some", ", channels: [raw]")
	w.applyFeed("own", ", stream: {maxSize: 8Mi}, channels: [raw]")
	for _, name := range []string{"some", "own"} {
		var s v1alpha1.FeedStatus
		eventually(t, "figures of "+name, func() error {
			if w.status("Feed", name, &s); ptr.Deref(s.MessageCount, 0) != 5 || s.First == nil || s.Last == nil || ptr.Deref(s.MessagesPerMinute, 0) > 5 {
				return fmt.Errorf("%+v; its own stream holds %q", s, w.subjects("FEED_hub_own"))
			}
			return nil
		})
		if name == "some" && (s.EstimatedBytes == nil || *s.EstimatedBytes != 5) { // of a byte each
			t.Errorf("%s: %+v", name, s)
		}
		if (s.Bytes != nil) != (name == "own") || (s.EstimatedBytes != nil) != (name == "some") || s.Last.Time.Before(&s.First.Time) {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestStreamsDeletedByHand come back.
func TestStreamsDeletedByHand(t *testing.T) {
	w := newFeedWorld(t)
	js := w.nats.JetStream(t)
	w.applyFeed("own", ", stream: {maxSize: 8Mi}")
	w.applyConsumer("latest", "own", "NATS", ", flow: {mode: Latest}")
	w.awaits("Feed", "own", "Ready", "True/Ready")
	w.publish(js, "obs.hub.mag-1.raw", "1")
	w.awaitSubjects("FEED_hub_own", "obs.hub.mag-1.raw=1")
	w.durable("CONS_hub_latest", "latest")
	for _, name := range []string{"FEED_hub_own", "CONS_hub_latest"} {
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	w.awaitSubjects("FEED_hub_own", "obs.hub.mag-1.raw=1") // from the base stream
	w.durable("CONS_hub_latest", "latest")
	w.nats.Stop()
	w.nats.Start() // streams in memory are gone
	w.durable("CONS_hub_latest", "latest")
	cfg := w.stream("CONS_hub_latest")
	if cfg.Storage != jetstream.MemoryStorage || cfg.MaxMsgsPerSubject != 1 || cfg.MaxBytes != 64<<20 || !slices.Equal(cfg.Subjects, []string{"live.hub.latest.>"}) {
		t.Errorf("%+v", cfg)
	}
}
