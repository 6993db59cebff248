// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/workload"
)

// TestCredentialsAreRevoked: when the Secret is deleted, another one is written that continues from the consumer's position, and the old
// credentials give no access.
func TestCredentialsAreRevoked(t *testing.T) {
	w := newFeedWorld(t)
	js := w.nats.JetStream(t)
	w.applyFeed("all", "")
	w.applyConsumer("client", "all", "NATS", "")
	w.applyConsumer("latest", "all", "NATS", ", flow: {mode: Latest}")
	w.durable("OBS_hub", "client")
	w.durable("NOTICE_hub", "client")
	w.durable("CONS_hub_latest", "latest")
	s := w.feedServer("feed-0")
	w.publish(js, "obs.hub.mag-1.raw", "1", "2", "3")
	w.publish(s.js, "live.hub.latest.obs.hub.mag-1.raw", "1")
	old, oldLatest := w.natsClient("client"), w.natsClient("latest")
	if got := old.takes("OBS_hub", 2); !slices.Equal(got, []string{"1", "2"}) {
		t.Fatalf("%q", got)
	}
	oldLatest.takes("CONS_hub_latest", 1)
	oldSecret := w.awaitSecret("client-consumer", workload.KeyUserCreds)

	renew := func(consumer, was string) {
		w.remove(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: consumer + "-consumer", Namespace: w.namespace}})
		eventually(t, "other credentials of "+consumer, func() error {
			if is := w.durableName(consumer); is == was {
				return errors.New("the Secret names the same durables")
			}
			return nil
		})
	}
	renew("client", old.durable)
	renew("latest", oldLatest.durable)
	for stream, gone := range map[string]string{"OBS_hub": old.durable, "NOTICE_hub": old.durable, "CONS_hub_latest": oldLatest.durable} {
		w.vanishes("the old durable of "+stream, func() error { _, err := js.Consumer(t.Context(), stream, gone); return err }, jetstream.ErrConsumerNotFound)
	}
	for consumer, streams := range map[string][]string{"client": {"OBS_hub", "NOTICE_hub"}, "latest": {"CONS_hub_latest"}} {
		for _, stream := range streams {
			w.durable(stream, consumer)
		}
	}
	eventually(t, "feed servers know which", func() error {
		if e, err := s.consumerEntry("client"); err != nil || e.Durable != w.durableName("client") {
			return fmt.Errorf("%q, %v", e.Durable, err)
		}
		return nil
	})

	// Its place is kept, and what came after that comes.
	w.publish(js, "obs.hub.mag-1.raw", "4")
	if got := w.natsClient("client").takes("OBS_hub", 2); !slices.Equal(got, []string{"3", "4"}) {
		t.Errorf("the new credentials: %q", got)
	}
	if after := w.durable("OBS_hub", "client").Config.Metadata[wire.ConsumerMetadataAfter]; after != "2" {
		t.Errorf("acknowledged up to %q", after)
	}
	info := w.durable("CONS_hub_latest", "latest")
	if info.NumPending != 0 {
		t.Errorf("%d messages come again", info.NumPending)
	}
	w.publish(js, "obs.hub.mag-1.raw", "5")

	// The old credentials, and who is connected by them still, get nothing of it.
	again := w.connectAs(oldSecret)
	for what, c := range map[string]*natsClient{"connected": old, "connected again": again} {
		c.opensNothing(what, "OBS_hub", w.durableName("client"), string(w.awaitSecret("client-consumer", workload.KeyUserCreds).Data[bus.KeyInboxPrefix]))
	}
	if got := w.natsClient("client").takes("OBS_hub", 1); !slices.Equal(got, []string{"5"}) {
		t.Errorf("the new credentials: %q", got)
	}

	// The old credentials do not open what a recreated FeedConsumer has either.
	second := w.natsClient("client")
	w.remove(w.consumer("client"))
	w.vanishes("its durable", func() error { _, err := js.Consumer(t.Context(), "OBS_hub", second.durable); return err }, jetstream.ErrConsumerNotFound)
	w.remove(w.awaitSecret("client-consumer", workload.KeyUserCreds)) // as the garbage collector would
	w.applyConsumer("client", "all", "NATS", "")
	if info := w.durable("OBS_hub", "client"); info.Name == second.durable || info.Name == old.durable {
		t.Errorf("it has durable %s again", info.Name)
	}
	inbox := string(w.awaitSecret("client-consumer", workload.KeyUserCreds).Data[bus.KeyInboxPrefix])
	old.opensNothing("the first", "OBS_hub", w.durableName("client"), inbox)
	second.opensNothing("the second", "OBS_hub", w.durableName("client"), inbox)
	if got := w.natsClient("client").takes("OBS_hub", 5); !slices.Equal(got, []string{"1", "2", "3", "4", "5"}) {
		t.Errorf("one that is made anew begins at the beginning: %q", got)
	}
}

