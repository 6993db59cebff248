// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"container/list"
	"context"
	"sync"
	"time"
)

const (
	// TurnPatience is how long a request waits for its turn.
	TurnPatience = 10 * time.Second
	// waitingTurns is how many requests of those who show nothing wait at a time, and
	// waitingEach how many of one client.
	waitingTurns, waitingEach = 256, 8
)

// Turns bound how many long answers are sent at a time. A part is kept for readers, see
// Places. While a client has any turn it gets another only where more are free than it
// has: of all it has half at most, rounded up, a second one half of the rest. So slow
// ones keep nobody out, as long as they are few; and many who show nothing keep no
// reader out.
type Turns struct {
	all int

	mu      sync.Mutex
	free    int
	has     map[client]int
	waiting list.List // of *waiter, who came first in front
	// kept is how many of the free ones are for readers alone, as long as they are free.
	kept int
	// waits is how many of each client wait, and anonymous how many who show nothing.
	waits     map[client]int
	anonymous int
}

// waiter is a request that waits; turn is closed when it has one.
type waiter struct {
	client
	turn chan struct{}
}

// NewTurns returns so many, at least one.
func NewTurns(n int) *Turns {
	return &Turns{all: max(1, n), free: max(1, n), kept: reserved(n), has: map[client]int{}, waits: map[client]int{}}
}

// MostOf is how many turns a client has at the same time while no other has any.
func (t *Turns) MostOf(v *Request) (has int) {
	free := t.all
	if v.Reader.String() == "" {
		free -= t.kept
	}
	for ; has < free; free-- {
		has++
	}
	return has
}

// Take waits for a turn; whoever gets one calls done behind the answer. It is false where
// TurnPatience, or ctx, was over before, or too many wait. Requests of one address and
// reader are one client's; nil is one too.
func (t *Turns) Take(ctx context.Context, v *Request) (done func(), ok bool) {
	if v == nil {
		return t.take(ctx, client{})
	}
	v.turns = t
	return t.take(ctx, client{address: v.check.cfg.Admission.AddressOf(v.Request), reader: v.Reader.String()})
}

func (t *Turns) take(ctx context.Context, c client) (done func(), ok bool) {
	w := &waiter{client: c, turn: make(chan struct{})}
	place, ok := t.enqueue(w)
	if !ok {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, TurnPatience)
	defer cancel()
	select {
	case <-w.turn:
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-w.turn: // maybe just now
		return func() { t.give(w.client) }, true
	default:
		t.leave(place)
		return nil, false
	}
}

// enqueue has a request wait, if there is space, and gives it a turn if one is free.
func (t *Turns) enqueue(w *waiter) (place *list.Element, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.reader == "" && (t.anonymous >= waitingTurns || t.waits[w.client] >= waitingEach) {
		return nil, false
	}
	if w.reader == "" {
		t.anonymous++
	}
	t.waits[w.client]++
	place = t.waiting.PushBack(w)
	t.share()
	return place, true
}

// leave ends a waiter's waiting.
func (t *Turns) leave(place *list.Element) {
	w := t.waiting.Remove(place).(*waiter)
	if w.reader == "" {
		t.anonymous--
	}
	if t.waits[w.client]--; t.waits[w.client] == 0 {
		delete(t.waits, w.client)
	}
}

// Wanted says whether somebody waits for a turn.
func (t *Turns) Wanted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting.Len() > 0
}

func (t *Turns) give(c client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	if t.has[c]--; t.has[c] == 0 {
		delete(t.has, c)
	}
	t.share()
}

// share gives what is free to those who wait, in their order.
func (t *Turns) share() {
	for e := t.waiting.Front(); e != nil && t.free > 0; {
		next := e.Next()
		w := e.Value.(*waiter)
		free := t.free
		if w.reader == "" {
			free -= t.kept
		}
		if t.has[w.client] < free {
			t.free--
			t.has[w.client]++
			t.leave(e)
			close(w.turn)
		}
		e = next
	}
}
