// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	ticketTimeout  = 5 * time.Second
	ticketLifetime = wire.LeaseTTL
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
	b, err := wire.Encode(ticket)
	if err != nil {
		return "", err
	}
	secret = rand.Text()
	_, err = kv.Create(ctx, wire.TicketKey(secret), b)
	return secret, err
}

var errTicket = errors.New("the ticket is used, expired or of another consumer, or its credentials are no longer accepted: request another one")

// take returns who showed a ticket for what a consumer selects, which is used up then:
// who asked for it, by what they showed then. Errors: errTicket, JetStream's.
func (t *tickets) take(ctx context.Context, secret string, sel registry.Selection, now time.Time) (endpoint.Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, ticketTimeout)
	defer cancel()
	kv, err := t.js.KeyValue(ctx, wire.LeaseBucket(t.site))
	if err != nil {
		return endpoint.Identity{}, err
	}
	key := wire.TicketKey(secret)
	// Pages come with it at once, to any replica: one of the bucket may not have it yet.
	value, revision, err := stream.Newest(ctx, t.js, wire.LeaseBucket(t.site), key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return endpoint.Identity{}, errTicket
	}
	if err != nil {
		return endpoint.Identity{}, err
	}
	ticket, err := wire.Decode[wire.Ticket](value)
	if err != nil || ticket.Feed != sel.Feed.Feed || ticket.Consumer != sel.Consumer.Consumer || !now.Before(ticket.ExpiresAt) {
		return endpoint.Identity{}, errTicket
	}
	who, ok := whoAsked(ticket, sel)
	if !ok {
		return endpoint.Identity{}, errTicket
	}
	// If two clients come with it at the same time, one is refused here.
	switch err := kv.Delete(ctx, key, jetstream.LastRevision(revision)); {
	case errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return endpoint.Identity{}, errTicket
	case err != nil: // it may be used up: the client asks for another
		return endpoint.Identity{}, err
	}
	return who, nil
}

// whoAsked is who asked for a ticket; false where it does not say by what that is known.
func whoAsked(ticket wire.Ticket, sel registry.Selection) (endpoint.Identity, bool) {
	who := endpoint.Identity{Reader: access.SiteReader(ticket.Reader)}
	if _, is := access.ConsumerOf(ticket.Reader); is {
		who.Reader = sel.Reader()
	}
	if ticket.Reader == "" || who.Reader.String() != ticket.Reader {
		return who, false
	}
	if len(ticket.Certificate) > 0 {
		cert, err := x509.ParseCertificate(ticket.Certificate)
		who.Certificate = cert
		return who, err == nil
	}
	if ticket.By == nil {
		return who, false
	}
	who.By = *ticket.By
	return who, true
}

// serveTickets answers POST /feeds/{feed}/tickets.
func (s *Server) serveTickets(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*") // credentials are shown by the page itself, or not at all
	h.Set("Cache-Control", "no-store")
	a, p := s.authorize(r, "")
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
		Feed: a.selection.Feed.Feed, Consumer: a.selection.Consumer.Consumer, Reader: a.who.Reader.String(),
		ExpiresAt: time.Now().Add(ticketLifetime).UTC(),
	}
	if a.who.Certificate != nil {
		ticket.Certificate = a.who.Certificate.Raw
	} else {
		ticket.By = &a.who.By
	}
	secret, err := s.tickets.give(r.Context(), ticket)
	if err != nil {
		s.refuse(w, r, problem.New(http.StatusServiceUnavailable, "tickets cannot be stored now: try again").After(retryAway))
		s.cfg.Logger.Warn("cannot store a ticket", "error", err)
		return
	}
	h.Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{"ticket": secret, "expiresAt": ticket.ExpiresAt})
}

// mayHaveTicket returns the reason why the client gets no ticket now; nil: it gets one.
func (s *Server) mayHaveTicket(a asked) *problem.Problem {
	consumer := a.selection.Consumer.Consumer
	switch {
	case a.who.Reader.Anonymous():
		return problem.New(http.StatusBadRequest, "FeedConsumer %s gives anonymous readers what is public without a ticket: connect without one, or show a token here", consumer)
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
