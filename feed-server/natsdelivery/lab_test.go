// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/feed-server/session"
	"github.com/substorm/substorm/feed-server/state"
	"github.com/substorm/substorm/feed-server/wis2"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/finding"
)

const (
	site    = "hub"
	camera  = "allsky-1"
	mag     = "mag-1"
	channel = "raw"
	feed    = "all"
	// issue of all consumers' credentials.
	issue = "0a1b2c3d4e"
	// leaseTTL is short so that another feed server soon takes over.
	leaseTTL = time.Second
)

var instruments = []string{camera, "camera-2", mag}

// servers are NATS: one server, or several.
type servers interface {
	JetStream(t testing.TB) jetstream.JetStream
	UserCreds(t testing.TB, permissions jwt.Permissions, connections ...string) string
	ConsumerCreds(t testing.TB, permissions jwt.Permissions) string
	URL() string
}

// lab is one Site: what the operator makes is made by hand.
type lab struct {
	t        *testing.T
	bus      servers
	js       jetstream.JetStream
	registry jetstream.KeyValue
	replicas int

	mu        sync.Mutex
	consumers map[string]wire.ConsumerEntry
	revision  int64
	// backfill: the Feed includes it, see include.
	backfill bool
}

func newLab(t *testing.T, b servers, replicas int) *lab {
	t.Helper()
	l := &lab{t: t, bus: b, js: b.JetStream(t), replicas: replicas, consumers: map[string]wire.ConsumerEntry{}}
	testenv.CreateReplicatedSite(t, l.js, site, replicas)
	_, err := l.js.UpdateKeyValue(t.Context(), jetstream.KeyValueConfig{
		Bucket: wire.LeaseBucket(site), TTL: leaseTTL, History: 1, Storage: jetstream.FileStorage, Replicas: replicas})
	if err != nil {
		t.Fatal(err)
	}
	if l.registry, err = l.js.KeyValue(t.Context(), wire.RegistryBucket(site)); err != nil {
		t.Fatal(err)
	}
	l.declareFeed(1)
	for _, name := range instruments {
		e, err := wire.Encode(wire.InstrumentEntry{UID: "uid-of-" + name, Revision: 1, Instrument: name})
		l.put(wire.RegistryInstrumentKey(name), e, err)
	}
	return l
}

func (l *lab) declareFeed(revision int64) {
	l.t.Helper()
	f, err := wire.Encode(wire.FeedEntry{UID: "feed-uid", Revision: revision, Feed: feed, Notices: wire.NoticeStream(site), Telemetry: wire.ObservationStream(site),
		Instruments: instruments, Backfill: l.backfill})
	l.put(wire.RegistryFeedKey(feed), f, err)
}

