// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"container/list"
	"context"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/internal/load"
)

const (
	// unidentifiedShare of all slots, as its inverse, may be held by connections of
	// whose senders nothing is known yet, and addressShare of those by one address.
	unidentifiedShare, addressShare = 4, 4
	// network6 is how many bits of an IPv6 address tell clients apart: of the others a client has all.
	network6 = 64
)

// Slots bound the connections that are open at a time. A connection is unidentified
// until its sender is known to be one that may send. Unidentified connections hold a
// part of the slots at most, and of that part a part for each address; where there are
// more, the oldest of the address that has the most is closed. So senders that may send
// find a slot, however many connections others open and keep. Where all slots are taken, an
// identified connection over which nothing is sent (HTTP between two requests) is closed, too.
// An address is one of IPv4, or a network of 64 bits of IPv6.
type Slots struct {
	free *semaphore.Weighted
	size int64
	held atomic.Int64
	// most unidentified connections, of all addresses and of one.
	most, mostOfOne int
	displaced       func(netip.AddrPort)

	mu sync.Mutex
	// last is the number of the newest slot.
	last               uint64
	unidentified, idle crowd
}

// crowd are connections that may be closed for others, by address: *Slot, the oldest first.
type crowd struct {
	size      int
	byAddress map[netip.Prefix]*list.List
}

// Slot is held by one connection.
type Slot struct {
	slots   *Slots
	source  netip.AddrPort
	address netip.Prefix
	evict   func()
	// Guarded by slots.mu: the crowd that it is in and its place among those of its address,
	// nil for one that is not closed for others; released says that it is over.
	in       *crowd
	place    *list.Element
	number   uint64
	released bool
}

// NewSlots returns n slots. Displaced, which may be nil, hears of each unidentified
// connection that was closed to make space.
func NewSlots(n int64, displaced func(source netip.AddrPort)) *Slots {
	most := max(int(n/unidentifiedShare), 1)
	if displaced == nil {
		displaced = func(netip.AddrPort) {}
	}
	return &Slots{
		free: semaphore.NewWeighted(n), size: n, most: most, mostOfOne: max(most/addressShare, 1), displaced: displaced,
		unidentified: crowd{byAddress: map[netip.Prefix]*list.List{}}, idle: crowd{byAddress: map[netip.Prefix]*list.List{}},
	}
}

// Acquire takes a slot for a connection from source, which is unidentified. Evict closes
// it, and may be called from any goroutine until Release. Where all slots are held by
// identified connections that are not idle it waits. The only error is ctx's.
func (s *Slots) Acquire(ctx context.Context, source netip.AddrPort, evict func()) (*Slot, error) {
	for !s.free.TryAcquire(1) {
		s.mu.Lock()
		gone := s.victim()
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
	slot := &Slot{slots: s, source: source, address: networkOf(source.Addr()), evict: evict}
	s.mu.Lock()
	gone := s.tooMany(slot.address)
	s.last++
	slot.number = s.last
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

// networkOf is what is counted as one address.
func networkOf(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = network6
	}
	network, _ := a.Prefix(bits) // of no address it is the zero Prefix
	return network
}

// tooMany returns the unidentified connection that is closed for another one of an address,
// nil where none need be. The mutex is held.
func (s *Slots) tooMany(address netip.Prefix) *Slot {
	if of := s.unidentified.byAddress[address]; of != nil && of.Len() >= s.mostOfOne {
		return oldest(of)
	}
	if s.unidentified.size >= s.most {
		return oldest(s.unidentified.heaviest())
	}
	return nil
}

// victim returns the connection that is closed where all slots are taken: the oldest
// unidentified or idle one of the address that has the most of its kind; nil where there is
// none. The mutex is held.
func (s *Slots) victim() *Slot {
	unidentified, idle := s.unidentified.heaviest(), s.idle.heaviest()
	if idle == nil || unidentified != nil && unidentified.Len() > idle.Len() {
		return oldest(unidentified)
	}
	return oldest(idle)
}

// heaviest returns the connections of the address that has the most, of several such the
// ones of which the oldest is the oldest of all; nil where there are none.
func (c *crowd) heaviest() *list.List {
	var most *list.List
	for _, of := range c.byAddress {
		if most == nil || of.Len() > most.Len() || of.Len() == most.Len() && oldest(of).number < oldest(most).number {
			most = of
		}
	}
	return most
}

// oldest returns the first of a list, nil of none.
func oldest(of *list.List) *Slot {
	if of == nil {
		return nil
	}
	return of.Front().Value.(*Slot)
}

// displace closes a connection, unless it is in no crowd any more.
func (s *Slots) displace(slot *Slot) {
	s.mu.Lock()
	if slot.in == nil {
		s.mu.Unlock()
		return
	}
	unidentified := slot.in == &s.unidentified
	slot.forget()
	slot.released = true
	s.mu.Unlock()
	s.release()
	slot.evict()
	if unidentified {
		s.displaced(slot.source)
	}
}

// join puts a slot into a crowd. The mutex is held.
func (c *Slot) join(in *crowd) {
	of := in.byAddress[c.address]
	if of == nil {
		of = list.New()
		in.byAddress[c.address] = of
	}
	in.size++
	c.in, c.place = in, of.PushBack(c)
}

// forget takes a slot out of its crowd. The mutex is held.
func (c *Slot) forget() {
	if c.in == nil {
		return
	}
	c.in.size--
	of := c.in.byAddress[c.address]
	if of.Remove(c.place); of.Len() == 0 {
		delete(c.in.byAddress, c.address)
	}
	c.in, c.place = nil, nil
}

// Identified says that the connection's sender is one that may send: it keeps its slot
// until Release, unless it is Idle.
func (c *Slot) Identified() {
	c.slots.mu.Lock()
	defer c.slots.mu.Unlock()
	c.forget()
}

// Idle says that nothing is sent over an identified connection until Busy.
func (c *Slot) Idle() {
	c.slots.mu.Lock()
	defer c.slots.mu.Unlock()
	if c.in == nil && !c.released {
		c.join(&c.slots.idle)
	}
}

// Busy is the end of Idle.
func (c *Slot) Busy() {
	c.slots.mu.Lock()
	defer c.slots.mu.Unlock()
	if c.in == &c.slots.idle {
		c.forget()
	}
}

// Release gives the slot back. Calls after the first do nothing.
func (c *Slot) Release() {
	c.slots.mu.Lock()
	c.forget()
	over := c.released
	c.released = true
	c.slots.mu.Unlock()
	if !over {
		c.slots.release()
	}
}
