// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"sync"
	"sync/atomic"
	"time"
)

// listeners remember when something was last received at each listener of each instrument. That is reported, not
// counted: it does not outlive the process.
type listeners struct {
	mu sync.RWMutex
	of map[listenerKey]*atomic.Int64 // nanoseconds since the Unix epoch
}

// listenerKey is a listener, by the name that its instrument gives it.
type listenerKey struct{ instrument, listener string }

// mark returns where it stands when something was last received at a listener.
func (l *listeners) mark(instrument, listener string) *atomic.Int64 {
	key := listenerKey{instrument, listener}
	l.mu.RLock()
	at := l.of[key]
	l.mu.RUnlock()
	if at != nil {
		return at
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if at = l.of[key]; at == nil {
		at = new(atomic.Int64)
		l.of[key] = at
	}
	return at
}

// ReceivedAt notes by which of its instrument's listeners an object came that Received counts.
func (l *Ledger) ReceivedAt(instrument, listener string, at time.Time) {
	l.listeners.mark(instrument, listener).Store(at.UnixNano())
}

// LastReceivedAt returns when this incarnation last received an object at a listener or read a datagram there; zero for
// never.
func (l *Ledger) LastReceivedAt(instrument, listener string) time.Time {
	l.listeners.mu.RLock()
	at := l.listeners.of[listenerKey{instrument, listener}]
	l.listeners.mu.RUnlock()
	if at == nil || at.Load() == 0 {
		return time.Time{}
	}
	return time.Unix(0, at.Load())
}
