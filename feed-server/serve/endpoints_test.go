// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/feed-server/session"
	"github.com/substorm/substorm/feed-server/state"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const site = "hub"

// The clients of an endpoint, for a consumer whose Instrument is Restricted to it and to the reader
// "named".
const (
	anonymous     = "anonymous"
	namedReader   = "named"
	otherReader   = "other"
	otherConsumer = "neighbor"
	itself        = "itself"
)

// endpoints are all endpoints, and the status that each client gets.
var endpoints = map[string]map[string]int{
	"GET /feeds/{feed}/ws":          {anonymous: 401, namedReader: 426, otherReader: 403, otherConsumer: 401, itself: 426},
	"GET /feeds/{feed}/events":      {anonymous: 401, namedReader: 200, otherReader: 403, otherConsumer: 401, itself: 200},
	"POST /feeds/{feed}/tickets":    {anonymous: 401, namedReader: 201, otherReader: 403, otherConsumer: 401, itself: 201},
	"POST /feeds/{feed}/sampling":   {anonymous: 401, namedReader: 403, otherReader: 403, otherConsumer: 401, itself: 202},
	"DELETE /feeds/{feed}/sampling": {anonymous: 401, namedReader: 403, otherReader: 403, otherConsumer: 401, itself: 202},
	// The answers to preflight requests of browsers contain no data.
	"OPTIONS /feeds/{feed}/tickets":  {anonymous: 204, namedReader: 204, otherReader: 204, otherConsumer: 204, itself: 204},
	"OPTIONS /feeds/{feed}/events":   {anonymous: 204, namedReader: 204, otherReader: 204, otherConsumer: 204, itself: 204},
	"OPTIONS /feeds/{feed}/sampling": {anonymous: 204, namedReader: 204, otherReader: 204, otherConsumer: 204, itself: 204},
}

func hash(name string) wire.TokenHash { return wire.HashToken([]byte(name), name+"-token") }

// declared is the registry of newServer.
func declared() testenv.Registry {
	consumer := func(name, delivery string, instruments ...string) wire.ConsumerEntry {
		return wire.ConsumerEntry{UID: name, Consumer: name, Feed: "all", Flow: wire.FlowEntry{Mode: wire.FlowAll}, Delivery: delivery,
			Instruments: instruments, Tokens: []wire.TokenHash{hash(name)}}
	}
	return testenv.Registry{
		Revision: 1,
		Instruments: []wire.InstrumentEntry{
			{Instrument: "mag", Access: &wire.AccessEntry{Live: wire.AccessRestricted, Archive: wire.AccessRestricted, Readers: []string{"consumer:ws", "consumer:events", namedReader}}},
			{Instrument: "cam", Access: &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}},
		},
		Feeds: []wire.FeedEntry{{UID: "all", Feed: "all", Notices: wire.NoticeStream(site), Telemetry: wire.ObservationStream(site), Instruments: []string{"mag", "cam"}}},
		Consumers: []wire.ConsumerEntry{consumer("ws", wire.DeliveryWebSocket, "mag"), consumer("events", wire.DeliveryServerSentEvents, "mag"),
			consumer(otherConsumer, wire.DeliveryServerSentEvents), consumer("public", wire.DeliveryServerSentEvents, "cam")},
		Readers: []wire.ReaderEntry{{Reader: namedReader, Tokens: []wire.TokenHash{hash(namedReader)}}, {Reader: otherReader, Tokens: []wire.TokenHash{hash(otherReader)}}},
	}
}

