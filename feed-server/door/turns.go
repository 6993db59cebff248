// SPDX-License-Identifier: Apache-2.0

package door

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// TurnPatience is how long a request waits for its turn.
const TurnPatience = 10 * time.Second

// Turns bound how many long answers are sent at a time. While a client has any it gets
// another only where more are free than it has: of all it has half at most, rounded up, a
// second one half of the rest. So slow ones keep nobody out, as long as they are few.
type Turns struct {
	mu      sync.Mutex
	free    int
	has     map[client]int
	waiting list.List // of *waiter, who came first in front
}

// waiter is a request that waits; turn is closed when it has one.
type waiter struct {
	client
	turn chan struct{}
}

// NewTurns returns so many, at least one.
func NewTurns(n int) *Turns {
	return &Turns{free: max(1, n), has: map[client]int{}}
}

// Take waits for a turn; whoever gets one calls done behind the answer. It is false where
// TurnPatience, or ctx, was over before. Visits of one address and reader are one
// client's; nil is one too.
func (t *Turns) Take(ctx context.Context, v *Visit) (done func(), ok bool) {
	w := &waiter{turn: make(chan struct{})}
	if v != nil {
		w.client = client{address: v.gate.cfg.Proxies.AddressOf(v.Request), reader: v.Reader.Name}
	}
	done = func() { t.give(w.client) }
	t.mu.Lock()
	place := t.waiting.PushBack(w)
	t.share()
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, TurnPatience)
	defer cancel()
	select {
	case <-w.turn:
		return done, true
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-w.turn: // just now
		return done, true
	default:
		t.waiting.Remove(place)
		return nil, false
	}
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
		if w := e.Value.(*waiter); t.has[w.client] < t.free {
			t.free--
			t.has[w.client]++
			t.waiting.Remove(e)
			close(w.turn)
		}
		e = next
	}
}
