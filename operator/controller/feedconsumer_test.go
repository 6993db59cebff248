// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/bus"
)

func (w *world) consumer(name string) *v1alpha1.FeedConsumer {
	return &v1alpha1.FeedConsumer{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}}
}

// consumerEntry reads a FeedConsumer's entry as the feed servers do.
func (s *feedServer) consumerEntry(name string) (wire.ConsumerEntry, error) {
	kv, err := s.js.KeyValue(s.t.Context(), wire.RegistryBucket("hub"))
	if err != nil {
		return wire.ConsumerEntry{}, err
	}
	value, err := kv.Get(s.t.Context(), wire.RegistryConsumerKey(name))
	if err != nil {
		return wire.ConsumerEntry{}, err
	}
	return wire.Decode[wire.ConsumerEntry](value.Value())
}

// TestConsumerFromApplyToMessages: a Feed and its consumers, applied together, and a
// NATS client that has the Secret and nothing else.
func TestConsumerFromApplyToMessages(t *testing.T) {
	w := newFeedWorld(t)
	js := w.nats.JetStream(t)
	w.applyConsumer("client", "all", "NATS", ", flow: {window: 7}, filter: {instrumentNames: [camera, mag-1]}")
	w.applyConsumer("viewer", "all", "WebSocket", "")
	w.applyFeed("all", "")
	w.awaits("Feed", "all", "Ready", "True/Ready")
	w.awaits("FeedConsumer", "client", "Ready", "False/NotReported")
	w.awaits("FeedServer", "hub", "Ready", "False/Progressing")
	w.awaits("Site", "hub", "FeedServerAvailable", "False/Progressing")
	w.rollOut()
	w.awaits("FeedServer", "hub", "Ready", "True/Ready")
	w.awaits("Site", "hub", "FeedServerAvailable", "True/Available")
	w.awaits("Site", "hub", "Ready", "True/Ready")
	s := w.feedServer("feed-0")
	s.follow()
	w.awaits("FeedConsumer", "client", "Ready", "True/Ready")
	w.awaits("FeedConsumer", "viewer", "Ready", "True/Ready")

	// Check the entries that feed servers read.
	entry, err := s.consumerEntry("viewer")
	if err != nil {
		t.Fatal(err)
	}
	secret := w.awaitSecret("viewer-consumer", bus.KeyToken)
	if len(entry.Tokens) != 1 || !entry.Tokens[0].Matches(string(secret.Data[bus.KeyToken])) || entry.MaxConnections != 1000 {
		t.Errorf("entry of viewer: %+v", entry)
	}
	if url := string(secret.Data[bus.KeyURL]); url != "ws://hub-feed-server."+w.namespace+".svc/feeds/all/ws?consumer=viewer" {
		t.Errorf("url %q", url)
	}
	if entry, err := s.consumerEntry("client"); err != nil || len(entry.Tokens) != 0 || !slices.Equal(entry.Instruments, []string{"camera", "mag-1"}) {
		t.Errorf("entry of client: %+v, %v", entry, err)
	}

	// Messages: only those that its filter selects, and its gap records.
	w.publish(js, "notice.hub.camera", "frame")
	w.publish(js, "notice.hub.mag-2", "not its own")
	w.publish(js, "obs.hub.mag-1.raw", "1", "2")
	w.publish(js, "gap.hub.viewer", "another's gap")
	w.publish(s.js, "gap.hub.client", "its gap")
	c := w.natsClient("client")
	if diff := cmp.Diff([]string{"NOTICE_hub", "OBS_hub"}, c.streams); diff != "" {
		t.Fatal(diff)
	}
	if got := c.takes("NOTICE_hub", 2); !slices.Equal(got, []string{"frame", "its gap"}) {
		t.Errorf("from NOTICE_hub: %q", got)
	}
	if got := c.takes("OBS_hub", 2); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("from OBS_hub: %q", got)
	}
	if info := w.durable("OBS_hub", "client"); info.Config.MaxAckPending != 7 || info.NumPending != 0 || info.Config.AckPolicy != jetstream.AckExplicitPolicy {
		t.Errorf("durable: %+v", info)
	}
	c.mayNot()

	// A filter that changes keeps the place.
	w.applyConsumer("client", "all", "NATS", ", flow: {window: 9}, filter: {instrumentNames: [mag-1, mag-2]}")
	eventually(t, "the durable follows", func() error {
		if info := w.durable("OBS_hub", "client"); info.Config.MaxAckPending != 9 || !slices.Equal(info.Config.FilterSubjects, []string{"obs.hub.mag-1.>", "obs.hub.mag-2.>"}) {
			return fmt.Errorf("%+v", info.Config)
		}
		return nil
	})
	w.publish(js, "obs.hub.mag-2.raw", "3")
	if got := c.takes("OBS_hub", 1); !slices.Equal(got, []string{"3"}) {
		t.Errorf("after the change: %q", got)
	}
}

