// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/testenv"
)

var uni = Identity{Reader: access.SiteReader("uni")}

// address is one of many.
func address(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, byte(n >> 8), byte(n)}) }

// Clients that show no credentials share a part of all places, and each of their addresses gets a part of that.
func TestPlaces(t *testing.T) {
	t.Parallel()
	p := NewPlaces(256, podFull)
	enter := func(n int, who Identity) (leave func(), status int) {
		leave, refused := p.Enter(address(n), who)
		if refused != nil {
			return nil, refused.Status
		}
		return leave, http.StatusOK
	}
	var leave func()
	mine := 0
	for {
		again, status := enter(1, Identity{})
		if status != http.StatusOK {
			if status != http.StatusTooManyRequests {
				t.Errorf("one address has %d, and is answered %d", mine, status)
			}
			break
		}
		leave = again
		mine++
	}
	if mine != 192/addressShare {
		t.Errorf("one address has %d places of 256", mine)
	}
	all := mine
	for n := 2; n <= 200; n++ {
		for {
			if _, status := enter(n, Identity{}); status != http.StatusOK {
				break
			}
			all++
		}
	}
	if _, status := enter(300, Identity{}); status != http.StatusServiceUnavailable || all != 192 {
		t.Errorf("200 addresses have %d places of 256, and another is answered %d", all, status)
	}
	readers := 0
	for {
		if _, status := enter(1, uni); status != http.StatusOK {
			break
		}
		readers++
	}
	if readers != 64 {
		t.Errorf("a reader has %d places", readers)
	}
	leave()
	leave() // a second time is none
	if p.held != 255 || p.anonymously != 191 || p.of[address(1)] != mine-1 {
		t.Errorf("%d are held, %d by who shows nothing, %d by the first", p.held, p.anonymously, p.of[address(1)])
	}
	if _, status := enter(300, Identity{}); status != http.StatusOK {
		t.Errorf("where one is free: %d", status)
	}
}

// However many addresses wait for a turn, a reader gets one, and readers do not wait for
// the answer of one who takes less than a slow link can.
func TestTurnsAreKeptForReaders(t *testing.T) {
	t.Parallel()
	turns := NewTurns(4)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	var held []*Request
	for n := range 200 {
		v := from(address(n).String(), "")
		for range 3 {
			if _, ok := turns.Take(over, v); ok {
				held = append(held, v)
			}
		}
	}
	if len(held) != 3 {
		t.Errorf("%d turns of 4 are with who shows nothing", len(held))
	}
	if n, timeout := held[0].portion(1 << 20); n != 4*chunk || timeout != 4*chunkTimeout {
		t.Errorf("nobody waits: %d bytes in %s", n, timeout)
	}
	waits, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = turns.Take(waits, from("198.51.100.1", ""))
	}()
	testenv.Await(t, "somebody waits for a turn", turns.Wanted)
	n, timeout := held[0].portion(1 << 20)
	if bitsPerSecond := float64(8*n) / timeout.Seconds(); timeout >= chunkTimeout || bitsPerSecond > 48_000 {
		t.Errorf("somebody waits: %d bytes in %s are %.0f bit/s, which a link of 64 kbit/s is to keep", n, timeout, bitsPerSecond)
	}
	if _, ok := turns.Take(over, from("203.0.113.1", "uni")); !ok {
		t.Error("a reader gets no turn")
	}
	stop()
	<-ended
	if len(turns.waits) != 0 || turns.anonymous != 0 || turns.Wanted() {
		t.Errorf("nobody waits, but %v, %d", turns.waits, turns.anonymous)
	}
}

// Behind a proxy that is believed it is the client's address that has its part, of IPv6
// its network of 64 bits, and what another proxy says counts for nothing.
func TestPlacesOfForwardedAddresses(t *testing.T) {
	t.Parallel()
	proxies, err := ParseProxies([]string{"192.0.2.0/24"})
	if err != nil {
		t.Fatal(err)
	}
	a := NewAdmission(AdmissionConfig{Proxies: proxies, MaxConnections: 256, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	const each = 192 / addressShare
	for _, c := range []struct {
		remote, forwarded string
		want              int
	}{
		{"192.0.2.1", "203.0.113.1", each}, {"192.0.2.2", "203.0.113.1", 0}, {"192.0.2.1", "203.0.113.2", each},
		{"192.0.2.1", "2001:db8:0:1::1", each}, {"192.0.2.1", "2001:db8:0:1::2", 0}, {"192.0.2.1", "2001:db8:0:2::1", each},
		{"198.51.100.7", "203.0.113.3", each}, {"198.51.100.7", "203.0.113.4", 0},
	} {
		r := request(t, c.remote, "")
		r.Header.Set("X-Forwarded-For", c.forwarded)
		got := 0
		for {
			if _, refused := a.Connections.Enter(a.AddressOf(r), Identity{}); refused != nil {
				break
			}
			got++
		}
		if got != c.want {
			t.Errorf("%s for %s: %d places, want %d", c.remote, c.forwarded, got, c.want)
		}
	}
}

// All addresses of a network of 48 bits have half of the places together, and of rates four times what one has.
func TestWideNetworks(t *testing.T) {
	t.Parallel()
	of := func(i int) netip.Addr {
		return network64(netip.MustParseAddr(fmt.Sprintf("2001:db8:1:%x::1", i)))
	}
	p := NewPlaces(400, podFull) // 300 of them for anonymous clients
	held := 0
	for i := range 400 {
		if _, refused := p.Enter(of(i), Identity{}); refused == nil {
			held++
		}
	}
	if _, refused := p.Enter(netip.MustParseAddr("192.0.2.1"), Identity{}); held != 150 || refused != nil {
		t.Errorf("a network holds %d of 300 places, another client gets %v", held, refused)
	}
	l := NewLimiter(Limits{Robot: Rate{PerSecond: 0.001, Burst: 2}, Patience: 1}, prometheus.NewRegistry())
	let := 0
	for i := range 64 {
		if l.Admit(t.Context(), Robot, of(i), Identity{}) == nil {
			let++
		}
	}
	if let != 8 || l.Admit(t.Context(), Robot, netip.MustParseAddr("2001:db8:2::1"), Identity{}) != nil {
		t.Errorf("a network asks %d times at once, want 8", let)
	}
	f := newFailures(Limits{Failures: Rate{PerSecond: 0.001, Burst: 2}}.withDefaults(), AdmissionConfig{Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	failed := 0
	for ; failed < 64 && !f.tooMany(of(failed)); failed++ {
		f.recordFailure(of(failed), &http.Request{URL: &url.URL{}}, problem.New(http.StatusUnauthorized, "nobody's"))
	}
	if failed != 8 || f.tooMany(netip.MustParseAddr("2001:db8:2::1")) {
		t.Errorf("a network fails %d times, want 8", failed)
	}
}
