// SPDX-License-Identifier: Apache-2.0

package feedserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/finding"
)

// In a cluster of three with three replicas of each stream, each node in turn falls silent for a
// while, and then the leader of the stream of telemetry is killed. Connections stay, and miss
// nothing; no gap is reported; the newest and the samples by NATS continue; consumers that are
// declared meanwhile are served; tickets are issued and accepted, at different replicas.
func TestNodesCutOff(t *testing.T) {
	t.Parallel()
	cluster := testenv.NATSCluster(t, testenv.NATSOptions{Unsynced: true})
	l := newLabOn(t, cluster, 3, consumer("sockets", wire.DeliveryWebSocket), consumer("stream", wire.DeliveryServerSentEvents), consumer("page", wire.DeliveryWebSocket))
	model := l.byNATS("model", wire.FlowEntry{Mode: wire.FlowAll})
	newest := l.byNATS("newest", wire.FlowEntry{Mode: wire.FlowLatest})
	samples := l.byNATS("samples", wire.FlowEntry{Mode: wire.FlowSample, IntervalMillis: 100})
	servers := []*testenv.FeedServer{l.start(), l.start("--pod", "feed-server-1")}
	clients := []*client{l.client(servers[0], "sockets"), l.client(servers[1], "sockets"), l.client(servers[0], "stream"), l.client(servers[1], "stream")}
	clients[1].text, clients[2].events, clients[3].events = true, true, true
	for _, c := range clients {
		c.connect()
		c.readAhead()
	}
	var names []string
	some := func(what string) {
		t.Helper()
		page := l.page(servers[0], servers[1])
		first := l.next
		for range 60 {
			l.telemetryOnce("mag-1", 2000)
			l.noticeOnce("cam-1", fmt.Sprint("image-", len(names)))
			names = append(names, fmt.Sprint("image-", len(names)))
		}
		page.expect(first, l.next)
		page.stop()
		for _, c := range clients {
			c.expect(0, l.next)
			c.until("the notices", func() bool { return len(c.notices) >= len(names) })
			if diff := cmp.Diff(names, c.notices); diff != "" || len(c.gaps) > 0 {
				t.Fatalf("%s, %s: gaps %+v; notices (-want +got)\n%s", c.name, what, c.gaps, diff)
			}
		}
		for _, k := range []*taker{newest, samples, model} {
			testenv.Await(t, fmt.Sprintf("%s gets the last, %s", k.name, what), func() bool { return k.has(l.next-1, names[len(names)-1]) })
		}
	}
	some("with three nodes")
	outage := func(what string, begin, end func()) {
		t.Helper()
		begin()
		late := l.late(servers[len(l.registry.Consumers)%2])
		first := l.next
		some(what)
		late.expect(first, l.next)
		late.stop()
		end()
		l.whole()
		some("after it: " + what)
	}
	for i, n := range cluster.Nodes {
		outage(fmt.Sprintf("without node %d", i), n.Pause, n.Continue)
	}
	s, err := l.js.Stream(t.Context(), wire.ObservationStream(site))
	if err != nil {
		t.Fatal(err)
	}
	leader := cluster.Named(s.CachedInfo().Cluster.Leader)
	if leader == nil {
		t.Fatal("nobody leads the stream")
	}
	outage("the leader is killed", leader.Kill, leader.Start)
	model.complete(l.next, names)
	for _, k := range []*taker{newest, samples, model} {
		if gaps := k.told(); len(gaps) > 0 {
			t.Errorf("%s is told of gaps, where none are: %+v", k.name, gaps)
		}
	}
}

// noticeOnce publishes a notice once, though a node of NATS may be away meanwhile.
func (l *lab) noticeOnce(instrument, name string) {
	l.id = "id-" + name
	l.notice(instrument, name)
	l.id = ""
}

// whole waits until all replicas of all streams are there again.
func (l *lab) whole() {
	l.t.Helper()
	testenv.Await(l.t, "all replicas are there", func() bool {
		ctx, cancel := context.WithTimeout(l.t.Context(), 5*time.Second)
		defer cancel()
		streams, n := l.js.ListStreams(ctx), 0
		for info := range streams.Info() {
			n++
			if c := info.Cluster; c == nil || c.Leader == "" || len(c.Replicas) != 2 || slices.ContainsFunc(c.Replicas, func(p *jetstream.PeerInfo) bool { return !p.Current || p.Offline }) {
				return false
			}
		}
		return streams.Err() == nil && n > 0
	})
}

// page is a browser's page: it asks one feed server for a ticket, and shows it to
// another. Both may be without NATS for a moment.
func (l *lab) page(asked, shown *testenv.FeedServer) *client {
	l.t.Helper()
	c := l.client(shown, "page")
	open := func() error {
		r, err := http.NewRequestWithContext(l.t.Context(), http.MethodPost, at(asked, "http", "tickets", c.name, ""), nil)
		if err != nil {
			return err
		}
		r.Header = bearer(c.name)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		var answer struct{ Ticket string }
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Ticket == "" {
			return fmt.Errorf("%s: %w", resp.Status, err)
		}
		conn, resp, err := websocket.Dial(l.t.Context(), at(shown, "ws", "ws", c.name, "")+"&ticket="+url.QueryEscape(answer.Ticket),
			&websocket.DialOptions{Subprotocols: []string{wire.SubprotocolBinary}})
		if resp != nil && resp.StatusCode == http.StatusUnauthorized {
			l.t.Errorf("a ticket that was just given opens nothing: %v", err)
		}
		if err == nil {
			conn.SetReadLimit(-1)
			c.conn, c.stop = conn, func() { _ = conn.CloseNow() }
			l.t.Cleanup(c.stop)
			c.readAhead()
		}
		return err
	}
	var err error
	for range testenv.Attempts() {
		if err = open(); err == nil {
			return c
		}
	}
	l.t.Fatalf("no page: %v", err)
	return nil
}