func (l *lab) put(key string, value []byte, err error) {
	l.t.Helper()
	if err == nil {
		_, err = l.registry.Put(l.t.Context(), key, value)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// declare makes a consumer as the operator does: streams, durables, and what feed
// servers know of it.
func (l *lab) declare(c wire.ConsumerEntry) {
	l.t.Helper()
	l.mu.Lock()
	l.revision++
	c.Feed, c.Delivery, c.Revision, c.Durable = feed, wire.DeliveryNATS, l.revision, wire.ConsumerDurable(c.Consumer, issue)
	if c.UID == "" {
		c.UID = "uid-of-" + c.Consumer
	}
	l.consumers[c.Consumer] = c
	l.mu.Unlock()
	l.makeStreams(c)
	value, err := wire.Encode(c)
	l.put(wire.RegistryConsumerKey(c.Consumer), value, err)
	l.complete()
}

func (l *lab) complete() {
	l.t.Helper()
	l.mu.Lock()
	marker := wire.RegistryComplete{Revision: l.revision, Count: 3, Feeds: 1, Consumers: len(l.consumers)}
	l.mu.Unlock()
	value, err := wire.Encode(marker)
	l.put(wire.RegistryCompleteKey, value, err)
}

// planned is what the operator's planner makes of a consumer.
func (l *lab) planned(c wire.ConsumerEntry) (bus.Plan, bus.JetStreamUser) {
	ours := &v1alpha1.Site{Spec: v1alpha1.SiteSpec{Code: site}}
	ours.Spec.JetStream.Replicas = int32(l.replicas)
	all := v1alpha1.Feed{ObjectMeta: metav1.ObjectMeta{Name: feed}}
	if l.backfill {
		all.Spec.Backfill = v1alpha1.BackfillInclude
	}
	consumer := v1alpha1.FeedConsumer{ObjectMeta: metav1.ObjectMeta{Name: c.Consumer, UID: types.UID(c.UID)}, Spec: v1alpha1.FeedConsumerSpec{
		FeedRef: v1alpha1.LocalReference{Name: feed}, Flow: v1alpha1.Flow{Mode: v1alpha1.FlowMode(c.Flow.Mode)},
		Delivery: v1alpha1.Delivery{Type: v1alpha1.DeliveryNATS}}}
	if c.WIS2 {
		consumer.Spec.Delivery.Notices = v1alpha1.NoticeWIS2
	}
	verdict := accept.ConsumerVerdict{Finding: finding.Finding{Status: metav1.ConditionTrue}, Notices: !c.NoNotices, Telemetry: !c.NoTelemetry, Readable: instruments}
	if len(c.Instruments) > 0 {
		verdict.Readable = c.Instruments
	}
	feeds := []v1alpha1.Feed{all}
	p := bus.MakePlan(ours, feeds, nil, []v1alpha1.FeedConsumer{consumer}, map[string]accept.ConsumerVerdict{c.Consumer: verdict},
		map[string]string{c.Consumer: wire.ConsumerDurable(c.Consumer, issue)})
	return p, bus.ConsumerUser(ours, &all, &consumer, verdict, wire.ConsumerDurable(c.Consumer, issue))
}

func (l *lab) makeStreams(c wire.ConsumerEntry) {
	l.t.Helper()
	bus, _ := l.planned(c)
	for _, s := range bus.Streams {
		_, err := l.js.CreateStream(l.t.Context(), jetstream.StreamConfig{Name: s.Name, Subjects: s.Subjects, Storage: jetstream.MemoryStorage,
			MaxMsgsPerSubject: max(s.PerSubject, -1), MaxBytes: s.MaxBytes, MaxAge: s.MaxAge, Discard: jetstream.DiscardOld, AllowDirect: true, Replicas: s.Replicas})
		if err != nil {
			l.t.Fatal(err)
		}
	}
	for _, d := range bus.Durables {
		l.makeDurable(c, d.Stream, wire.ResumeToken{})
	}
}

// makeDurable makes a durable, behind a place where one is known.
func (l *lab) makeDurable(c wire.ConsumerEntry, stream string, after wire.ResumeToken) {
	l.t.Helper()
	bus, _ := l.planned(c)
	for _, d := range bus.Durables {
		if d.Stream != stream {
			continue
		}
		cfg := jetstream.ConsumerConfig{Durable: d.Name, FilterSubjects: d.Subjects, AckPolicy: jetstream.AckExplicitPolicy,
			AckWait: 2 * time.Second, MaxAckPending: d.Window, DeliverPolicy: jetstream.DeliverAllPolicy}
		if after.Epoch != "" {
			cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, after.Sequence+1
		}
		if _, err := l.js.CreateConsumer(l.t.Context(), stream, cfg); err != nil {
			l.t.Fatalf("durable of %s on %s: %v", c.Consumer, stream, err)
		}
	}
}

// user returns the credentials of a consumer, which are all that it has, and the
// prefix of its inboxes.
func (l *lab) user(consumer string) (creds, inbox string) {
	l.t.Helper()
	l.mu.Lock()
	c := l.consumers[consumer]
	l.mu.Unlock()
	_, u := l.planned(c)
	var p jwt.Permissions
	p.Pub.Allow.Add(u.Publish...)
	p.Sub.Allow.Add(u.Subscribe...)
	return l.bus.ConsumerCreds(l.t, p), u.InboxPrefix
}

// connect connects with a consumer's credentials alone.
func (l *lab) connect(consumer string, opts ...nats.Option) *nats.Conn {
	l.t.Helper()
	creds, inbox := l.user(consumer)
	opts = append([]nats.Option{nats.UserCredentials(creds), nats.CustomInboxPrefix(inbox),
		nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2)}, opts...)
	nc, err := nats.Connect(l.bus.URL(), opts...)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(nc.Close)
	return nc
}

// asFeedServer connects as feed servers do: with what the planner allows them.
func (l *lab) asFeedServer() jetstream.JetStream {
	l.t.Helper()
	u := bus.FeedServerUser(&v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: site}, Spec: v1alpha1.SiteSpec{Code: site}}, "hub")
	var p jwt.Permissions
	p.Pub.Allow.Add(u.Publish...)
	p.Pub.Deny.Add(u.DenyPublish...)
	p.Sub.Allow.Add(u.Subscribe...)
	nc, err := nats.Connect(l.bus.URL(), nats.UserCredentials(l.bus.UserCreds(l.t, p)), nats.CustomInboxPrefix(u.InboxPrefix),
		nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2),
		nats.ReconnectBufSize(-1), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				l.t.Errorf("the feed server may not do what it needs: %v", err)
			}
		}))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		l.t.Fatal(err)
	}
	return js
}

