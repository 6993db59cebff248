// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"
)

const (
	// nodesDoubt is how long a watch of nodes counts as failing after it last failed, as watchDoubt is.
	nodesDoubt = time.Minute
	// nodesGrace is how long the watch may fail while what was known before still counts: a restarted API server is away for less. Without
	// it, one broken connection would have pools create pods that find no node, and none of them would be removed when nodes are read
	// again.
	nodesGrace = 30 * time.Second
)

// nodeDoubt decides whether the known nodes can still be relied on.
type nodeDoubt struct {
	mu sync.Mutex
	// first and last are when the watch failed, without a pause between them in which it worked.
	first, last time.Time
	// denied: the right to read them is missing.
	denied bool
}

func (d *nodeDoubt) noteFailure(now time.Time, denied bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.last) >= nodesDoubt {
		d.first = now
	}
	d.last, d.denied = now, denied
}

// read: all of it has just been read.
func (d *nodeDoubt) read() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last, d.denied = time.Time{}, false
}

// isUnread: it is not known what the nodes have.
func (d *nodeDoubt) isUnread(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return now.Sub(d.last) < nodesDoubt && (d.denied || d.last.Sub(d.first) >= nodesGrace)
}
