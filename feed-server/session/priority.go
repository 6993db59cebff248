// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// maxYield is how long a writer of priority Normal waits at most for writers of priority Urgent: no
// urgent consumer can stop the others.
const maxYield = 20 * time.Millisecond

// Priorities let what is urgent be written before what is not, in one process.
type Priorities struct {
	mu      sync.Mutex
	waiting int
	none    chan struct{} // closed when nothing waits any more
	// most is how long Yield waits at most; 0: maxYield.
	most time.Duration
}

// Waits records that something urgent waits to be written, until Written is called.
func (l *Priorities) Waits() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting++; l.waiting == 1 {
		l.none = make(chan struct{})
	}
}

// Written undoes what Waits said.
func (l *Priorities) Written() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting--; l.waiting == 0 {
		close(l.none)
	}
}

// Yield waits while something urgent does, or maxYield is over.
func (l *Priorities) Yield(ctx context.Context) {
	l.mu.Lock()
	waiting, none := l.waiting, l.none
	l.mu.Unlock()
	if waiting == 0 {
		return
	}
	enough := time.NewTimer(cmp.Or(l.most, maxYield))
	defer enough.Stop()
	select {
	case <-none:
	case <-enough.C:
	case <-ctx.Done():
	}
}
