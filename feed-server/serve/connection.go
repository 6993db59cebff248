// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/feed-server/session"
	"github.com/substorm/substorm/feed-server/state"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// Why a connection ends that did not end by itself.
var (
	errDraining = errors.New("this replica stops: connect again")
	errChanged  = errors.New("the FeedConsumer or its Feed has changed: connect again")
	errGone     = errors.New("the FeedConsumer, or its Feed, is gone")
	errRevoked  = errors.New("the credentials of this connection are no longer accepted")
	errTalks    = errors.New("consumers must not send messages")
	errSlow     = errors.New("the client read nothing for too long")
)

const (
	// retrySoon and retryAway are Retry-After in seconds: of what another replica may
	// do, and of what takes a server to come back.
	retrySoon = 1
	retryAway = 5
	// placeTimeout is how long a connection waits for its streams to be known.
	placeTimeout = 5 * time.Second
	// defaultConnections is the limit if the FeedConsumer sets none.
	defaultConnections = 1000
)

// asked is a request that may have what it asks for.
type asked struct {
	selection registry.Selection
	who       endpoint.Identity
	filter    *session.Filter
}

// placeOf says where the feed of a FeedConsumer is read.
func placeOf(feed, consumer, delivery string) string {
	switch delivery {
	case wire.DeliveryWebSocket:
		return fmt.Sprintf("read it at /feeds/%s/ws?consumer=%s", feed, consumer)
	case wire.DeliveryServerSentEvents:
		return fmt.Sprintf("read it at /feeds/%s/events?consumer=%s", feed, consumer)
	default:
		return "read it with a client of NATS, by the FeedConsumer's Secret"
	}
}

// authorize returns what a request asks for, or the problem if it may not have it. Delivery is the
// delivery by which it comes, or empty for any.
func (s *Server) authorize(r *http.Request, delivery string) (asked, *problem.Problem) {
	if s.draining.Load() {
		return asked{}, problem.New(http.StatusServiceUnavailable, "%v", errDraining).After(retrySoon)
	}
	if r.Header.Get("Authorization") == "" {
		if p := s.cfg.Admission.Wait(r, endpoint.Identity{}); p != nil {
			return asked{}, p
		}
	}
	snapshot := s.cfg.Registry.Snapshot()
	feed, consumer := r.PathValue("feed"), r.URL.Query().Get("consumer")
	if consumer == "" {
		return asked{}, problem.New(http.StatusBadRequest, "name a FeedConsumer of Feed %s: ?consumer=…", feed)
	}
	sel, err := snapshot.Select(consumer)
	if err != nil || sel.Feed.Feed != feed {
		if snapshot.Revision == 0 {
			return asked{}, problem.New(http.StatusServiceUnavailable, "this replica does not know the Site's Feeds yet").After(retryAway)
		}
		return asked{}, problem.New(http.StatusNotFound, "Feed %s has no FeedConsumer %s", feed, consumer)
	}
	if is := sel.Consumer.Delivery; delivery != "" && is != delivery {
		return asked{}, problem.New(http.StatusNotFound, "FeedConsumer %s has delivery %s: %s", consumer, is, placeOf(feed, consumer, is))
	}
	a := asked{selection: sel}
	var p *problem.Problem
	if secret := r.URL.Query().Get("ticket"); secret != "" && delivery != "" {
		a.who, p = s.byTicket(r, snapshot, secret, sel)
	} else {
		a.who, p = s.identify(snapshot, sel.Consumer, r)
	}
	if p != nil {
		return asked{}, p
	}
	leave, p := s.cfg.Admission.Enter(r, a.who, endpoint.People) // FeedConsumers do not give way
	if p != nil {
		return asked{}, p
	}
	context.AfterFunc(r.Context(), leave) // when it is answered
	a.filter, p = grant(snapshot, sel, a.who)
	return a, p
}

func (s *Server) byTicket(r *http.Request, now *registry.Snapshot, secret string, sel registry.Selection) (endpoint.Identity, *problem.Problem) {
	return s.cfg.Admission.Redeem(r, func() (endpoint.Identity, *problem.Problem) {
		who, err := s.tickets.take(r.Context(), secret, sel, time.Now())
		if err == nil && !who.Holds(now) {
			err = errTicket
		}
		if errors.Is(err, errTicket) {
			return endpoint.Identity{}, problem.New(http.StatusUnauthorized, "%v", err)
		}
		if err != nil {
			return endpoint.Identity{}, problem.New(http.StatusServiceUnavailable, "tickets cannot be looked up now: try again").After(retryAway)
		}
		return who, nil
	})
}

// connection is one client.
type connection struct {
	asked
	ctx    context.Context
	cancel context.CancelCauseFunc
	filter atomic.Pointer[session.Filter]
	meter  *state.Consumer
	// session is nil until it is opened.
	session *session.Session
	// release gives its place back.
	release func()
	// request that it began with, and bytes that were sent.
	request *http.Request
	bytes   atomic.Int64
}