// mayNot tries what the Secret must not open: the server says of each that it is
// refused.
func (c *natsClient) mayNot() {
	c.t.Helper()
	refused := make(chan error, 100)
	c.nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err })
	defer c.nc.SetErrorHandler(nil)
	expect := func(what, subject string) {
		c.t.Helper()
		select {
		case err := <-refused:
			if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), `"`+subject+`"`) {
				c.t.Errorf("a consumer may %s: the server says %v", what, err)
			}
		case <-time.After(patience):
			c.t.Errorf("a consumer may %s: the server says nothing against %s", what, subject)
		}
	}
	type try struct {
		subject string
		body    any
	}
	request := func(subject string, body any) try { return try{subject, body} }
	for what, try := range map[string]try{
		"see a stream":                   request("$JS.API.STREAM.INFO.OBS_hub", nil),
		"see the account":                request("$JS.API.INFO", nil),
		"list streams":                   request("$JS.API.STREAM.NAMES", nil),
		"read a stream directly":         request("$JS.API.DIRECT.GET.OBS_hub", map[string]int{"seq": 1}),
		"read a message by its sequence": request("$JS.API.STREAM.MSG.GET.OBS_hub", map[string]int{"seq": 1}),
		"make a consumer": request("$JS.API.CONSUMER.CREATE.OBS_hub.mine", map[string]any{"stream_name": "OBS_hub",
			"config": map[string]any{"name": "mine", "ack_policy": "none"}}),
		"change its own durable": request("$JS.API.CONSUMER.CREATE.OBS_hub."+c.durable, map[string]any{"stream_name": "OBS_hub",
			"config": map[string]any{"durable_name": c.durable, "ack_policy": "explicit"}}),
		"pull past the account":         request("$JS.API.CONSUMER.MSG.NEXT.OBS_hub."+c.durable, nil),
		"purge through the account":     request(wire.ConsumerAPI+".STREAM.PURGE.OBS_hub", nil),
		"delete its own durable":        request("$JS.API.CONSUMER.DELETE.OBS_hub."+c.durable, nil),
		"pull from another's durable":   request(wire.ConsumerAPI+".CONSUMER.MSG.NEXT.OBS_hub.c_viewer", nil),
		"see another's durable":         request(wire.ConsumerAPI+".CONSUMER.INFO.OBS_hub.c_viewer", nil),
		"publish telemetry":             request("obs.hub.camera.raw", nil),
		"publish a notice":              request("notice.hub.camera", nil),
		"publish a gap of its own":      request("gap.hub.client", nil),
		"write the registry":            request("$KV.REGISTRY_hub.consumer.client", nil),
		"purge a stream":                request("$JS.API.STREAM.PURGE.OBS_hub", nil),
		"acknowledge for another":       request("$JS.ACK.OBS_hub.c_viewer.1.1.1.1.0", nil),
		"ask a feed server's own inbox": request("_INBOX_hub-feed-server_hub.x", nil),
	} {
		data, err := json.Marshal(try.body)
		if err == nil {
			err = c.nc.PublishRequest(try.subject, c.nc.NewInbox(), data)
		}
		if err != nil {
			c.t.Fatal(err)
		}
		expect(what, try.subject)
	}
	for _, subject := range []string{"obs.hub.>", "notice.hub.>", "gap.hub.>", "_INBOX.>", "_INBOX_pool.>", ">", "$JS.EVENT.>"} {
		if _, err := c.nc.SubscribeSync(subject); err != nil {
			c.t.Fatal(err)
		}
		expect("listen to "+subject, subject)
	}
}

