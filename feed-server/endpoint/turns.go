// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"container/list"
	"context"
	"maps"
	"sync"
	"time"
)

const (
	// TurnPatience is how long a request of HTTP waits for its turn.
	TurnPatience = 10 * time.Second
	// waitingTurns is how many requests of anonymous clients wait at a time, and waitingEach how
	// many of one client.
	waitingTurns, waitingEach = 256, 8
	// networkShare is how much more than one address all of a network of 48 bits may have, of what an address may have several.
	networkShare = 4
	// servedClients is of how many clients it is known when they had their last turn.
	servedClients = 4096
)

// Turns bound how many long answers are sent at a time. A part is kept for readers, see Places. A
// client that has turns gets another only if more are free than it has: it has at most half of all,
// rounded up, and a second client half of the rest. All clients of an IPv6 network of 48 bits have
// no more than one client. The waiting client whose last turn is longest ago is first. So slow
// clients keep no other client out, as long as they are few, and anonymous clients, however many,
// keep no reader out.
type Turns struct {
	all      int
	patience time.Duration

	mu   sync.Mutex
	free int
	// has is how many turns each network has, and served when one of it got its last.
	has     map[client]int
	served  map[client]uint64
	count   uint64
	waiting list.List // of *waiter, the first to come in front
	// kept is how many of the free ones are for readers alone, as long as they are free.
	kept int
	// waits is how many of each client and of each network wait, and anonymous how many who show nothing.
	waits, waitsOf map[client]int
	anonymous      int
}

// waiter is a request that waits; turn is closed when it has one, and displaced when it has to leave for another.
type waiter struct {
	client
	turn, displaced chan struct{}
}

func newWaiter(c client) *waiter {
	return &waiter{client: c, turn: make(chan struct{}), displaced: make(chan struct{})}
}

// NewTurns returns so many, at least one.
func NewTurns(n int) *Turns {
	return &Turns{all: max(1, n), patience: TurnPatience, free: max(1, n), kept: reserved(n), has: map[client]int{}, served: map[client]uint64{},
		waits: map[client]int{}, waitsOf: map[client]int{}}
}

// MaxOf is how many turns a client has at the same time while no other has any.
func (t *Turns) MaxOf(v *Request) (has int) {
	free := t.all
	if v.Reader.String() == "" {
		free -= t.kept
	}
	for ; has < free; free-- {
		has++
	}
	return has
}

// Take waits for a turn. A caller that gets one calls done after the answer. It returns false if
// the patience, or ctx, ends before, or too many requests wait. Requests of one address and reader
// belong to one client; requests with v == nil belong to one client too.
func (t *Turns) Take(ctx context.Context, v *Request) (done func(), ok bool) {
	if v == nil {
		return t.take(ctx, client{})
	}
	v.turns = t
	return t.take(ctx, client{address: v.check.cfg.Admission.AddressOf(v.Request), reader: v.Reader.String()})
}

func (t *Turns) take(ctx context.Context, c client) (done func(), ok bool) {
	w := newWaiter(c)
	place, ok := t.enqueue(w)
	if !ok {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	select {
	case <-w.turn:
	case <-w.displaced:
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-w.turn: // maybe just now
		return func() { t.give(w.network()) }, true
	default:
	}
	select {
	case <-w.displaced: // it has left
	default:
		t.leave(place)
	}
	return nil, false
}

// enqueue has a request wait, if there is space, and gives it a turn if one is free.
func (t *Turns) enqueue(w *waiter) (place *list.Element, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.reader == "" && (t.waits[w.client] >= waitingEach || t.waitsOf[w.network()] >= networkShare*waitingEach || t.anonymous >= waitingTurns && !t.displace(w)) {
		return nil, false
	}
	if w.reader == "" {
		t.anonymous++
	}
	t.waits[w.client]++
	t.waitsOf[w.network()]++
	place = t.waiting.PushBack(w)
	t.share()
	return place, true
}

// displace has a waiting anonymous request leave for another one: the last request of the network with the most waiting
// requests, if these are more than those of the other's network. It reports whether one left.
func (t *Turns) displace(other *waiter) bool {
	var last *list.Element
	most := t.waitsOf[other.network()] + 1
	for e := t.waiting.Back(); e != nil; e = e.Prev() {
		w := e.Value.(*waiter)
		if waits := t.waitsOf[w.network()]; w.reader == "" && waits > most {
			last, most = e, waits
		}
	}
	if last == nil {
		return false
	}
	close(last.Value.(*waiter).displaced)
	t.leave(last)
	return true
}

// leave ends a waiter's waiting.
func (t *Turns) leave(place *list.Element) {
	w := t.waiting.Remove(place).(*waiter)
	if w.reader == "" {
		t.anonymous--
	}
	takeOne(t.waits, w.client)
	takeOne(t.waitsOf, w.network())
}

// takeOne counts one less, and forgets whose count is zero.
func takeOne(counts map[client]int, c client) {
	if counts[c]--; counts[c] == 0 {
		delete(counts, c)
	}
}

// Wanted reports whether a request waits for a turn.
func (t *Turns) Wanted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting.Len() > 0
}

func (t *Turns) give(c client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	takeOne(t.has, c)
	t.share()
}

// share gives free turns to the waiting requests: first to the client whose last turn is longest ago,
// or else to the first that came.
func (t *Turns) share() {
	for t.free > 0 {
		e := t.next()
		if e == nil {
			return
		}
		w := e.Value.(*waiter)
		t.free--
		t.has[w.network()]++
		t.serve(w.network())
		t.leave(e)
		close(w.turn)
	}
}

// next is the request that gets a turn now; nil: no waiting request may have another.
func (t *Turns) next() (next *list.Element) {
	last := uint64(0)
	for e := t.waiting.Front(); e != nil; e = e.Next() {
		w := e.Value.(*waiter)
		free := t.free
		if w.reader == "" {
			free -= t.kept
		}
		if served := t.served[w.network()]; t.has[w.network()] < free && (next == nil || served < last) {
			next, last = e, served
		}
	}
	return next
}

// serve records that a client got a turn, and forgets the clients that got none for longest if there
// are too many.
func (t *Turns) serve(c client) {
	t.count++
	t.served[c] = t.count
	if len(t.served) > servedClients {
		maps.DeleteFunc(t.served, func(_ client, at uint64) bool { return t.count-at >= servedClients/2 })
	}
}
