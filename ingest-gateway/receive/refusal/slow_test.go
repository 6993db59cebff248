// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// An address that fails again and again is answered later and later, up to a bound;
// others are not, and what is remembered is bounded.
func TestDelay(t *testing.T) {
	s := NewSlow(prometheus.NewRegistry())
	now := time.Unix(1_800_000_000, 0)
	one, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for i := range failureBurst {
		if d := s.delay(now, one); d != 0 {
			t.Fatalf("failure %d is held back for %v", i, d)
		}
	}
	for i := range 20 {
		want := min(time.Duration(i+1)*time.Second, maxDelay)
		if d := s.delay(now, one); d != want {
			t.Errorf("failure %d is held back for %v, want %v", i, d, want)
		}
	}
	if d := s.delay(now, other); d != 0 {
		t.Errorf("another address is held back for %v", d)
	}
	if d := s.delay(now.Add(time.Minute), one); d != 0 {
		t.Errorf("a minute later it is held back for %v", d)
	}
	for range failureBurst {
		s.delay(now, netip.MustParseAddr("2001:db8::1"))
	}
	if d := s.delay(now, netip.MustParseAddr("2001:db8::2")); d == 0 {
		t.Error("a neighbor of one network of IPv6 counts by itself")
	}
	for i := range siteShare * failureBurst {
		s.delay(now, netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 9, byte(i >> 8), byte(i)}))
	}
	if d := s.delay(now, netip.MustParseAddr("2001:db8:9:ffff::1")); d == 0 {
		t.Error("a new network of a site that fails from many of its networks is not held back")
	}
	if d := s.delay(now, netip.MustParseAddr("2001:db8:a::1")); d != 0 {
		t.Errorf("another site is held back for %v", d)
	}
	for i := range 3 * maxAddresses {
		s.delay(now, netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))
	}
	if len(s.from) > maxAddresses {
		t.Errorf("%d addresses are remembered", len(s.from))
	}
}
