// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const ticketEndpoint = "POST /feeds/{feed}/tickets"

// held returns how many tickets the bucket has.
func held(t *testing.T, js jetstream.JetStream) int {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), wire.LeaseBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := kv.Keys(t.Context())
	if err != nil && !errors.Is(err, jetstream.ErrNoKeysFound) {
		t.Fatal(err)
	}
	n := 0
	for _, key := range keys {
		if strings.HasPrefix(key, "ticket.") {
			n++
		}
	}
	return n
}

// Anonymous readers, who need no tickets, get none; others get so many at a time, and those of
// one consumer take none of another's.
func TestTicketsAreBounded(t *testing.T) {
	t.Parallel()
	s, nats := newServer(t)
	js := nats.JetStream(t)
	for range 3 {
		status, _, body := s.asks(t, ticketEndpoint, "public", "")
		if status != http.StatusBadRequest || !strings.Contains(body, "without") {
			t.Fatalf("an anonymous reader: %d %s", status, body)
		}
	}
	if n := held(t, js); n != 0 {
		t.Errorf("anonymous readers have %d tickets", n)
	}
	if !s.tickets.rates.may("ws") {
		t.Fatal("the first is refused")
	}
	s.tickets.rates.of["ws"].SetLimit(0) // no time passes for it
	for given := 1; ; given++ {
		status, header, body := s.asks(t, ticketEndpoint, "ws", "ws")
		if status == http.StatusCreated && given < ticketBurst {
			continue
		}
		if status != http.StatusTooManyRequests || header.Get("Retry-After") == "" || !strings.Contains(body, "tickets") || given < ticketBurst {
			t.Fatalf("behind %d tickets: %d %v %s", given, status, header, body)
		}
		break
	}
	if status, _, body := s.asks(t, ticketEndpoint, "events", "events"); status != http.StatusCreated {
		t.Errorf("another consumer's: %d %s", status, body)
	}
}

// A ticket is read from the leader: a direct get is answered by any replica of the
// bucket, also by one that does not have it yet.
func TestTicketIsAskedOfTheLeader(t *testing.T) {
	t.Parallel()
	s, nats := newServer(t)
	spy := nats.Connect(t)
	bucket := wire.LeaseBucket(site)
	direct, err := spy.SubscribeSync("$JS.API.DIRECT.GET.KV_" + bucket + ".>")
	if err != nil {
		t.Fatal(err)
	}
	if err := spy.Flush(); err != nil {
		t.Fatal(err)
	}
	ticket := s.ticket(t)
	who, err := s.tickets.take(t.Context(), ticket, ofEvents, time.Now())
	if err != nil || who.Reader.String() != "consumer:events" {
		t.Errorf("%+v, %v", who, err)
	}
	if _, err := s.tickets.take(t.Context(), ticket, ofEvents, time.Now()); !errors.Is(err, errTicket) {
		t.Errorf("the second time: %v", err)
	}
	if _, err := s.tickets.take(t.Context(), "never was", ofEvents, time.Now()); !errors.Is(err, errTicket) {
		t.Errorf("one that never was: %v", err)
	}
	// The first direct get that is seen is the test's own.
	kv, err := nats.JetStream(t).KeyValue(t.Context(), bucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Get(t.Context(), "own"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Fatal(err)
	}
	m, err := direct.NextMsg(3 * time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(m.Subject, ".own") {
		t.Errorf("a ticket is asked of any replica: %s", m.Subject)
	}
}

// ofEvents is what consumer events selects.
var ofEvents = registry.Selection{Feed: wire.FeedEntry{Feed: "all"}, Consumer: wire.ConsumerEntry{Consumer: "events"}}

// ticket asks for one of consumer events.
func (s *Server) ticket(t *testing.T) string {
	t.Helper()
	status, _, body := s.asks(t, ticketEndpoint, "events", "events")
	var answer struct{ Ticket string }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusCreated {
		t.Fatalf("%d %s, %v", status, body, err)
	}
	return answer.Ticket
}

// If many clients come with one ticket at the same moment, one is let in.
func TestTicketOpensOnceAtATime(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t)
	for range 20 {
		ticket := s.ticket(t)
		begin, entered := make(chan struct{}), make(chan error)
		const many = 16
		for range many {
			go func() {
				<-begin
				_, err := s.tickets.take(t.Context(), ticket, ofEvents, time.Now())
				entered <- err
			}()
		}
		close(begin)
		n := 0
		for range many {
			switch err := <-entered; {
			case err == nil:
				n++
			case !errors.Is(err, errTicket):
				t.Error(err)
			}
		}
		if n != 1 {
			t.Fatalf("%d are let in", n)
		}
	}
}

// A ticket opens nothing once its time is over, though the bucket may have it still.
func TestTicketExpires(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t)
	ticket := s.ticket(t)
	if _, err := s.tickets.take(t.Context(), ticket, ofEvents, time.Now().Add(ticketLifetime)); !errors.Is(err, errTicket) {
		t.Errorf("when its time is over: %v", err)
	}
	if _, err := s.tickets.take(t.Context(), ticket, ofEvents, time.Now()); err != nil {
		t.Errorf("before that: %v", err)
	}
}

// All consumers together have as many connections as the pod has memory for.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, func(c *Config) {
		c.Admission = endpoint.NewAdmission(endpoint.AdmissionConfig{MaxConnections: 2, Logger: c.Logger, Metrics: c.Metrics})
	})
	const events = "GET /feeds/{feed}/events"
	open := func(consumer, token string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Address()+"/feeds/all/events?consumer="+consumer, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token+"-token")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	first, second := open("events", "events"), open("public", "public")
	if first.StatusCode != http.StatusOK || second.StatusCode != http.StatusOK {
		t.Fatal(first.Status, second.Status)
	}
	status, header, body := s.asks(t, events, otherConsumer, otherConsumer)
	if status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" || !strings.Contains(body, "2 connections") {
		t.Errorf("a third: %d %v %s", status, header, body)
	}
	_ = first.Body.Close()
	for range testenv.Attempts() {
		if status, _, body = s.asks(t, events, otherConsumer, otherConsumer); status == http.StatusOK {
			return
		}
	}
	t.Fatalf("there is never space again: %d %s", status, body)
}
