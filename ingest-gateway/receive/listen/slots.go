// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/internal/load"
)

// unidentifiedShare of all slots, as its inverse, may be held by connections of
// whose senders nothing is known yet, and addressShare of those by one address.
const unidentifiedShare, addressShare = 4, 4

// Slots bound the connections that are open at a time. A connection is unidentified until its
// sender is known and may send. Unidentified connections hold a part of the slots at most, and of
// that part a part for each address; if there are more, the oldest of the address that has the most
// is closed. If all slots are taken, an identified connection over which nothing is sent (HTTP
// between two requests) is closed for another one; if there is none, the oldest one in service of
// the address that has the most, if the newcomer's address would still have fewer. So senders that
// may send find a slot, however many connections others open and keep. An address is one of IPv4,
// or a network of 64 bits of IPv6; where an IPv6 network of 48 bits has many of these it counts as
// one.
type Slots struct {
	free *semaphore.Weighted
	size int64
	held atomic.Int64
	// most unidentified connections, of all addresses and of one.
	most, maxOfOne int
	displaced      func(netip.AddrPort)

	mu sync.Mutex
	// served are identified, and neither idle nor held.
	unidentified, idle, served crowd
}

// Slot is held by one connection.
type Slot struct {
	member
	slots  *Slots
	source netip.AddrPort
	// Guarded by slots.mu. The crowd that it is in follows from these; released says that it
	// is over, and displaced that it was closed for another one.
	evict               func()
	identified, idle    bool
	holds               int
	released, displaced bool
}

// NewSlots returns n slots. Displaced, which may be nil, is called for each unidentified connection
// that was closed to make space.
func NewSlots(n int64, displaced func(source netip.AddrPort)) *Slots {
	most := max(int(n/unidentifiedShare), 1)
	if displaced == nil {
		displaced = func(netip.AddrPort) {}
	}
	return &Slots{
		free: semaphore.NewWeighted(n), size: n, most: most, maxOfOne: max(most/addressShare, 1), displaced: displaced,
		unidentified: newCrowd(), idle: newCrowd(), served: newCrowd(),
	}
}

// Acquire takes a slot for a connection from source, which is unidentified. Evict closes it,
// and may be called from any goroutine until Release. If none of the connections gives way,
// Acquire waits. The only error is ctx's.
func (s *Slots) Acquire(ctx context.Context, source netip.AddrPort, evict func()) (*Slot, error) {
	slot := &Slot{slots: s, source: source, evict: evict}
	slot.member = newMember(source.Addr(), slot)
	for !s.free.TryAcquire(1) {
		s.mu.Lock()
		gone := s.victim(slot)
		s.mu.Unlock()
		if gone != nil {
			s.displace(gone)
			continue
		}
		if err := s.free.Acquire(ctx, 1); err != nil {
			return nil, err
		}
		break
	}
	s.held.Add(1)
	s.mu.Lock()
	gone := s.slotOverLimit(slot)
	slot.join(&s.unidentified)
	s.mu.Unlock()
	if gone != nil {
		s.displace(gone)
	}
	return slot, nil
}

func (s *Slots) release() {
	s.held.Add(-1)
	s.free.Release(1)
}

// Fill is which part of the slots is held, 0 to 1.
func (s *Slots) Fill() float64 { return load.Fill(s.held.Load(), s.size) }

// slotOf returns the slot that a member is, nil for none.
func slotOf(m *member) *Slot {
	if m == nil {
		return nil
	}
	return m.owner.(*Slot)
}

// slotOverLimit returns the unidentified connection that is closed for another one,
// nil where none need be. The mutex is held.
func (s *Slots) slotOverLimit(newcomer *Slot) *Slot {
	if s.unidentified.count(&newcomer.member) >= s.maxOfOne {
		return slotOf(s.unidentified.oldestOf(&newcomer.member))
	}
	if s.unidentified.size >= s.most {
		oldest, _ := s.unidentified.heaviest()
		return slotOf(oldest)
	}
	return nil
}

// victim returns the connection that is closed for a newcomer when all slots are taken: the oldest
// unidentified or idle one of the address that has the most of its kind; without these one that
// waits for its sender, if the newcomer's address has fewer; nil if there is none. The mutex is
// held.
func (s *Slots) victim(newcomer *Slot) *Slot {
	unidentified, unknown := s.unidentified.heaviest()
	idle, quiet := s.idle.heaviest()
	switch {
	case unknown > quiet:
		return slotOf(unidentified)
	case idle != nil:
		return slotOf(idle)
	default:
		return slotOf(s.served.yieldingMember(s.served.count(&newcomer.member)))
	}
}

// displace closes a connection, unless it is in no crowd any more.
func (s *Slots) displace(slot *Slot) {
	s.mu.Lock()
	if slot.in == nil {
		s.mu.Unlock()
		return
	}
	slot.released, slot.displaced = true, true
	slot.settle()
	evict, identified := slot.evict, slot.identified
	s.mu.Unlock()
	s.release()
	evict()
	if !identified {
		s.displaced(slot.source)
	}
}

// settle puts a slot into the crowd that its state says. The mutex is held.
func (c *Slot) settle() {
	var in *crowd
	switch {
	case c.released, c.holds > 0:
	case !c.identified:
		in = &c.slots.unidentified
	case c.idle:
		in = &c.slots.idle
	default:
		in = &c.slots.served
	}
	if in == c.in {
		return
	}
	c.leave()
	if in != nil {
		c.join(in)
	}
}

// Identified says that the connection's sender may send.
func (c *Slot) Identified() {
	c.change(func() { c.identified = true })
}

// EndBy has evict end the connection from now on, if it is displaced.
func (c *Slot) EndBy(evict func()) {
	c.change(func() { c.evict = evict })
}

// Idle says that nothing is sent over an identified connection until Busy.
func (c *Slot) Idle() {
	c.change(func() { c.idle = c.identified })
}

// Busy is the end of Idle.
func (c *Slot) Busy() {
	c.change(func() { c.idle = false })
}

// hold adds to how many objects of the connection are on their way to the store: while there
// are some, it is not displaced.
func (c *Slot) hold(n int) {
	if c == nil || n == 0 {
		return
	}
	c.change(func() { c.holds += n })
}

func (c *Slot) change(state func()) {
	c.slots.mu.Lock()
	defer c.slots.mu.Unlock()
	state()
	c.settle()
}

// Displaced says whether the connection was closed for another one.
func (c *Slot) Displaced() bool {
	c.slots.mu.Lock()
	defer c.slots.mu.Unlock()
	return c.displaced
}

// Release gives the slot back. Calls after the first do nothing.
func (c *Slot) Release() {
	c.slots.mu.Lock()
	over := c.released
	c.released = true
	c.settle()
	c.slots.mu.Unlock()
	if !over {
		c.slots.release()
	}
}