// server is a feed server, as far as it delivers by NATS.
type server struct {
	stop func()
	// kill ends it without a word to NATS: its leases expire.
	kill    func()
	metrics *prometheus.Registry
}

// serve runs a feed server until it is stopped or the test ends.
func (l *lab) serve(pod string) *server {
	l.t.Helper()
	ctx, cancel := context.WithCancel(l.t.Context())
	log := slog.New(slog.NewTextHandler(testWriter{l.t}, nil)).With("pod", pod)
	js := l.asFeedServer()
	r := registry.New()
	var running sync.WaitGroup
	running.Go(func() { r.Follow(ctx, js, site, log) })
	var mu sync.Mutex
	hubs := map[string]*hub.Hub{}
	s := &server{metrics: prometheus.NewRegistry()}
	consumers := state.New(state.Config{Site: site, Pod: pod, Incarnation: pod + "-incarnation", StartedAt: time.Now(), JetStream: js, Registry: r,
		Draining: func() bool { return false }, Logger: log, Metrics: s.metrics})
	running.Go(func() { _ = consumers.Run(ctx) })
	running.Go(func() {
		err := Run(ctx, Config{Site: site, Pod: pod, Incarnation: pod + "-incarnation", JetStream: js, Registry: r, Slots: semaphore.NewWeighted(4),
			Hub: func(stream string) *hub.Hub {
				mu.Lock()
				defer mu.Unlock()
				if hubs[stream] == nil {
					h := hub.New(hub.Config{JetStream: js, Stream: stream, Budget: hub.NewBudget(8 << 20), Logger: log})
					hubs[stream] = h
					running.Go(func() { h.Run(ctx) })
				}
				return hubs[stream]
			},
			WIS2: func(n wire.Notice, at time.Time) (string, []byte) {
				return wis2.Encode("https://archive.example.org", wire.InstrumentEntry{}, n, at)
			},
			Priorities: &session.Priorities{}, Consumers: consumers, WatchInterval: 100 * time.Millisecond, Logger: log, Metrics: s.metrics})
		if err != nil {
			l.t.Errorf("%s: %v", pod, err)
		}
	})
	var once sync.Once
	s.stop = func() { once.Do(func() { cancel(); running.Wait() }) }
	s.kill = func() { js.Conn().Close(); s.stop() }
	l.t.Cleanup(s.stop)
	return s
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(string(bytes.TrimSpace(p)))
	return len(p), nil
}

// status returns what is reported of a consumer.
func (l *lab) status(consumer string) (s wire.ConsumerStatus, pod string) {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), wire.StatusBucket(site))
	if err != nil {
		l.t.Fatal(err)
	}
	keys, err := kv.ListKeys(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	for key := range keys.Keys() {
		name, by, ok := wire.ParseConsumerStatusKey(key)
		if !ok || name != consumer {
			continue
		}
		if e, err := kv.Get(l.t.Context(), key); err == nil {
			if s, err = wire.Decode[wire.ConsumerStatus](e.Value()); err != nil {
				l.t.Fatal(err)
			}
			pod = by
		}
	}
	return s, pod
}

func upTo(n int) []int {
	var all []int
	for i := range n {
		all = append(all, i)
	}
	return all
}

// covered returns the sequences that gap records name. A record that left the stream
// before it was acknowledged, though it was delivered, is part of the next.
func covered(t *testing.T, gaps []wire.Gap) map[uint64]bool {
	t.Helper()
	all := map[uint64]bool{}
	for _, g := range gaps {
		if g.From == "" {
			continue
		}
		from, err := wire.ParseResumeToken(g.From)
		if err != nil {
			t.Fatal(err)
		}
		to, err := wire.ParseResumeToken(g.To)
		if err != nil {
			t.Fatal(err)
		}
		for s := from.Sequence; s <= to.Sequence; s++ {
			all[s] = true
		}
	}
	return all
}
