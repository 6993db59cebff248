// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// taker is a consumer that takes whatever its credentials give it, all the time.
type taker struct {
	*natsClient
	mu  sync.Mutex
	got []string
	// either: it is no matter whether that is given.
	either string
}

// forgets has it be no matter whether a message is given.
func (c *taker) forgets(message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.either = message
}

// takesAll begins to take all of a consumer's messages of some streams.
func (w *world) takesAll(consumer string, streams ...string) *taker {
	w.t.Helper()
	t := &taker{natsClient: w.natsClient(consumer)}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, stream := range streams {
		durable, err := t.js.Consumer(w.t.Context(), stream, t.durable)
		if err != nil {
			w.t.Fatal(err)
		}
		all.Go(func() {
			for ctx.Err() == nil {
				batch, err := durable.Fetch(10, jetstream.FetchMaxWait(time.Second))
				if err != nil {
					continue
				}
				for m := range batch.Messages() {
					t.mu.Lock()
					t.got = append(t.got, string(m.Data()))
					t.mu.Unlock()
					_ = m.Ack()
				}
			}
		})
	}
	w.t.Cleanup(func() { cancel(); all.Wait() })
	return t
}

// has waits until the consumer was given exactly these, in any order.
func (c *taker) has(want ...string) {
	c.world.t.Helper()
	slices.Sort(want)
	eventually(c.world.t, "what "+c.durable+" is given", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		got := slices.DeleteFunc(slices.Sorted(slices.Values(c.got)), func(m string) bool { return m == c.either && m != "" })
		if !slices.Equal(got, want) {
			return fmt.Errorf("%q, want %q", got, want)
		}
		return nil
	})
}

// whenWritten publishes what a gateway would at the very moment at which it can know an
// entry of the registry that suits it. The returned function waits for that.
func (w *world) whenWritten(key string, suits func(value []byte) bool, js jetstream.JetStream, messages map[string]string) (wait func()) {
	w.t.Helper()
	kv, err := js.KeyValue(w.t.Context(), wire.RegistryBucket("hub"))
	if err != nil {
		w.t.Fatal(err)
	}
	watch, err := kv.Watch(w.t.Context(), key, jetstream.UpdatesOnly())
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		for e := range watch.Updates() {
			if e == nil || e.Operation() != jetstream.KeyValuePut || !suits(e.Value()) {
				continue
			}
			var err error
			for subject, text := range messages {
				_, published := js.Publish(w.t.Context(), subject, []byte(text))
				err = errors.Join(err, published)
			}
			done <- err
			return
		}
		done <- errors.New("the registry is not watched any more")
	}()
	return func() {
		w.t.Helper()
		select {
		case err := <-done:
			if err != nil {
				w.t.Fatal(err)
			}
		case <-time.After(patience):
			w.t.Fatalf("nothing was written under %s", key)
		}
	}
}

func isClosed(value []byte) bool {
	e, err := wire.Decode[wire.InstrumentEntry](value)
	return err == nil && e.Access.Closed()
}

func (w *world) hasFilters(consumer, stream string, want ...string) {
	w.t.Helper()
	eventually(w.t, "the durable of "+consumer, func() error {
		if is := w.durable(stream, consumer).Config; !slices.Equal(append(is.FilterSubjects, nonEmpty(is.FilterSubject)...), want) {
			return fmt.Errorf("it has %q %q", is.FilterSubject, is.FilterSubjects)
		}
		return nil
	})
}