// connect admits a client: there is space, and its place is found. Call s.leave
// when it goes.
func (s *Server) connect(r *http.Request, a asked, resume string, write writer) (*connection, *problem.Problem) {
	place, err := wire.ParseFeedToken(resume)
	if err != nil {
		return nil, problem.New(http.StatusBadRequest, "%v", err)
	}
	c := &connection{asked: a, request: r, meter: s.cfg.Consumers.Of(a.selection.Consumer)}
	c.filter.Store(a.filter)
	c.ctx, c.cancel = context.WithCancelCause(s.alive)
	if cert := a.who.Certificate; cert != nil {
		expires := time.AfterFunc(time.Until(cert.NotAfter), func() { c.cancel(errRevoked) })
		context.AfterFunc(c.ctx, func() { expires.Stop() })
	}
	if p := s.enter(c, r); p != nil {
		c.cancel(nil)
		return nil, p
	}
	ctx, cancel := context.WithTimeout(r.Context(), placeTimeout)
	defer cancel()
	c.session, err = session.New(ctx, session.Config{
		Consumer: a.selection.Consumer.Consumer, Flow: a.selection.Consumer.Flow, Notices: a.selection.Notices, Telemetry: a.selection.Telemetry,
		Token: place, Hub: s.cfg.Hub, Slots: s.cfg.Slots, Priorities: s.cfg.Priorities, Filter: c.filter.Load,
		Meter: c.meter, Write: c.counting(write), Logger: s.cfg.Logger,
	})
	switch {
	case err == nil:
		c.meter.Opened(c.session)
		s.logAccess(c, endpoint.EventOpened)
		if err := c.review(s.cfg.Registry.Snapshot()); err != nil { // it changed meanwhile
			c.cancel(err)
		}
		return c, nil
	case errors.Is(err, hub.ErrNoPlace):
		s.leave(c)
		return nil, problem.New(http.StatusBadRequest, "%v: connect without it", err)
	default:
		s.leave(c)
		return nil, problem.New(http.StatusServiceUnavailable, "the streams of Feed %s cannot be read now: try again", a.selection.Feed.Feed).After(retryAway)
	}
}

// writer gives a client messages, or its place alone.
type writer func(context.Context, []session.Entry, wire.FeedToken) (int, error)

// counting counts what write writes.
func (c *connection) counting(write writer) writer {
	return func(ctx context.Context, entries []session.Entry, place wire.FeedToken) (int, error) {
		n, err := write(ctx, entries, place)
		c.bytes.Add(int64(n))
		return n, err
	}
}

// openTo are the connections that are open to one consumer, and how many there may be.
type openTo struct {
	all    map[*connection]struct{}
	places *endpoint.Places
}

// enter counts a connection, where the consumer and the pod may have one more.
func (s *Server) enter(c *connection, r *http.Request) *problem.Problem {
	name := c.selection.Consumer.Consumer
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Load() {
		return problem.New(http.StatusServiceUnavailable, "%v", errDraining).After(retrySoon)
	}
	of := s.connections[name]
	if of == nil {
		of = &openTo{all: map[*connection]struct{}{}, places: endpoint.NewPlaces(0, func(held int) *problem.Problem {
			return problem.New(http.StatusTooManyRequests, "FeedConsumer %s has %d connections here, as many as it may: raise spec.maxConnections, or make another",
				name, held).After(retryAway)
		})}
	}
	of.places.Bound(cmp.Or(max(c.selection.Consumer.MaxConnections, 0), defaultConnections))
	address := s.cfg.Admission.AddressOf(r)
	leaveConsumer, full := of.places.Enter(address, c.who)
	if full != nil {
		return full
	}
	leavePod, full := s.cfg.Admission.Connections.Enter(address, c.who)
	if full != nil {
		leaveConsumer()
		s.full.Inc()
		return full
	}
	c.release = func() { leaveConsumer(); leavePod() }
	of.all[c] = struct{}{}
	s.connections[name] = of
	s.open.Add(1)
	return nil
}

// leave is the end of a connection that entered.
func (s *Server) leave(c *connection) {
	c.cancel(nil)
	if c.session != nil {
		c.session.Close()
		c.meter.Closed(c.session)
		s.logAccess(c, endpoint.EventClosed)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.release()
	name := c.selection.Consumer.Consumer
	of := s.connections[name]
	if delete(of.all, c); len(of.all) == 0 {
		delete(s.connections, name)
	}
	s.open.Done()
}

// review ends the connections that a new registry does not allow, and has the
// others given what they may have now.
func (s *Server) review(snapshot *registry.Snapshot) {
	s.mu.Lock()
	var all []*connection
	for _, of := range s.connections {
		all = slices.AppendSeq(all, maps.Keys(of.all))
	}
	s.mu.Unlock()
	for _, c := range all {
		if err := c.review(snapshot); err != nil {
			c.cancel(err)
		}
	}
}

func (c *connection) review(snapshot *registry.Snapshot) error {
	before := c.selection
	after, err := snapshot.Select(before.Consumer.Consumer)
	switch {
	case err != nil, after.Consumer.UID != before.Consumer.UID, after.Feed.UID != before.Feed.UID, after.Consumer.Delivery != before.Consumer.Delivery:
		return errGone
	case !c.who.Holds(snapshot):
		return errRevoked
	case !reflect.DeepEqual(after.Consumer.Flow, before.Consumer.Flow), after.Notices != before.Notices, after.Telemetry != before.Telemetry:
		return errChanged
	}
	filter, p := grant(snapshot, after, c.who)
	if p != nil {
		return errRevoked
	}
	c.filter.Store(filter)
	return nil
}
