// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// An address has its budget, and so has a network of 48 bits; both come back with time.
func TestBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(Rate{PerSecond: 1, Burst: 100}, 1000)
		one := netip.MustParseAddr("192.0.2.1")
		if _, ok := b.Spend(one, 60); !ok {
			t.Error("an address has nothing")
		}
		wait, ok := b.Spend(one, 60)
		if ok || wait != 20*time.Second {
			t.Errorf("60 and 60 of 100: %t, to wait for %s", ok, wait)
		}
		time.Sleep(wait)
		if _, ok := b.Spend(one, 60); !ok {
			t.Error("nothing came back")
		}
		if _, ok := b.Spend(netip.MustParseAddr("192.0.2.2"), 1000); !ok {
			t.Error("what is more than all cannot be had at all")
		}
		spent := 0
		for i := range 64 {
			if _, ok := b.Spend(network64(netip.MustParseAddr(fmt.Sprintf("2001:db8:1:%x::1", i))), 100); ok {
				spent += 100
			}
		}
		if spent != 400 {
			t.Errorf("a network spent %d", spent)
		}
	})
}