// TestConsumerStates: what feed servers measure becomes conditions, events and figures.
func TestConsumerStates(t *testing.T) {
	w := newFeedWorld(t)
	w.applyFeed("all", "")
	w.applyConsumer("viewer", "all", "WebSocket", "")
	s := w.feedServer("feed-0")
	stop := s.follow()
	w.awaits("FeedConsumer", "viewer", "Ready", "True/Ready")
	w.awaits("FeedConsumer", "viewer", "KeepingUp", "Unknown/Idle")
	status := wire.ConsumerStatus{State: wire.StateFlowing, Connections: 2, Messages: 100, Bytes: new(uint64(5000))}
	s.says("viewer", status)
	w.awaits("FeedConsumer", "viewer", "KeepingUp", "True/Flowing")
	status.State, status.LagMessages, status.LagBytes, status.LagMillis = wire.StateSlow, 40, new(int64(8000)), 12_000
	s.says("viewer", status)
	c := w.awaits("FeedConsumer", "viewer", "KeepingUp", "False/Slow")
	says(t, c, "12s behind", "40 messages", "Latest or Sample")
	w.sawEvent("viewer", "KeepingUp", "Slow", "Warning")
	at := time.Now()
	status.State, status.Gaps, status.LastGap, status.Dropped = wire.StateOverrun, 1, &at, map[string]uint64{"Retention": 17}
	s.says("viewer", status)
	w.awaits("FeedConsumer", "viewer", "KeepingUp", "False/Overrun")
	want := v1alpha1.FeedConsumerStatus{Lag: &v1alpha1.ConsumerLag{MessageCount: new(int64(40)), Bytes: new(int64(8000)), Seconds: new(int64(12))},
		Delivered: &v1alpha1.ConsumerDelivered{MessageCount: new(int64(100)), Bytes: new(int64(5000))}, Dropped: []v1alpha1.ConsumerDropped{{Reason: "Retention", Count: 17}}, GapCount: new(int64(1)), ConnectionCount: new(int32(2))}
	// A feed server that a busy machine lets report late is silent for a moment, and how many are connected is not known.
	eventually(t, "the figures", func() error {
		var is v1alpha1.FeedConsumerStatus
		w.status("FeedConsumer", "viewer", &is)
		got := v1alpha1.FeedConsumerStatus{Lag: is.Lag, Delivered: is.Delivered, Dropped: is.Dropped, GapCount: is.GapCount, ConnectionCount: is.ConnectionCount}
		if diff := cmp.Diff(want, got); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	eventually(t, "the Feed names the slowest", func() error {
		var f v1alpha1.FeedStatus
		if w.status("Feed", "all", &f); f.Slowest == nil || *f.Slowest != (v1alpha1.SlowestConsumer{Name: "viewer", LagSeconds: 12}) || ptr.Deref(f.ConsumerCount, 0) != 1 {
			return fmt.Errorf("%+v", f)
		}
		return nil
	})
	w.sawEvent("viewer", "KeepingUp", "Overrun", "Warning")

	s.mu.Lock()
	s.problems = map[string]string{"viewer": "its Feed's stream cannot be read"}
	s.mu.Unlock()
	c = w.awaits("FeedConsumer", "viewer", "Ready", "False/FeedServerProblem")
	says(t, c, "feed-0", "cannot be read")
	stop()
	w.awaits("FeedConsumer", "viewer", "Ready", "False/NotReported")
	w.awaits("FeedConsumer", "viewer", "KeepingUp", "Unknown/NoReport")
}

// TestConsumersSecretIsReferred: no Secret is written for a FeedConsumer under a name that an object of another kind refers to; once the
// reference is gone, the Secret is written. An existing Secret is kept even if another object refers to it later.
func TestConsumersSecretIsReferred(t *testing.T) {
	w := newFeedWorld(t)
	w.patchSite(`{"spec":{"readersSecretRef":{"name":"viewer-consumer"}}}`)
	w.awaits("Site", "hub", "Ready", "False/SecretNotFound")
	w.applyFeed("all", "")
	w.applyConsumer("viewer", "all", "ServerSentEvents", "")
	c := w.awaits("FeedConsumer", "viewer", "Ready", "False/Conflict")
	says(t, c, `Secret "viewer-consumer"`, "spec.readersSecretRef", `Site "hub"`)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "viewer-consumer", Namespace: w.namespace}}
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); !apierrors.IsNotFound(err) {
		t.Fatalf("the Secret that the Site names: %v, %v", secret.Data, err)
	}
	w.patchSite(`{"spec":{"readersSecretRef":null}}`)
	w.awaitSecret("viewer-consumer", bus.KeyToken)
	w.patchSite(`{"spec":{"readersSecretRef":{"name":"viewer-consumer"}}}`)
	c = w.awaits("Site", "hub", "Ready", "False/Conflict")
	says(t, c, `Secret "viewer-consumer"`, "written by the operator")
}