// setAccess changes who may read an Instrument or a Feed.
func (w *world) setAccess(o client.Object, access string) {
	w.t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"access":`+access+`}}`))
	if err := w.Patch(w.t.Context(), o, patch); err != nil {
		w.t.Fatal(err)
	}
}

// revisions are those of all keys of the registry.
func (w *world) revisions() map[string]uint64 {
	w.t.Helper()
	kv, err := w.nats.JetStream(w.t).KeyValue(w.t.Context(), wire.RegistryBucket("hub"))
	if err != nil {
		w.t.Fatal(err)
	}
	keys, err := kv.Keys(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	all := map[string]uint64{}
	for _, key := range keys {
		if e, err := kv.Get(w.t.Context(), key); err == nil {
			all[key] = e.Revision()
		}
	}
	return all
}

func (w *world) isProgrammed(name string) {
	w.t.Helper()
	eventually(w.t, "the entry of "+name, func() error {
		if w.revisions()[wire.RegistryInstrumentKey(name)] == 0 {
			return errors.New("there is none")
		}
		return nil
	})
}

// applyRestricted makes an Instrument that is restricted from the first.
func (w *world) applyRestricted(name string, port int) {
	w.t.Helper()
	w.apply(fmt.Sprintf(`
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: %s}
spec: {siteRef: {name: hub}, type: AllSkyCamera, access: {live: Restricted}, listeners: [{name: tcp, protocol: TCP, port: %d}]}
`, name, port))
}

const (
	wild  = "obs.hub.*.>"
	cam   = "obs.hub.camera.>"
	mags  = "obs.hub.mag-1.> obs.hub.mag-2.>"
	named = cam + " " + mags
)

// TestWildcards: who selects everything, and may read it, selects by wildcard, and another
// Instrument changes nothing for it. Before anything flows that it may not read, it selects
// by name.
func TestWildcards(t *testing.T) {
	w := newFeedWorld(t)
	js := w.nats.JetStream(t)
	w.applyFeed("all", "")
	w.applyConsumer("client", "all", "NATS", "")
	w.hasFilters("client", "OBS_hub", wild)
	w.hasFilters("client", "NOTICE_hub", "gap.hub.client", "health.hub.surge", "notice.hub.*")
	c := w.takesAll("client", "OBS_hub", "NOTICE_hub")
	w.publish(js, "obs.hub.mag-1.raw", "open")
	c.has("open")

	// Another Instrument adds one entry, and changes no other.
	before, durable := w.revisions(), w.durable("OBS_hub", "client")
	w.applyLabeled("mag-3", 30110, "fields")
	w.isProgrammed("mag-3")
	eventually(t, "the registry is complete", func() error {
		if w.revisions()[wire.RegistryCompleteKey] == before[wire.RegistryCompleteKey] {
			return errors.New("its marker is the one from before")
		}
		return nil
	})
	w.publish(js, "obs.hub.mag-3.raw", "another")
	c.has("open", "another")
	var changed []string
	for key, revision := range w.revisions() {
		if before[key] != revision {
			changed = append(changed, key)
		}
	}
	slices.Sort(changed)
	if want := []string{wire.RegistryCompleteKey, wire.RegistryInstrumentKey("mag-3")}; !slices.Equal(changed, want) {
		t.Errorf("written: %q, want %q", changed, want)
	}
	if is := w.durable("OBS_hub", "client"); !is.Created.Equal(durable.Created) || !slices.Equal(is.Config.FilterSubjects, durable.Config.FilterSubjects) {
		t.Errorf("the durable was %+v, is %+v", durable.Config, is.Config)
	}
	w.remove(w.instrument("mag-3"))
	w.vanishes("its entry", func() error { return w.entryOf("instrument.mag-3") }, jetstream.ErrKeyNotFound)
	w.hasFilters("client", "OBS_hub", wild) // what it sent is open to all

	// One that is closed from the first.
	wait := w.whenWritten(wire.RegistryInstrumentKey("secret"), isClosed, js,
		map[string]string{"obs.hub.secret.raw": "secret", "notice.hub.secret": "secret notice"})
	w.applyRestricted("secret", 30111)
	wait()
	w.hasFilters("client", "OBS_hub", strings.Fields(named)...)
	w.publish(js, "obs.hub.mag-1.raw", "beside it")
	c.has("open", "another", "beside it")

	// It is deleted, and a spool is drained: a consumer that begins at the beginning does not get it either.
	w.remove(w.instrument("secret"))
	w.vanishes("its entry", func() error { return w.entryOf("instrument.secret") }, jetstream.ErrKeyNotFound)
	w.publish(js, "obs.hub.secret.raw", "late secret")
	w.applyConsumer("later", "all", "NATS", "")
	w.hasFilters("later", "OBS_hub", strings.Fields(named)...)
	later := w.takesAll("later", "OBS_hub", "NOTICE_hub")
	later.has("open", "beside it")
	w.stop()
	w.start()
	w.publish(js, "obs.hub.mag-1.raw", "after a restart")
	w.applyConsumer("latest", "all", "NATS", "")
	w.hasFilters("latest", "OBS_hub", strings.Fields(named)...)
	later.has("open", "beside it", "after a restart")
	c.has("open", "another", "beside it", "after a restart")

	// One of its name that is open opens it.
	w.applyLabeled("secret", 30111, "fields")
	w.hasFilters("client", "OBS_hub", wild)
	w.vanishes("what was remembered", func() error { return w.entryOf("closed.secret") }, jetstream.ErrKeyNotFound)
	w.publish(js, "obs.hub.secret.raw", "no secret")
	c.has("open", "another", "beside it", "after a restart", "no secret")
}

func (w *world) entryOf(key string) error {
	kv, err := w.nats.JetStream(w.t).KeyValue(w.t.Context(), wire.RegistryBucket("hub"))
	if err == nil {
		_, err = kv.Get(w.t.Context(), key)
	}
	return err
}

// TestWildcardsAreUndone: an Instrument or a Feed that is closed is closed to consumers that select by wildcard before any of them can know
// that it is closed, and to one whose Feed is gone meanwhile.
func TestWildcardsAreUndone(t *testing.T) {
	w := newFeedWorld(t)
	js := w.nats.JetStream(t)
	w.applyFeed("all", "")
	w.applyFeed("other", "")
	w.applyConsumer("client", "all", "NATS", "")
	w.applyConsumer("orphan", "other", "NATS", "")
	w.hasFilters("client", "OBS_hub", wild)
	w.hasFilters("orphan", "OBS_hub", wild)
	c, orphan := w.takesAll("client", "OBS_hub", "NOTICE_hub"), w.takesAll("orphan", "OBS_hub", "NOTICE_hub")
	orphaned := func() {
		t.Helper()
		w.remove(w.feed("other"))
		w.awaits("FeedConsumer", "orphan", "Accepted", "False/FeedNotFound")
		eventually(t, "its durable gives nothing", func() error {
			d, err := js.Consumer(t.Context(), "OBS_hub", w.durableName("orphan"))
			if err == nil && !d.CachedInfo().Paused {
				err = errors.New("it does")
			}
			return err
		})
	}
	orphaned()

	got := map[string][]string{"client": nil, "orphan": nil}
	gives := func(text string, to ...string) {
		t.Helper()
		for _, consumer := range to {
			got[consumer] = append(got[consumer], text)
		}
		c.has(got["client"]...)
		orphan.has(got["orphan"]...)
	}
	for i, access := range []string{`{"live":"Restricted"}`, `{"embargo":"1h"}`} {
		w.publish(js, "obs.hub.camera.raw", fmt.Sprint("open ", i))
		gives(fmt.Sprint("open ", i), "client")
		wait := w.whenWritten(wire.RegistryInstrumentKey("camera"), isClosed, js, map[string]string{"obs.hub.camera.raw": fmt.Sprint("secret ", i)})
		w.setAccess(w.instrument("camera"), access)
		wait()
		for _, consumer := range []string{"client", "orphan"} {
			w.hasFilters(consumer, "OBS_hub", strings.Fields(mags)...)
		}
		w.publish(js, "obs.hub.mag-1.raw", fmt.Sprint("beside ", i))
		gives(fmt.Sprint("beside ", i), "client")
		w.applyFeed("other", "") // so that the orphan is planned again
		gives(fmt.Sprint("beside ", i), "orphan")
		w.setAccess(w.instrument("camera"), `{"live":null,"embargo":null}`)
		for _, consumer := range []string{"client", "orphan"} {
			w.hasFilters(consumer, "OBS_hub", wild)
		}
		orphaned()
	}

	// A Feed that narrows.
	wait := w.whenWritten(wire.RegistryFeedKey("all"), func(value []byte) bool {
		e, err := wire.Decode[wire.FeedEntry](value)
		return err == nil && e.Live == wire.AccessRestricted
	}, js, map[string]string{"obs.hub.mag-2.raw": "narrowed"})
	w.setAccess(w.feed("all"), `{"live":"Restricted"}`)
	wait()
	w.hasFilters("client", "OBS_hub", "obs.hub._._")
	c.has(got["client"]...)
	w.setAccess(w.feed("all"), `null`)
	w.hasFilters("client", "OBS_hub", wild)
	w.publish(js, "obs.hub.mag-2.raw", "open again")
	c.forgets("narrowed") // JetStream says whether a consumer whose filter matched nothing has passed it
	gives("open again", "client")
	w.applyFeed("other", "")
	got["orphan"] = append(got["orphan"], "narrowed")
	gives("open again", "orphan")
}

// TestWildcardsOfAFeedWithAStream: a Feed's own stream takes what comes by wildcard, no matter who may read it, and consumers of it are
// given what they may read.
func TestWildcardsOfAFeedWithAStream(t *testing.T) {
	w := newFeedWorld(t)
	js := w.nats.JetStream(t)
	w.applyFeed("own", ", stream: {maxSize: 1Mi}")
	w.applyConsumer("client", "own", "NATS", "")
	w.hasFilters("client", "FEED_hub_own", "notice.hub.*", wild)
	c := w.takesAll("client", "FEED_hub_own")
	wait := w.whenWritten(wire.RegistryInstrumentKey("secret"), isClosed, js, map[string]string{"obs.hub.secret.raw": "secret"})
	w.applyRestricted("secret", 30111)
	wait()
	w.publish(js, "obs.hub.mag-1.raw", "open")
	w.awaitSubjects("FEED_hub_own", "obs.hub.mag-1.raw=open", "obs.hub.secret.raw=secret")
	c.has("open")
	if got, want := sourced(w.streamInfo("FEED_hub_own")), []string{"NOTICE_hub notice.hub.*", "OBS_hub obs.hub.*.>"}; !slices.Equal(got, want) {
		t.Errorf("sources: %q, want %q", got, want)
	}
	var feed v1alpha1.Feed
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(w.feed("own")), &feed); err != nil {
		t.Fatal(err)
	}

	// By name it continues from its position. By wildcard it also takes what it lacks.
	selects := func(selector metav1.LabelSelector, sources ...string) {
		t.Helper()
		was := feed.DeepCopy()
		feed.Spec.Selector = selector
		if err := w.Patch(t.Context(), &feed, client.MergeFrom(was)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the sources", func() error {
			if got := sourced(w.streamInfo("FEED_hub_own")); !slices.Equal(got, sources) {
				return fmt.Errorf("%q", got)
			}
			return nil
		})
	}
	selects(metav1.LabelSelector{MatchLabels: map[string]string{"group": "fields"}},
		"NOTICE_hub notice.hub.mag-1", "NOTICE_hub notice.hub.mag-2", "OBS_hub obs.hub.mag-1.>", "OBS_hub obs.hub.mag-2.>")
	for _, m := range [][2]string{{"obs.hub.mag-1.raw", "by name"}, {"obs.hub.camera.raw", "not selected"}} {
		if _, err := js.Publish(t.Context(), m[0], []byte(m[1]), jetstream.WithMsgID(m[1])); err != nil {
			t.Fatal(err)
		}
	}
	w.awaitSubjects("FEED_hub_own", "obs.hub.mag-1.raw=open", "obs.hub.secret.raw=secret", "obs.hub.mag-1.raw=by name")
	selects(metav1.LabelSelector{}, "NOTICE_hub notice.hub.*", "OBS_hub obs.hub.*.>")
	w.publish(js, "obs.hub.mag-1.raw", "by wildcard")
	w.awaitSubjects("FEED_hub_own", "obs.hub.mag-1.raw=open", "obs.hub.secret.raw=secret", "obs.hub.mag-1.raw=by name",
		"obs.hub.camera.raw=not selected", "obs.hub.mag-1.raw=by wildcard")
}

func sourced(info *jetstream.StreamInfo) []string {
	all := map[string]bool{}
	for _, s := range info.Config.Sources {
		all[s.Name+" "+s.FilterSubject] = true
	}
	return slices.Sorted(maps.Keys(all))
}
