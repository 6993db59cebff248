// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	ticketTimeout = 5 * time.Second
	ticketLife    = wire.LeaseTTL
	// ticketRate bounds the tickets that each replica gives for a FeedConsumer, in a
	// second, and ticketBurst at once: each is written to all replicas of a bucket in
	// which leases are too.
	ticketRate  = 10
	ticketBurst = 50
)

// tickets gives tickets and takes them, each once, whichever replica gave it.
type tickets struct {
	js   jetstream.JetStream
	site string

	rates *rates
}

// give keeps a ticket and returns its secret.
func (t *tickets) give(ctx context.Context, ticket wire.Ticket) (secret string, err error) {
	ctx, cancel := context.WithTimeout(ctx, ticketTimeout)
	defer cancel()
	kv, err := t.js.KeyValue(ctx, wire.LeaseBucket(t.site))
	if err != nil {
		return "", err
	}
	b, err := ticket.Encode()
	if err != nil {
		return "", err
	}
	secret = rand.Text()
	_, err = kv.Create(ctx, wire.TicketKey(secret), b)
	return secret, err
}

var errTicket = errors.New("the ticket is used, expired, or of another consumer: ask for another")

// take returns who showed a ticket, which is used up then. Errors: errTicket,
// JetStream's.
func (t *tickets) take(ctx context.Context, secret, feed, consumer string, now time.Time) (identity, error) {
	ctx, cancel := context.WithTimeout(ctx, ticketTimeout)
	defer cancel()
	kv, err := t.js.KeyValue(ctx, wire.LeaseBucket(t.site))
	if err != nil {
		return identity{}, err
	}
	key := wire.TicketKey(secret)
	// Pages come with it at once, to any replica: one of the bucket may not have it yet.
	value, revision, err := stream.Newest(ctx, t.js, wire.LeaseBucket(t.site), key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return identity{}, errTicket
	}
	if err != nil {
		return identity{}, err
	}
	ticket, err := wire.DecodeTicket(value)
	if err != nil || ticket.Feed != feed || ticket.Consumer != consumer || ticket.Reader == "" || !now.Before(ticket.ExpiresAt) {
		return identity{}, errTicket
	}
	// Of two who come with it at a time one is refused here.
	switch err := kv.Delete(ctx, key, jetstream.LastRevision(revision)); {
	case errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return identity{}, errTicket
	case err != nil: // it may be used up: the client asks for another
		return identity{}, err
	}
	return identity{reader: access.Reader{Name: ticket.Reader}}, nil
}

// serveTickets answers POST /feeds/{feed}/tickets.
func (s *Server) serveTickets(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*") // credentials are shown by the page itself, or not at all
	h.Set("Cache-Control", "no-store")
	a, p := s.ask(r, "")
	if is := a.selection.Consumer.Delivery; p == nil && is == wire.DeliveryNATS {
		p = problem.New(http.StatusNotFound, "FeedConsumer %s has delivery %s, which takes no tickets", a.selection.Consumer.Consumer, is)
	}
	if p == nil {
		p = s.mayHaveTicket(a)
	}
	if p != nil {
		s.refuse(w, r, p)
		return
	}
	ticket := wire.Ticket{
		Feed: a.selection.Feed.Feed, Consumer: a.selection.Consumer.Consumer, Reader: a.who.reader.Name,
		ExpiresAt: time.Now().Add(ticketLife).UTC(),
	}
	secret, err := s.tickets.give(r.Context(), ticket)
	if err != nil {
		s.refuse(w, r, problem.New(http.StatusServiceUnavailable, "tickets cannot be kept now: try again").After(retryAway))
		s.cfg.Logger.Warn("a ticket cannot be kept", "error", err)
		return
	}
	h.Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{"ticket": secret, "expiresAt": ticket.ExpiresAt})
}

// mayHaveTicket says why who asks is given none now; nil: they are.
func (s *Server) mayHaveTicket(a asked) *problem.Problem {
	consumer := a.selection.Consumer.Consumer
	switch {
	case a.who.reader.Name == "":
		return problem.New(http.StatusBadRequest, "FeedConsumer %s gives strangers what is public without a ticket: connect without one, or show a token here", consumer)
	case !s.tickets.rates.may(consumer):
		return problem.New(http.StatusTooManyRequests, "FeedConsumer %s was given %d tickets a second here, as many as it may", consumer, ticketRate).After(retrySoon)
	default:
		return nil
	}
}

// preflight answers what browsers ask before they send a token to another site.
func preflight(methods string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Allow-Methods", methods)
		h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Last-Event-ID")
		h.Set("Access-Control-Max-Age", "86400")
		w.WriteHeader(http.StatusNoContent)
	}
}