// late is a consumer that is declared now.
func (l *lab) late(f *testenv.FeedServer) *client {
	l.t.Helper()
	c := l.client(f, fmt.Sprint("late-", len(l.registry.Consumers)))
	l.registry.Consumers = append(l.registry.Consumers, consumer(c.name, wire.DeliveryWebSocket))
	l.declare()
	testenv.Await(l.t, "the registry is followed", func() bool { return c.tryConnect() == nil })
	c.readAhead()
	return c
}

// taker is a consumer by NATS.
type taker struct {
	t    *testing.T
	name string

	mu        sync.Mutex
	datagrams map[int]bool
	notices   map[string]bool
	gaps      []wire.Gap
}

// byNATS declares a consumer of delivery NATS as the operator does, and consumes.
func (l *lab) byNATS(name string, flow wire.FlowEntry) *taker {
	l.t.Helper()
	c := consumer(name, wire.DeliveryNATS, func(c *wire.ConsumerEntry) {
		c.Flow, c.Tokens, c.Durable = flow, nil, wire.ConsumerDurable(name, "0a1b2c3d4e")
	})
	l.registry.Consumers = append(l.registry.Consumers, c)
	l.declare()
	of := &v1alpha1.Site{Spec: v1alpha1.SiteSpec{Code: site, JetStream: v1alpha1.JetStream{Replicas: 3}}}
	feed := v1alpha1.Feed{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	declared := v1alpha1.FeedConsumer{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1alpha1.FeedConsumerSpec{
		FeedRef: v1alpha1.LocalReference{Name: feed.Name}, Flow: v1alpha1.Flow{Mode: v1alpha1.FlowMode(flow.Mode)}, Delivery: v1alpha1.Delivery{Type: v1alpha1.DeliveryNATS}}}
	bus := bus.MakePlan(of, []v1alpha1.Feed{feed}, nil, []v1alpha1.FeedConsumer{declared}, map[string]accept.ConsumerVerdict{name: {
		Finding: finding.Finding{Status: metav1.ConditionTrue}, Notices: true, Telemetry: true, Readable: l.registry.Feeds[0].Instruments}}, map[string]string{name: c.Durable})
	for _, s := range bus.Streams {
		if _, err := l.js.CreateStream(l.t.Context(), jetstream.StreamConfig{Name: s.Name, Subjects: s.Subjects, Storage: jetstream.MemoryStorage,
			MaxMsgsPerSubject: s.PerSubject, MaxBytes: s.MaxBytes, Discard: jetstream.DiscardOld, AllowDirect: true, Replicas: s.Replicas}); err != nil {
			l.t.Fatal(err)
		}
	}
	k := &taker{t: l.t, name: name, datagrams: map[int]bool{}, notices: map[string]bool{}}
	for _, d := range bus.Durables {
		durable, err := l.js.CreateConsumer(l.t.Context(), d.Stream, jetstream.ConsumerConfig{Durable: d.Name, FilterSubjects: d.Subjects,
			AckPolicy: jetstream.AckExplicitPolicy, AckWait: 2 * time.Second, MaxAckPending: d.Window, DeliverPolicy: jetstream.DeliverAllPolicy})
		if err != nil {
			l.t.Fatal(err)
		}
		k.consume(durable)
	}
	return k
}

func (k *taker) consume(durable jetstream.Consumer) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	k.t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			messages, err := durable.Messages(jetstream.PullExpiry(5*time.Second), jetstream.PullHeartbeat(time.Second))
			if err != nil {
				time.Sleep(100 * time.Millisecond) // a consumer's pause before it asks again
				continue
			}
			for {
				m, err := messages.Next(jetstream.NextContext(ctx))
				if errors.Is(err, jetstream.ErrNoHeartbeat) {
					continue
				}
				if err != nil {
					break
				}
				if err := k.take(m); err != nil {
					k.t.Errorf("message on %s: %v", m.Subject(), err)
				}
				_ = m.Ack() // where it is lost the message comes again
			}
			messages.Stop()
		}
	}()
}

func (k *taker) take(m jetstream.Msg) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m.Headers().Get(wire.HeaderType) == wire.TypeGap {
		g, err := wire.Decode[wire.Gap](m.Data())
		k.gaps = append(k.gaps, g)
		return err
	}
	if n, err := wire.Decode[wire.Notice](m.Data()); err == nil {
		k.notices[n.Name] = true
		return nil
	}
	for d, err := range wire.Datagrams(m.Data()) {
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(d.Payload[:8]))
		if err != nil {
			return err
		}
		k.datagrams[n] = true
	}
	return nil
}

func (k *taker) has(datagram int, notice string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.datagrams[datagram] && k.notices[notice]
}

// complete fails where something did not come.
func (k *taker) complete(datagrams int, notices []string) {
	k.t.Helper()
	testenv.Await(k.t, k.name+" has all", func() bool {
		for n := range datagrams {
			if !k.has(n, notices[n%len(notices)]) {
				return false
			}
		}
		return true
	})
}

func (k *taker) told() []wire.Gap {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.gaps)
}