// TestConsumersSecret: lost ones come back with another token, those of others stay.
func TestConsumersSecret(t *testing.T) {
	w := newFeedWorld(t)
	theirs := w.secret("viewer-consumer", map[string]string{"token": "somebody else's, and long enough"})
	w.applyFeed("all", "")
	w.applyConsumer("viewer", "all", "ServerSentEvents", "")
	c := w.awaits("FeedConsumer", "viewer", "Ready", "False/Conflict")
	says(t, c, `Secret "viewer-consumer"`, "remove it", "spec.secretName")
	s := w.feedServer("feed-0")
	s.follow()
	if entry, err := s.consumerEntry("viewer"); err != nil || len(entry.Tokens) != 1 || entry.Tokens[0] != wire.NoToken() {
		t.Errorf("entry %+v, %v", entry, err)
	}
	w.remove(theirs)
	w.awaits("FeedConsumer", "viewer", "Ready", "True/Ready")
	token := func() string { return string(w.awaitSecret("viewer-consumer", bus.KeyToken).Data[bus.KeyToken]) }
	first := token()
	opens := func(token string, want bool) {
		eventually(t, "the entry's token", func() error {
			entry, err := s.consumerEntry("viewer")
			if err == nil && slices.ContainsFunc(entry.Tokens, func(h wire.TokenHash) bool { return h.Matches(token) }) != want {
				err = fmt.Errorf("%+v", entry.Tokens)
			}
			return err
		})
	}
	opens(first, true)
	w.remove(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "viewer-consumer", Namespace: w.namespace}})
	opens(first, false)
	if second := token(); second == first || len(second) != 64 {
		t.Errorf("the new token is %q after %q", second, first)
	}
	opens(token(), true)
}

// TestConsumerMayNoLongerRead: what an Instrument closes is closed at once, whatever
// else is amiss with the consumer.
func TestConsumerMayNoLongerRead(t *testing.T) {
	w := newFeedWorld(t)
	w.applyFeed("all", "")
	w.applyConsumer("client", "all", "NATS", "")
	w.applyConsumer("orphan", "all", "NATS", "")
	filters := func(consumer, stream string, want ...string) {
		eventually(t, "the durable of "+consumer, func() error {
			if is := w.durable(stream, consumer).Config; !slices.Equal(append(is.FilterSubjects, nonEmpty(is.FilterSubject)...), want) {
				return fmt.Errorf("it has %q %q", is.FilterSubject, is.FilterSubjects)
			}
			return nil
		})
	}
	restrict := func(name, access string) {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"access":`+access+`}}`))
		if err := w.Patch(t.Context(), w.instrument(name), patch); err != nil {
			t.Fatal(err)
		}
	}
	for _, consumer := range []string{"client", "orphan"} {
		filters(consumer, "OBS_hub", "obs.hub.*.>")
	}
	restrict("camera", `{"live":"Restricted"}`)
	for _, consumer := range []string{"client", "orphan"} {
		filters(consumer, "OBS_hub", "obs.hub.mag-1.>", "obs.hub.mag-2.>")
		filters(consumer, "NOTICE_hub", "gap.hub."+consumer, "health.hub.surge", "notice.hub.mag-1", "notice.hub.mag-2")
	}
	restrict("camera", `{"live":"Restricted","readers":["consumer:client"]}`)
	filters("client", "OBS_hub", "obs.hub.*.>")
	filters("orphan", "OBS_hub", "obs.hub.mag-1.>", "obs.hub.mag-2.>")

	// All of it, of one whose Feed is gone, too.
	w.remove(w.feed("all"))
	w.awaits("FeedConsumer", "orphan", "Accepted", "False/FeedNotFound")
	restrict("mag-1", `{"embargo":"1h"}`)
	filters("orphan", "OBS_hub", "obs.hub.mag-2.>")
	restrict("mag-2", `{"live":"Restricted"}`)
	filters("orphan", "OBS_hub", "obs.hub._._")
	filters("orphan", "NOTICE_hub", "gap.hub.orphan", "health.hub.surge")
	w.applyFeed("all", "")
	c := w.awaits("FeedConsumer", "orphan", "Accepted", "False/Forbidden")
	says(t, c, `"consumer:orphan"`, "spec.access.readers")
	w.awaits("FeedConsumer", "client", "Accepted", "True/Accepted")
	filters("client", "OBS_hub", "obs.hub.camera.>")
	restrict("mag-2", `{"live":"Public"}`)
	filters("orphan", "OBS_hub", "obs.hub.mag-2.>")
}

func nonEmpty(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}
