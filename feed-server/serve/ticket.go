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
	"github.com/substorm/substorm/internal/wire"
)

const (
	ticketTimeout = 5 * time.Second
	ticketLife    = wire.LeaseTTL
)

// tickets gives tickets and takes them, each once, whichever replica gave it.
type tickets struct {
	js   jetstream.JetStream
	site string
}

// give keeps a ticket and returns its secret.
func (t tickets) give(ctx context.Context, ticket wire.Ticket) (secret string, err error) {
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
func (t tickets) take(ctx context.Context, secret, feed, consumer string, now time.Time) (identity, error) {
	ctx, cancel := context.WithTimeout(ctx, ticketTimeout)
	defer cancel()
	kv, err := t.js.KeyValue(ctx, wire.LeaseBucket(t.site))
	if err != nil {
		return identity{}, err
	}
	entry, err := kv.Get(ctx, wire.TicketKey(secret))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return identity{}, errTicket
	}
	if err != nil {
		return identity{}, err
	}
	ticket, err := wire.DecodeTicket(entry.Value())
	if err != nil || ticket.Feed != feed || ticket.Consumer != consumer || !now.Before(ticket.ExpiresAt) {
		return identity{}, errTicket
	}
	// Of two who come with it at a time one is refused here.
	if err := kv.Delete(ctx, entry.Key(), jetstream.LastRevision(entry.Revision())); err != nil {
		return identity{}, errTicket
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
		p = newProblem(http.StatusNotFound, "FeedConsumer %s has delivery %s, which takes no tickets", a.selection.Consumer.Consumer, is)
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
		s.refuse(w, r, newProblem(http.StatusServiceUnavailable, "tickets cannot be kept now: try again").after(retryAway))
		s.cfg.Logger.Warn("a ticket cannot be kept", "error", err)
		return
	}
	h.Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{"ticket": secret, "expiresAt": ticket.ExpiresAt})
}

// preflight answers what browsers ask before they send a token to another site.
func preflight(method string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Allow-Methods", method)
		h.Set("Access-Control-Allow-Headers", "Authorization, Last-Event-ID")
		h.Set("Access-Control-Max-Age", "86400")
		w.WriteHeader(http.StatusNoContent)
	}
}