// TestCredentialsAreWithheld: where no other Secret is written, the old credentials give
// nothing, and the place is kept.
func TestCredentialsAreWithheld(t *testing.T) {
	w := newFeedWorld(t)
	js := w.nats.JetStream(t)
	w.applyFeed("own", ", stream: {maxSize: 1Mi}")
	w.applyConsumer("client", "own", "NATS", "")
	w.applyConsumer("latest", "own", "NATS", ", flow: {mode: Latest}")
	w.durable("FEED_hub_own", "client")
	w.durable("CONS_hub_latest", "latest")
	w.publish(js, "obs.hub.mag-1.raw", "1", "2")
	c := w.natsClient("client")
	if got := c.takes("FEED_hub_own", 1); !slices.Equal(got, []string{"1"}) {
		t.Fatalf("%q", got)
	}
	w.applyConsumer("client", "own", "NATS", ", flow: {window: 5000}") // more than the stream holds
	w.awaits("FeedConsumer", "client", "Accepted", "False/InvalidFlow")
	w.remove(w.awaitSecret("client-consumer", workload.KeyUserCreds))
	eventually(t, "its durable gives nothing", func() error {
		d, err := js.Consumer(t.Context(), "FEED_hub_own", c.durable)
		if err == nil && !d.CachedInfo().Paused {
			err = errors.New("it gives what it has")
		}
		return err
	})
	old, err := c.js.Consumer(t.Context(), "FEED_hub_own", c.durable)
	if err != nil {
		t.Fatal(err)
	}
	batch, err := old.Fetch(1, jetstream.FetchMaxWait(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for m := range batch.Messages() {
		t.Errorf("the old credentials give %q", m.Data())
	}
	if info := w.durable("CONS_hub_latest", "latest"); info.Paused {
		t.Error("another one's gives nothing")
	}
	w.applyConsumer("client", "own", "NATS", "")
	w.durable("FEED_hub_own", "client")
	if got := w.natsClient("client").takes("FEED_hub_own", 1); !slices.Equal(got, []string{"2"}) {
		t.Errorf("the new credentials: %q", got)
	}
	w.vanishes("the old durable", func() error { _, err := js.Consumer(t.Context(), "FEED_hub_own", c.durable); return err }, jetstream.ErrConsumerNotFound)
}

// TestConsumerWithoutItsFeed: it is given nothing, and continues from its position once the Feed is declared again.
func TestConsumerWithoutItsFeed(t *testing.T) {
	w := newFeedWorld(t)
	js := w.nats.JetStream(t)
	w.applyFeed("all", "")
	w.applyConsumer("client", "all", "NATS", "")
	w.durable("OBS_hub", "client")
	w.publish(js, "obs.hub.mag-1.raw", "1", "2")
	c := w.natsClient("client")
	if got := c.takes("OBS_hub", 1); !slices.Equal(got, []string{"1"}) {
		t.Fatalf("%q", got)
	}
	gives := func(want bool) {
		t.Helper()
		eventually(t, fmt.Sprintf("its durable gives what it has: %v", want), func() error {
			d, err := js.Consumer(t.Context(), "OBS_hub", c.durable)
			if err == nil && d.CachedInfo().Paused == want {
				err = errors.New("it does not")
			}
			return err
		})
	}
	w.remove(w.object("Feed", "all"))
	gives(false)
	w.applyFeed("all", "")
	gives(true)
	if got := c.takes("OBS_hub", 1); !slices.Equal(got, []string{"2"}) {
		t.Errorf("with the Feed again: %q", got)
	}
}

// TestCredentialsStay: credentials that an earlier operator issued and that were not changed stay as they are.
func TestCredentialsStay(t *testing.T) {
	w := newFeedWorld(t)
	w.applyFeed("all", "")
	w.applyConsumer("client", "all", "NATS", "")
	w.durable("OBS_hub", "client")
	before := w.awaitSecret("client-consumer", workload.KeyUserCreds)
	w.stop()
	w.start()
	w.applyConsumer("client", "all", "NATS", ", flow: {window: 7}")
	eventually(t, "the change", func() error {
		if is := w.durable("OBS_hub", "client").Config.MaxAckPending; is != 7 {
			return fmt.Errorf("a window of %d", is)
		}
		return nil
	})
	if after := w.awaitSecret("client-consumer", workload.KeyUserCreds); !slices.Equal(after.Data[workload.KeyUserCreds], before.Data[workload.KeyUserCreds]) ||
		!slices.Equal(after.Data[bus.KeyDurable], before.Data[bus.KeyDurable]) {
		t.Error("the credentials are others")
	}
}

// opensNothing tries what its credentials opened once, and what others open now.
func (c *natsClient) opensNothing(what, stream, durable, inbox string) {
	c.t.Helper()
	refused := make(chan error, 100)
	c.nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err })
	defer c.nc.SetErrorHandler(nil)
	m, err := c.nc.Request(wire.ConsumerAPI+".CONSUMER.MSG.NEXT."+stream+"."+c.durable, []byte(`{"batch":1,"no_wait":true}`), 2*time.Second)
	if err == nil && (m.Header.Get("Status") == "" || len(m.Data) > 0) {
		c.t.Errorf("%s: the old durable gives %q %v", what, m.Data, m.Header)
	}
	for _, subject := range []string{wire.ConsumerAPI + ".CONSUMER.MSG.NEXT." + stream + "." + durable, wire.ConsumerAPI + ".CONSUMER.INFO." + stream + "." + durable,
		"$JS.ACK." + stream + "." + durable + ".1.1.1.1.0"} {
		if err := c.nc.PublishRequest(subject, c.nc.NewInbox(), nil); err != nil {
			c.t.Fatal(err)
		}
		select {
		case err := <-refused:
			if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), `"`+subject+`"`) {
				c.t.Errorf("%s: %s: %v", what, subject, err)
			}
		case <-time.After(patience):
			c.t.Errorf("%s: the server says nothing against %s", what, subject)
		}
	}
	if _, err := c.nc.SubscribeSync(inbox + ".>"); err != nil {
		c.t.Fatal(err)
	}
	select {
	case err := <-refused:
		if !errors.Is(err, nats.ErrPermissionViolation) {
			c.t.Errorf("%s: the inbox: %v", what, err)
		}
	case <-time.After(patience):
		c.t.Errorf("%s: it may listen to %s", what, inbox)
	}
}
