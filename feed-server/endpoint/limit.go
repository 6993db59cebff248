// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"cmp"
	"container/list"
	"context"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/problem"
)

// Rate is how many requests a second one client may make, and how many at once
// after it made none for a while.
type Rate struct {
	PerSecond float64
	Burst     int
}

// Limits are what a client may ask for. The zero value of a member is its default.
type Limits struct {
	// Person and Robot are the rates of the classes, each client by itself. A page of
	// a person's has some dozens of images; a mirror asks for one thing after the
	// other, as fast as it is answered.
	Person, Robot Rate
	// Failures is how often one address may show invalid credentials: a token, a ticket, a
	// certificate. An address that did so more often gets late answers, except to valid
	// credentials.
	Failures Rate
	// Patience is how long a request that comes too early waits for its turn: a client that makes
	// one at a time is slowed down, and never refused. It is also the longest time that an answer
	// to invalid credentials is held back.
	Patience time.Duration
	// Waiting is how many may wait at a time, of all clients together, and how many answers
	// are held back.
	Waiting int
	// Clients is how many are remembered: who asked last.
	Clients int
}

// DefaultLimits are the limits that apply by default.
func DefaultLimits() Limits {
	return Limits{
		Person: Rate{PerSecond: 200, Burst: 2000}, Robot: Rate{PerSecond: 100, Burst: 1000}, Failures: Rate{PerSecond: 0.5, Burst: 20},
		Patience: 2 * time.Second, Waiting: 1024, Clients: 1 << 16,
	}
}

func (l Limits) withDefaults() Limits {
	or := DefaultLimits()
	rate := func(r, or Rate) Rate { return Rate{cmp.Or(r.PerSecond, or.PerSecond), cmp.Or(r.Burst, or.Burst)} }
	return Limits{
		Person: rate(l.Person, or.Person), Robot: rate(l.Robot, or.Robot), Failures: rate(l.Failures, or.Failures),
		Patience: cmp.Or(l.Patience, or.Patience), Waiting: cmp.Or(l.Waiting, or.Waiting), Clients: cmp.Or(l.Clients, or.Clients),
	}
}

// Limiter holds clients to their limits.
type Limiter struct {
	limits  Limits
	limited atomic.Uint64
	refused *prometheus.CounterVec
	waiting *Places
	rates
}

// rates are the limits of the clients that asked last.
type rates struct {
	most int

	mu      sync.Mutex
	clients map[client]*list.Element // of *limited
	recent  list.List                // who asked last is in front
}

// client is the subject of a limit.
type client struct {
	address netip.Addr
	reader  string
	class   Class
	// wide: it is all of a network of 48 bits, whose address one of 64 bits may have too.
	wide bool
}

// network is the client that all of a network of 48 bits are.
func (c client) network() client {
	c.address, c.wide = WideOf(c.address)
	return c
}

type limited struct {
	client
	rate *rate.Limiter
}

// NewLimiter returns a limiter that counts in metrics what it refuses.
func NewLimiter(limits Limits, metrics prometheus.Registerer) *Limiter {
	limits = limits.withDefaults()
	return &Limiter{
		limits: limits, waiting: NewPlaces(limits.Waiting, podFull), rates: rates{most: limits.Clients, clients: map[client]*list.Element{}},
		refused: metric.Counters(metrics, "substorm_archive_limited_total",
			"Requests that were answered 429 because their client asked too often, by class of client.", "class"),
	}
}

// Admit waits until a client may ask, or refuses: it asks far too often, or too many wait. Each
// of several readers behind one address is a client of its own.
func (l *Limiter) Admit(ctx context.Context, class Class, address netip.Addr, who Identity) *problem.Problem {
	reservation := l.reserve(client{address: address, reader: who.Reader.String(), class: class}, l.limits.rate(class))
	delay := reservation.Delay()
	if delay == 0 {
		return nil
	}
	if delay > l.limits.Patience {
		return l.refuse(reservation, class, delay)
	}
	leave, refused := l.waiting.Enter(address, who)
	if refused != nil {
		return l.refuse(reservation, class, delay)
	}
	defer leave()
	turn := time.NewTimer(delay)
	defer turn.Stop()
	select {
	case <-turn.C:
	case <-ctx.Done():
		reservation.Cancel()
	}
	return nil
}

// reservations are the reservations of a client and of its network.
type reservations []*rate.Reservation

// reserve takes one of what a client may, and of what its network may: nothing of that where the client itself asks far too often.
func (l *Limiter) reserve(c client, allowed Rate) reservations {
	all := reservations{l.of(c, allowed).Reserve()}
	if network := c.network(); network.wide && all.Delay() <= l.limits.Patience {
		all = append(all, l.of(network, allowed.times(networkShare)).Reserve())
	}
	return all
}

// Delay is how long the client has to wait.
func (r reservations) Delay() (delay time.Duration) {
	for _, one := range r {
		delay = max(delay, one.Delay())
	}
	return delay
}

// Cancel gives back what was taken.
func (r reservations) Cancel() {
	for _, one := range r {
		one.Cancel()
	}
}

// times is a rate of several clients.
func (r Rate) times(n int) Rate { return Rate{r.PerSecond * float64(n), r.Burst * n} }

func (l *Limiter) refuse(reservation reservations, class Class, delay time.Duration) *problem.Problem {
	reservation.Cancel()
	l.limited.Add(1)
	l.refused.WithLabelValues(class.String()).Inc()
	allowed := l.limits.rate(class)
	return problem.New(http.StatusTooManyRequests,
		"you may make %g requests a second here, %d at once: make fewer at a time, and ask with If-None-Match or If-Modified-Since for what you have",
		allowed.PerSecond, allowed.Burst).After(int((delay + time.Second - 1) / time.Second))
}

func (l Limits) rate(class Class) Rate {
	if class == Robot {
		return l.Robot
	}
	return l.Person
}

// of returns a client's limiter, which starts with the full burst. The one that asked longest ago
// is forgotten if there are too many.
func (l *rates) of(c client, allowed Rate) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.clients[c]; e != nil {
		l.recent.MoveToFront(e)
		return e.Value.(*limited).rate
	}
	if l.recent.Len() >= l.most {
		oldest := l.recent.Back()
		l.recent.Remove(oldest)
		delete(l.clients, oldest.Value.(*limited).client)
	}
	entry := &limited{c, rate.NewLimiter(rate.Limit(allowed.PerSecond), allowed.Burst)}
	l.clients[c] = l.recent.PushFront(entry)
	return entry.rate
}
