// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"testing"

	"github.com/substorm/substorm/internal/access"
)

// from is a request of a client's.
func from(address, reader string) *Request {
	who := Identity{}
	if reader != "" {
		who.Reader = access.SiteReader(reader)
	}
	return &Request{Request: &http.Request{RemoteAddr: address + ":1"}, Identity: who, check: &AccessCheck{cfg: AccessCheckConfig{Admission: &Admission{}}}}
}

// One who takes all turns that there are leaves some to others, and these to more.
func TestTurns(t *testing.T) {
	t.Parallel()
	turns := NewTurns(8)
	over, cancel := context.WithCancel(t.Context())
	cancel() // a client that does not get a turn at once waits for none
	taken := map[string][]func(){}
	if most := turns.MaxOf(from("192.0.2.1", "")); most != 3 {
		t.Errorf("one who shows nothing has %d turns at most, want the 3 below", most)
	}
	if most := turns.MaxOf(from("192.0.2.1", "uni")); most != 4 {
		t.Errorf("a reader has %d turns at most, want half of all", most)
	}
	for _, c := range []struct {
		address, reader string
		want            int
	}{{"192.0.2.1", "", 3}, {"192.0.2.2", "", 2}, {"192.0.2.1", "uni", 2}, {"192.0.2.3", "", 0}, {"192.0.2.4", "other", 1}} {
		if most := turns.MaxOf(from(c.address, c.reader)); most < c.want {
			t.Errorf("%s %s has %d turns at most, want %d and more", c.address, c.reader, most, c.want)
		}
		got := 0
		for range 10 {
			if done, ok := turns.Take(over, from(c.address, c.reader)); ok {
				got++
				taken[c.address+c.reader] = append(taken[c.address+c.reader], done)
			}
		}
		if got != c.want {
			t.Errorf("%s %s has %d turns, want %d", c.address, c.reader, got, c.want)
		}
	}
	waits := make(chan bool)
	go func() {
		_, ok := turns.Take(t.Context(), from("192.0.2.4", "late"))
		waits <- ok
	}()
	taken["192.0.2.1"][0]()
	if !<-waits {
		t.Error("who waits gets none that is given back")
	}
	if _, ok := turns.Take(over, from("192.0.2.2", "")); ok {
		t.Error("there are more than there are")
	}
}

func TestTurn(t *testing.T) {
	t.Parallel()
	turns := NewTurns(0)
	for range 3 {
		done, ok := turns.Take(t.Context(), nil)
		if !ok {
			t.Fatal("there is none")
		}
		done()
	}
	if len(turns.has) != 0 || turns.free != 1 {
		t.Errorf("%v have turns, %d are free", turns.has, turns.free)
	}
}

// All clients of an IPv6 network of 48 bits have no more turns than one client, and a client that had none yet
// precedes one that had one.
func TestTurnsOfANetwork(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel() // a client that does not get a turn at once waits for none
	turns := NewOpenTurns(4, TurnPatience)
	var taken []func()
	for i := range 64 {
		if done, ok := turns.TakeAs(over, network64(netip.MustParseAddr(fmt.Sprintf("2001:db8:1:%x::1", i)))); ok {
			taken = append(taken, done)
		}
	}
	if len(taken) != 2 {
		t.Errorf("a network of 48 bits has %d of 4 turns", len(taken))
	}
	for _, address := range []string{"2001:db8:2::1", "192.0.2.1"} {
		if _, ok := turns.TakeAs(over, network64(netip.MustParseAddr(address))); !ok {
			t.Errorf("%s gets none", address)
		}
	}
	// All are taken. The network comes back first, and another later.
	got := make(chan string, 2)
	waits := func(name string, address string) {
		w := newWaiter(client{address: network64(netip.MustParseAddr(address))})
		if _, ok := turns.enqueue(w); !ok {
			t.Fatalf("%s may not wait", name)
		}
		go func() { <-w.turn; got <- name }()
	}
	waits("again", "2001:db8:1:ffff::1")
	waits("new", "198.51.100.1")
	taken[0]()
	if first := <-got; first != "new" {
		t.Errorf("%s is first", first)
	}
	taken[1]()
	if second := <-got; second != "again" {
		t.Errorf("%s is second", second)
	}
}

// Waiting requests are bounded. A request from an address with fewer waiting requests displaces the last one of the network with the
// most.
func TestWaitingIsShared(t *testing.T) {
	t.Parallel()
	turns := NewOpenTurns(1, TurnPatience)
	if _, ok := turns.TakeAs(t.Context(), netip.MustParseAddr("192.0.2.1")); !ok {
		t.Fatal("there is none")
	}
	waits := func(address string) (*waiter, bool) {
		w := newWaiter(client{address: network64(netip.MustParseAddr(address))})
		_, ok := turns.enqueue(w)
		return w, ok
	}
	var last *waiter
	for i := range waitingTurns {
		var ok bool
		address := fmt.Sprintf("127.0.1.%d", i/2)
		if i%8 == 7 { // 32 of one network of 48 bits
			address = fmt.Sprintf("2001:db8:1:%x::1", i)
		}
		w, ok := waits(address)
		if !ok {
			t.Fatalf("%s may not wait, as number %d", address, i)
		}
		if i%8 == 7 {
			last = w
		}
	}
	if _, ok := waits("192.0.2.9"); !ok || turns.anonymous != waitingTurns {
		t.Errorf("who comes from an address of which none waits may: %t; %d wait", ok, turns.anonymous)
	}
	select {
	case <-last.displaced:
	default:
		t.Error("the last one of the network of which most wait still waits")
	}
	for i := range 3 {
		if _, ok := waits("2001:db8:1:9999::1"); ok {
			t.Errorf("%d more of the network wait", i+1)
		}
	}
}
