// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// shares are those of one instrument, which may have most open, with a clock of the test's.
type shares struct {
	*Shares
	most  int
	clock time.Time
	gone  []string
}

func newShares(most int) *shares {
	s := &shares{Shares: NewShares(), most: most, clock: time.Unix(1_800_000_000, 0)}
	s.now = func() time.Time { return s.clock }
	return s
}

func (s *shares) enter(source string) *Entry {
	return s.Enter("camera", s.most, netip.MustParseAddr(source), nil, func() { s.gone = append(s.gone, source) })
}

// An address that takes all of an instrument's connections gives half of them to another that asks.
func TestSharesOfTwoAddresses(t *testing.T) {
	s := newShares(8)
	for range 8 {
		s.enter("192.0.2.1")
	}
	if s.enter("192.0.2.1") != nil {
		t.Error("an address displaces its own connections")
	}
	for i := range 4 {
		if s.enter("192.0.2.2") == nil {
			t.Fatalf("connection %d of another address is refused", i)
		}
	}
	if s.enter("192.0.2.2") != nil {
		t.Error("an address has more than half while another asks")
	}
	if want := "[192.0.2.1 192.0.2.1 192.0.2.1 192.0.2.1]"; fmt.Sprint(s.gone) != want {
		t.Errorf("%v gave way, want %s", s.gone, want)
	}
}

// Networks of 64 bits count by themselves, and where a network of 48 bits has many of them, all of these as one address.
func TestSharesBySite(t *testing.T) {
	for networks, want := range map[int]bool{maxNetworks: false, 16: true} {
		s := newShares(16)
		for i := range 16 {
			s.enter(fmt.Sprintf("2001:db8:1:%x::%x", i%networks, i+1))
		}
		entered := 0
		for s.enter("2001:db8:2::1") != nil {
			entered++
		}
		if half := entered == 8; half != want {
			t.Errorf("beside %d networks of a site another address has %d of 16", networks, entered)
		}
	}
}

// A connection that is slower than the floor gives way to every address; one that began a moment ago, is fast enough, or
// has an object on its way to the store, does not.
func TestSharesOfTheSlow(t *testing.T) {
	s := newShares(4)
	slow, fast, held, object := s.enter("192.0.2.1"), s.enter("192.0.2.2"), s.enter("192.0.2.3"), s.enter("192.0.2.4")
	held.Hold()
	object.Hold()
	s.clock = s.clock.Add(alone - 1)
	slow.Arrived(18)
	fast.Arrived(floor * 60)
	object.Unhold() // it has delivered one, and waits for the next
	if s.enter("192.0.2.5") != nil {
		t.Fatal("a connection gives way before it is slow")
	}
	s.clock = s.clock.Add(1)
	late := s.enter("192.0.2.5")
	if late == nil || s.enter("192.0.2.6") != nil || fmt.Sprint(s.gone) != "[192.0.2.1]" {
		t.Fatalf("%v gave way, want the slow one alone", s.gone)
	}
	slow.Leave() // what gave way is not counted twice
	if slow.Hold() {
		t.Error("what gave way stores an object")
	}
	held.Unhold()
	late.Leave()
	if s.enter("192.0.2.7") == nil || s.enter("192.0.2.8") != nil {
		t.Error("as many may be open as before")
	}
}

// A connection that an address has beside others displaces a slow one later than the first of an address does.
func TestSharesOfTheSlowBesideTheFirst(t *testing.T) {
	s := newShares(3)
	s.enter("192.0.2.1")
	s.enter("192.0.2.2").Arrived(floor * 60)
	s.enter("192.0.2.3")
	s.clock = s.clock.Add(alone)
	if s.enter("192.0.2.2") != nil {
		t.Error("an address with a connection displaces one that is slow for a moment")
	}
	if s.enter("192.0.2.4") == nil || fmt.Sprint(s.gone) != "[192.0.2.1]" {
		t.Errorf("%v gave way to an address that has none", s.gone)
	}
}

// An address that has more connections than the sender of a slow one does not displace that.
func TestSharesOfTheSlowBesideMany(t *testing.T) {
	s := newShares(4)
	s.enter("192.0.2.2") // between two objects, say
	for range 3 {
		s.enter("192.0.2.1").Arrived(floor * 60)
	}
	s.clock = s.clock.Add(slowAfter)
	if s.enter("192.0.2.1") != nil || len(s.gone) > 0 {
		t.Errorf("%v gave way to an address that has more", s.gone)
	}
	if s.enter("192.0.2.3") == nil || fmt.Sprint(s.gone) != "[192.0.2.1]" {
		t.Errorf("%v gave way to another address", s.gone)
	}
}

// If all slots are taken by one address, each of its connections being served, another address gets a slot; of what is on
// its way to the store nothing is closed.
func TestSlotsOfTheServed(t *testing.T) {
	var gone []int
	s := NewSlots(4, nil)
	all := NewShares()
	for i := range 4 {
		slot, err := s.Acquire(t.Context(), from(1, i), func() { gone = append(gone, i) })
		if err != nil {
			t.Fatal(err)
		}
		slot.Identified()
		if e := all.Enter(fmt.Sprint("instrument-", i), 1, slot.source.Addr(), slot, func() {}); i == 0 {
			e.Hold()
		}
	}
	other, err := s.Acquire(t.Context(), from(2, 1), func() {})
	if err != nil || fmt.Sprint(gone) != "[1]" {
		t.Fatalf("%v gave way for another address: %v", gone, err)
	}
	other.Identified()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Acquire(ctx, from(2, 2), func() {}); err == nil {
		t.Error("an address gets more than half of what gives way")
	}
}
