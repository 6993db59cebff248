// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
)

// A client of IPv6 has a network of 64 bits: its addresses are one. IPv4 in IPv6 is IPv4.
func TestSlotsByNetwork(t *testing.T) {
	var gone []netip.AddrPort
	s := NewSlots(64, func(source netip.AddrPort) { gone = append(gone, source) })
	for _, source := range []string{"[2001:db8:1:1::1]:1", "[2001:db8:1:1::2]:2", "[2001:db8:1:1:ffff::]:3", "[2001:db8:1:1::3%eth0]:4", "[2001:db8:1:2::1]:5", "[2001:db8:1:1::4]:6",
		"192.0.2.1:1", "[::ffff:192.0.2.1]:2", "192.0.2.1:3", "192.0.2.1:4", "192.0.2.2:5", "[::ffff:192.0.2.1]:6"} {
		if _, err := s.Acquire(t.Context(), netip.MustParseAddrPort(source), func() {}); err != nil {
			t.Fatal(err)
		}
	}
	if want := "[[2001:db8:1:1::1]:1 192.0.2.1:1]"; fmt.Sprint(gone) != want {
		t.Errorf("%v made space, want %s", gone, want)
	}
}

// If all are full, a connection of the address with the most is closed, and not the oldest: a client that opens many
// does not close those of others.
func TestSlotsOfTheHeaviestMakeSpace(t *testing.T) {
	for name, identified := range map[string]int{"all unidentified are taken": 0, "all slots are taken": 48} {
		t.Run(name, func(t *testing.T) {
			var gone []netip.AddrPort
			s := NewSlots(64, func(source netip.AddrPort) { gone = append(gone, source) })
			take := func(source netip.AddrPort) *Slot {
				t.Helper()
				slot, err := s.Acquire(t.Context(), source, func() {})
				if err != nil {
					t.Fatal(err)
				}
				return slot
			}
			for port := range identified {
				take(from(200, port)).Identified()
			}
			sender := take(from(1, 1)) // the oldest
			for host := 2; host <= 6; host++ {
				for port := 1; port <= 3; port++ {
					take(from(host, port))
				}
			}
			for host := 10; host < 15; host++ {
				take(from(host, 1))
			}
			if want := fmt.Sprint([]netip.AddrPort{from(2, 1), from(3, 1), from(4, 1), from(5, 1), from(6, 1)}); fmt.Sprint(gone) != want {
				t.Errorf("%v made space, want %s", gone, want)
			}
			if sender.in == nil {
				t.Error("the connection of an address that has no other made space")
			}
		})
	}
}

func from(host, port int) netip.AddrPort {
	return netip.MustParseAddrPort(fmt.Sprintf("192.0.2.%d:%d", host, port))
}

// Unidentified connections hold a quarter of the slots at most, and one address a quarter of that;
// the oldest of the address that has the most makes space. Identified connections stay.
func TestSlots(t *testing.T) {
	var gone []netip.AddrPort
	s := NewSlots(64, func(source netip.AddrPort) { gone = append(gone, source) })
	take := func(source netip.AddrPort) *Slot {
		t.Helper()
		slot, err := s.Acquire(t.Context(), source, func() {})
		if err != nil {
			t.Fatal(err)
		}
		return slot
	}
	for port := 1; port <= 6; port++ {
		take(from(1, port))
	}
	if want := fmt.Sprint([]netip.AddrPort{from(1, 1), from(1, 2)}); fmt.Sprint(gone) != want {
		t.Errorf("of one address %v made space, want %s", gone, want)
	}
	gone = nil
	for host := 2; host <= 14; host++ { // 4 + 13 of 16
		take(from(host, 1))
	}
	if want := fmt.Sprint([]netip.AddrPort{from(1, 3)}); fmt.Sprint(gone) != want {
		t.Errorf("%v made space, want %s", gone, want)
	}
	var identified []*Slot
	for port := range 64 {
		slot := take(from(100, port))
		slot.Identified()
		identified = append(identified, slot)
	}
	if n := s.unidentified.size; n != 0 || len(s.unidentified.networks) != 0 {
		t.Errorf("%d unidentified connections stay beside as many identified ones as may be", n)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := s.Acquire(ended, from(100, 64), func() {}); err == nil {
		t.Error("an identified connection made space for another of its address")
	}
	identified[0].Release()
	identified[0].Release() // it counts once
	last := take(from(101, 1))
	last.Identified()
	if s.free.TryAcquire(1) {
		t.Error("a slot was given back twice")
	}
}

// If all slots are taken, an identified connection that is idle is closed, of the address that has the most; one that is
// busy again, or was closed, is not.
func TestSlotsOfTheIdle(t *testing.T) {
	evicted := map[netip.AddrPort]bool{}
	s := NewSlots(8, func(source netip.AddrPort) { t.Errorf("%v counts as an unknown sender", source) })
	take := func(source netip.AddrPort) *Slot {
		t.Helper()
		slot, err := s.Acquire(t.Context(), source, func() { evicted[source] = true })
		if err != nil {
			t.Fatal(err)
		}
		slot.Identified()
		return slot
	}
	var slots []*Slot
	for port := range 6 {
		slots = append(slots, take(from(1, port)))
	}
	slots = append(slots, take(from(2, 1)), take(from(3, 1)))
	for _, slot := range slots[:7] {
		slot.Idle()
	}
	slots[0].Busy()
	slots[1].Release()
	slots[1].Idle()
	for port := range 3 {
		take(from(4, port))
	}
	if want := map[netip.AddrPort]bool{from(1, 2): true, from(1, 3): true}; fmt.Sprint(evicted) != fmt.Sprint(want) {
		t.Errorf("%v were closed, want %v", evicted, want)
	}
	for port := range 3 {
		take(from(5, port)) // the last idle ones
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Acquire(ctx, from(5, 4), func() {}); err == nil {
		t.Error("there is a slot for an address that has as many as any other, although all are busy")
	}
}
