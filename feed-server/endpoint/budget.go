// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"container/list"
	"net/netip"
	"time"
)

// Budget is what each address may have of something that costs the server more than the client, and four times that all of a
// network of 48 bits.
type Budget struct {
	allowed Rate
	rates
}

// NewBudget returns the budget of each address. Clients are remembered: who spent last.
func NewBudget(allowed Rate, clients int) *Budget {
	return &Budget{allowed: allowed, rates: rates{most: clients, clients: map[client]*list.Element{}}}
}

// Spend takes a number out of the budget of an address and of its network; where it is not ok, nothing was taken, and it may be in a while. A
// number above the whole budget takes all of it.
func (b *Budget) Spend(address netip.Addr, n int64) (wait time.Duration, ok bool) {
	now := time.Now()
	own := b.of(client{address: address}, b.allowed)
	of := own.ReserveN(now, int(min(n, int64(own.Burst()))))
	if wait := of.DelayFrom(now); wait > 0 {
		of.CancelAt(now)
		return wait, false
	}
	network := (client{address: address}).network()
	if !network.wide {
		return 0, true
	}
	all := b.of(network, b.allowed.times(networkShare))
	ofAll := all.ReserveN(now, int(min(n, int64(all.Burst()))))
	if wait := ofAll.DelayFrom(now); wait > 0 {
		ofAll.CancelAt(now)
		of.CancelAt(now)
		return wait, false
	}
	return 0, true
}