// newServer serves consumers ws and events, which are as endpoints says, neighbor and
// public, who may have everything.
func newServer(t *testing.T, change ...func(*Config)) (*Server, *testenv.NATSServer) {
	t.Helper()
	nats := testenv.NATS(t, testenv.NATSOptions{Unsynced: true})
	js := nats.JetStream(t)
	testenv.CreateSite(t, js, site)
	nats.Declare(t, site, declared())
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	log, metrics := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	r := registry.New()
	running.Go(func() { r.Follow(ctx, js, site, log) })
	for s, changed := r.Watch(); s.Revision == 0; s, changed = r.Watch() {
		select {
		case <-changed:
		case <-time.After(testenv.Patience):
			t.Fatal("the registry is never complete")
		}
	}
	var mu sync.Mutex
	hubs := map[string]*hub.Hub{}
	cfg := Config{
		Site: site, Listen: "127.0.0.1:0", JetStream: js, Registry: r, Slots: semaphore.NewWeighted(4), Priorities: &session.Priorities{}, Logger: log, Metrics: metrics,
		Hub: func(stream string) *hub.Hub {
			mu.Lock()
			defer mu.Unlock()
			if hubs[stream] == nil {
				h := hub.New(hub.Config{JetStream: js, Stream: stream, Budget: hub.NewBudget(1 << 20), Logger: log})
				running.Go(func() { h.Run(ctx) })
				hubs[stream] = h
			}
			return hubs[stream]
		},
		Consumers: state.New(state.Config{Site: site, Pod: "feed-server-0", JetStream: js, Registry: r, Draining: func() bool { return false }, Logger: log, Metrics: metrics}),
		Sampling: func(w http.ResponseWriter, _ *http.Request, consumer string, selects func(string) bool) {
			if !strings.HasPrefix(consumer, "events") || !selects("mag") || selects("cam") {
				t.Errorf("%s asks for a rate of what it does not select", consumer)
			}
			w.WriteHeader(http.StatusAccepted)
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { _ = s.Drain(context.Background()) })
	return s, nats
}

// ask asks at an endpoint, and returns the status, the header and what is in the body
// where that ends.
func (s *Server) asks(t *testing.T, pattern, consumer, token string) (int, http.Header, string) {
	t.Helper()
	method, path, _ := strings.Cut(pattern, " ")
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Address()+strings.ReplaceAll(path, "{feed}", "all")+"?consumer="+consumer, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token+"-token")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		return resp.StatusCode, resp.Header, ""
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

// Each endpoint that there is answers everybody as it should. One that is new must say
// here what it answers.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t)
	are, known := slices.Sorted(maps.Keys(s.endpoints())), slices.Sorted(maps.Keys(endpoints))
	if !slices.Equal(are, known) {
		t.Fatalf("there are endpoints\n%q\nthis test knows\n%q", are, known)
	}
	for pattern, answers := range endpoints {
		consumer := "events"
		if strings.HasSuffix(pattern, "/ws") {
			consumer = "ws"
		}
		for _, who := range []string{anonymous, namedReader, otherReader, otherConsumer, itself} {
			token := who
			switch who {
			case anonymous:
				token = ""
			case itself:
				token = consumer
			}
			if status, _, body := s.asks(t, pattern, consumer, token); status != answers[who] {
				t.Errorf("%s, %s: %d, want %d: %s", pattern, who, status, answers[who], body)
			}
		}
	}
}

// An answer that ends by itself is not cut while the server drains.
func TestDrainLetsAnswersEnd(t *testing.T) {
	t.Parallel()
	begun, rest := make(chan struct{}), make(chan struct{})
	s, _ := newServer(t, func(c *Config) {
		c.Others = map[string]http.HandlerFunc{"/slow": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "one ")
			_ = http.NewResponseController(w).Flush()
			close(begun)
			<-rest
			_, _ = io.WriteString(w, "two")
		}}
	})
	answer := make(chan string, 1)
	go func() {
		resp, err := http.Get("http://" + s.Address() + "/slow")
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		answer <- fmt.Sprint(string(body), err)
	}()
	<-begun
	drained := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
		defer cancel()
		drained <- s.Drain(ctx)
	}()
	select {
	case err := <-drained:
		t.Errorf("the server was drained before the answer had ended: %v", err)
		drained <- err
	case <-time.After(300 * time.Millisecond):
	}
	close(rest)
	if got := <-answer; got != "one two<nil>" {
		t.Errorf("while the server drained: %q", got)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

// TestOtherDelivery: a client that asks at the address of another delivery gets the address of its
// FeedConsumer.
func TestOtherDelivery(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t)
	for at, want := range map[[2]string]string{
		{"/ws", "events"}: "/feeds/all/events?consumer=events", {"/events", "ws"}: "/feeds/all/ws?consumer=ws",
	} {
		if status, _, body := s.asks(t, "GET /feeds/{feed}"+at[0], at[1], at[1]); status != http.StatusNotFound || !strings.Contains(body, want) {
			t.Errorf("%v: %d %s", at, status, body)
		}
	}
}

// Nothing but endpoints is answered, by whichever method.
func TestNoOtherEndpoint(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t)
	for _, path := range []string{"/", "/feeds", "/feeds/{feed}", "/feeds/{feed}/ws", "/feeds/{feed}/events", "/feeds/{feed}/tickets", "/feeds/{feed}/sampling", "/metrics"} {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			if _, is := endpoints[method+" "+path]; is {
				continue
			}
			if status, _, body := s.asks(t, method+" "+path, "events", "events"); status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d %s", method, path, status, body)
			}
		}
	}
}
