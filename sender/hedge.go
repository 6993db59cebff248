// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// hedge is how long a server may be silent before an object is tried elsewhere too: after, or three
// times the recent usual time, if that is longer.
type hedge struct {
	// after, at least; 0 is never.
	after time.Duration
	// blind: an object is hedged although nothing is known of what is usual.
	blind atomic.Bool

	mu sync.Mutex
	// lately are silences before receipts, by address and, under "", of all.
	lately map[string][]time.Duration
}

// usualReceipts is how many of the last receipts say what is usual, and how
// many times that a server may be silent.
const (
	usualReceipts = 15
	usualSilences = 3
)

// received notes how long a server was silent before it gave a receipt.
func (h *hedge) received(address string, p *pulse) {
	gap := p.gap()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lately == nil {
		h.lately = map[string][]time.Duration{}
	}
	for _, of := range []string{"", address} {
		all := h.lately[of]
		if len(all) == usualReceipts {
			all = slices.Delete(all, 0, 1)
		}
		h.lately[of] = append(all, gap)
	}
}

// limit is how long an address may be silent; false where no receipt came yet by
// which to know.
func (h *hedge) limit(address string) (limit time.Duration, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.lately[address]
	if len(all) == 0 {
		all = h.lately[""]
	}
	if len(all) == 0 {
		return h.after, false
	}
	sorted := slices.Sorted(slices.Values(all))
	return max(h.after, usualSilences*sorted[len(sorted)/2]), true
}
