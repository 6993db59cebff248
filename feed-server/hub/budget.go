// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"sync"
	"sync/atomic"
)

// Budget bounds the bytes that the rings of a program hold together. If it is spent, the
// largest ring drops its oldest messages: a quiet stream keeps what it has beside a busy one,
// and a busy one alone may take all.
type Budget struct {
	limit int64
	used  atomic.Int64

	mu    sync.Mutex
	rings map[*Ring]struct{}
}

// NewBudget returns a budget in bytes.
func NewBudget(limit int) *Budget {
	return &Budget{limit: int64(limit), rings: map[*Ring]struct{}{}}
}

// Used is how many bytes are held.
func (b *Budget) Used() int64 { return b.used.Load() }

// NewRing returns an empty ring, which begins at a sequence.
func (b *Budget) NewRing(begin uint64) *Ring {
	r := &Ring{budget: b, first: begin, next: begin, urgent: make(chan struct{}), changed: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rings[r] = struct{}{}
	return r
}

// remove forgets a ring that has let go of everything.
func (b *Budget) remove(r *Ring) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.rings, r)
}

// enforceLimit has rings let go of messages until the budget is kept. No ring's lock may
// be held. One message of each ring stays, however large it is.
func (b *Budget) enforceLimit() {
	if b.used.Load() <= b.limit {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.used.Load() > b.limit {
		var largest *Ring
		most, second := 0, 0
		for r := range b.rings {
			bytes := r.spare()
			switch {
			case bytes > most:
				largest, most, second = r, bytes, most
			case bytes > second:
				second = bytes
			}
		}
		if largest == nil {
			return // each holds one message
		}
		largest.trim(second)
	}
}
