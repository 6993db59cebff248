// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/bus"
)

// deaf is a connection whose requests about some streams and durables get no answer: the server does not let them through.
func deaf(t *testing.T, server *testenv.NATSServer, to ...string) jetstream.JetStream {
	t.Helper()
	var may jwt.Permissions
	may.Pub.Allow.Add(">")
	may.Pub.Deny.Add(to...)
	may.Sub.Allow.Add(">")
	nc, err := nats.Connect(server.URL(), nats.UserCredentials(server.UserCreds(t, may)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// A stream and a durable that do not answer are named in their findings, and delay none of the others; what was known of them stays.
func TestSilentStream(t *testing.T) {
	t.Parallel()
	server := testenv.NATS(t, testenv.NATSOptions{Operator: true})
	testenv.CreateSite(t, server.JetStream(t), "hub")
	var p bus.Plan
	for _, name := range []string{"a", "b"} {
		stream := wire.ConsumerStream("hub", name)
		p.Consumers, p.Settled = append(p.Consumers, name), append(p.Settled, name)
		p.Streams = append(p.Streams, bus.OwnStream{Name: stream, Subjects: []string{wire.LiveSubjects("hub", name)}, MaxBytes: 1 << 20,
			PerSubject: 1, Replicas: 1, Storage: v1alpha1.StorageMemory, Deletion: v1alpha1.DeletionDelete})
		p.AddDurable(bus.Durable{Stream: stream, Name: wire.ConsumerDurable(name, ""), Subjects: []string{wire.LiveSubjects("hub", name)}, Window: 10, UID: name})
	}
	for _, name := range []string{"c", "d"} {
		p.Consumers, p.Settled = append(p.Consumers, name), append(p.Settled, name)
		p.AddDurable(bus.Durable{Stream: wire.ObservationStream("hub"), Name: wire.ConsumerDurable(name, ""),
			Subjects: []string{wire.ObservationSubjects("hub")}, Window: 10, UID: name})
	}
	p.Selections = map[string][]bus.FeedSelection{
		"own": {{Stream: wire.ConsumerStream("hub", "a"), Subjects: []string{wire.LiveSubjects("hub", "a")}, Whole: true}},
		"all": {{Stream: wire.ObservationStream("hub"), Subjects: []string{wire.ObservationSubjects("hub")}}},
	}
	marker := wire.SiteMarker{Code: "hub", UID: "s-1", Namespace: "field", Name: "hub", Cluster: "here"}
	l := &link{want: wanted{marker: marker}, facts: newFacts(time.Now(), slog.Default()), log: slog.Default(), now: time.Now,
		changed: func() {}, feedFound: func(string) {}, consumerFound: func(string) {}}
	l.facts.wantBus(p)
	var err error
	l.js = server.JetStream(t)
	if l.registry, err = l.js.KeyValue(t.Context(), wire.RegistryBucket("hub")); err != nil {
		t.Fatal(err)
	}
	at := wire.ResumeToken{Epoch: "1", Sequence: 7}.String()
	l.facts.feeds.found.positions = map[string]wire.PositionCursor{"c": {UID: "c", Streams: map[string]string{wire.ObservationStream("hub"): at}}}

	js := deaf(t, server, "$JS.API.STREAM.INFO.CONS_hub_a", "$JS.API.CONSUMER.INFO.OBS_hub.c_c")
	_, err = l.applyBusPlan(t.Context(), js, p)
	if err == nil || !strings.Contains(err.Error(), "CONS_hub_a") || !strings.Contains(err.Error(), "durable c_c of stream OBS_hub") {
		t.Errorf("error %v", err)
	}
	found := map[string]string{}
	for name, f := range l.facts.feeds.found.durables {
		found[name] = string(f.Status) + "/" + f.Reason
	}
	want := map[string]string{"a": "False/Unreachable", "b": "True/Ready", "c": "False/Unreachable", "d": "True/Ready"}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("durables (-want +found):\n%s", diff)
	}
	if s := l.facts.feeds.found.streams["CONS_hub_a"].Problem; s == nil || s.Reason != v1alpha1.ReasonUnreachable || !strings.Contains(s.Message, "stream CONS_hub_a") {
		t.Errorf("stream of a: %+v", s)
	}
	if s, looked := l.facts.feeds.found.streams["CONS_hub_b"]; !looked || s.Problem != nil {
		t.Errorf("stream of b: %+v", s)
	}
	if got := l.facts.positionOf("c").Streams[wire.ObservationStream("hub")]; got != at {
		t.Errorf("the position of c is %q", got)
	}
	if err := l.countFeeds(t.Context(), js, p); err == nil || !strings.Contains(err.Error(), "Feed own") {
		t.Errorf("error %v", err)
	}
	if _, counted := l.facts.figuresOf()["all"]; !counted {
		t.Error("the other Feed is not counted")
	}

	// Durables that answer again are in order, and the silent streams are asked last.
	if first := (&busKeeper{link: l}).silentLast(2, func(i int) string { return p.Streams[i].Name }); !cmp.Equal(first, []int{1, 0}) {
		t.Errorf("asked in the order %v", first)
	}
	if _, err := l.applyBusPlan(t.Context(), server.JetStream(t), p); err != nil {
		t.Error(err)
	}
	for name, f := range l.facts.feeds.found.durables {
		if !f.OK() {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// A stream that has one replica gets the Site's number of replicas, in place.
func TestReplicasInPlace(t *testing.T) {
	stands := jetstream.StreamConfig{Name: "CONS_hub_a", Storage: jetstream.MemoryStorage, Replicas: 1, MaxMsgsPerSubject: 1}
	cfg, err := ownStreamConfig(stands, bus.OwnStream{Name: "CONS_hub_a", Replicas: 3, PerSubject: 1, Storage: v1alpha1.StorageMemory}, wire.SiteMarker{Code: "hub"})
	if err != nil || cfg.Replicas != 3 || cfg.Storage != jetstream.MemoryStorage {
		t.Errorf("%+v, %v", cfg, err)
	}
}
