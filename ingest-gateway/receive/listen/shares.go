// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// floor is how many bytes a second a connection brings on average, over slowAfter or
	// longer, or else gives way where its instrument has as many as it may. It is
	// less than half of what a satellite modem of 2,400 bit/s carries.
	floor     = 128
	slowAfter = 30 * time.Second
	// alone is the time of a connection beside a newcomer whose address has none. A crowd of as many addresses as there may be
	// connections then keeps a sender out for as long as that.
	alone = 10 * time.Second
)

// Shares bound what is open of each instrument at a time: connections, or requests over HTTP. If as many are open as may be, a newcomer displaces the
// oldest of the address that has the most, unless its own has as many; else the oldest that is slower than the floor, of its own address or of one
// that has more; sooner, if its own has none. Only entries that wait for their senders may be displaced, not those whose object is whole and on its
// way to the store. Methods may be called from many goroutines.
type Shares struct {
	mu  sync.Mutex
	now func() time.Time
	of  map[string]*share
}

// share is an instrument's: what is open of it, and those of it that wait for their senders.
type share struct {
	open    map[*Entry]struct{}
	waiting crowd
}

// Entry is one connection, or request, of an instrument.
type Entry struct {
	member
	shares *Shares
	share  *share
	name   string
	slot   *Slot
	evict  func()
	// bytes came since it began to wait for its sender.
	bytes atomic.Int64
	// Guarded by shares.mu. Since is when it began to wait for its sender, and holds
	// how many of its objects are on their way to the store.
	since time.Time
	holds int
	over  bool
}

// NewShares returns Shares with nothing open.
func NewShares() *Shares { return &Shares{now: time.Now, of: map[string]*share{}} }

// Enter counts one more of an instrument, which may have most at a time, over the connection that
// holds slot. It returns nil if there are as many and none gives way. Evict ends the entry; it is
// called once at most, before Leave, and does not wait.
func (s *Shares) Enter(instrument string, most int, source netip.Addr, slot *Slot, evict func()) *Entry {
	s.mu.Lock()
	of := s.of[instrument]
	if of == nil {
		of = &share{open: map[*Entry]struct{}{}, waiting: newCrowd()}
		s.of[instrument] = of
	}
	e := &Entry{shares: s, share: of, name: instrument, slot: slot, evict: evict, since: s.now()}
	e.member = newMember(source, e)
	var gone *Entry
	if len(of.open) >= most {
		if gone = of.yieldsTo(e, e.since); gone == nil {
			s.mu.Unlock()
			return nil
		}
		gone.end()
	}
	of.open[e] = struct{}{}
	e.join(&of.waiting)
	s.mu.Unlock()
	if gone != nil {
		gone.evict()
	}
	return e
}

// yieldsTo returns the entry that gives way to a newcomer, or nil. The mutex is held.
func (of *share) yieldsTo(newcomer *Entry, now time.Time) *Entry {
	held := 0
	for e := range of.open {
		if e.network == newcomer.network {
			held++
		}
	}
	held = max(held, of.waiting.count(&newcomer.member))
	if m := of.waiting.yieldingMember(held); m != nil {
		return m.owner.(*Entry)
	}
	after := slowAfter
	if held == 0 {
		after = alone
	}
	var slow *Entry
	for e := range of.open {
		if e.in == nil || !e.slow(now, after) || slow != nil && slow.number < e.number {
			continue
		}
		if e.network == newcomer.network || of.waiting.count(&e.member) > held {
			slow = e
		}
	}
	return slow
}

// slow says whether an entry brings less than the floor after a time.
func (e *Entry) slow(now time.Time, after time.Duration) bool {
	waited := now.Sub(e.since)
	return waited >= after && float64(e.bytes.Load()) < floor*waited.Seconds()
}

// end removes an entry. The mutex is held.
func (e *Entry) end() {
	e.over = true
	e.member.leave()
	delete(e.share.open, e)
	if len(e.share.open) == 0 {
		delete(e.shares.of, e.name)
	}
}

// Arrived counts bytes of the sender.
func (e *Entry) Arrived(n int) { e.bytes.Add(int64(n)) }

// Hold says that an object is whole: neither the entry nor its connection gives way until Unhold.
// It returns false if it was displaced before.
func (e *Entry) Hold() bool {
	e.shares.mu.Lock()
	defer e.shares.mu.Unlock()
	if e.over {
		return false
	}
	e.holds++
	e.member.leave()
	e.slot.hold(1)
	return true
}

// Unhold is the end of Hold: the entry waits for its sender as one that has begun now.
func (e *Entry) Unhold() {
	e.shares.mu.Lock()
	defer e.shares.mu.Unlock()
	e.slot.hold(-1)
	if e.holds--; e.holds == 0 && !e.over {
		e.since = e.shares.now()
		e.bytes.Store(0)
		e.join(&e.share.waiting)
	}
}

// Leave ends the entry.
func (e *Entry) Leave() {
	e.shares.mu.Lock()
	defer e.shares.mu.Unlock()
	if !e.over {
		e.end()
	}
	e.slot.hold(-e.holds)
	e.holds = 0
}
