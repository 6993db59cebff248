// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"context"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// mayGather says whether an Instrument's `acknowledge` lets its datagrams wait in memory for those of others. Stored and Replicated promise
// the most, and with them a kill takes as little as on any other Site.
func mayGather(acknowledge string) bool {
	return acknowledge == wire.AcknowledgeStoredOrSpooled || acknowledge == wire.AcknowledgeSpooled
}

// gathers says whether a flow's message may wait for those of others now: not where half of the memory is used.
func (r *Receiver) gathers(f *flow) bool {
	return f.mayGather && r.cfg.Gather > wire.TelemetryMaxAge && r.memory.used.Load() <= r.memory.size/2
}

// closes says when a message that is opened now must be closed. Those that gather close together, so that the stream syncs all of them at
// once.
func (r *Receiver) closes(f *flow, now time.Time) time.Time {
	if !r.gathers(f) {
		return now.Add(wire.TelemetryMaxAge)
	}
	return now.Add(r.cfg.Gather - now.Sub(r.began)%r.cfg.Gather)
}

// hasOpen notes that a message was opened, for closeAged.
func (r *Receiver) hasOpen(closes time.Time) {
	if next := r.nextClose.Load(); next != 0 && closes.UnixNano() >= next {
		return
	}
	select {
	case r.opened <- struct{}{}:
	default:
	}
}

// closeAged closes messages as they must be, until ctx ends.
func (r *Receiver) closeAged(ctx context.Context) {
	due := time.NewTimer(time.Hour)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.opened:
		case <-due.C:
		}
		r.nextClose.Store(0) // a flow that opens one from here on wakes us
		next := r.closeDue(time.Now())
		if next.IsZero() {
			continue
		}
		r.nextClose.Store(next.UnixNano())
		due.Reset(max(time.Until(next), minFlush))
	}
}

// minFlush bounds how often all ports are looked through.
const minFlush = 5 * time.Millisecond

// closeDue closes messages that must be closed by an instant, and returns when the first that is left must be; zero if there is none.
func (r *Receiver) closeDue(by time.Time) (next time.Time) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, p := range r.ports {
		next = earlier(next, p.closeDue(by))
	}
	return next
}

// closeOpen closes all messages.
func (r *Receiver) closeOpen() { r.closeDue(time.Now().Add(time.Hour)) }

// earlier returns the earlier of two instants; zero means none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
