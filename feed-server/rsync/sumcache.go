// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"container/list"
	"sync"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// keptSums of files are kept, some 200 bytes each.
	keptSums = 1 << 16
	// sumBytes is how much one address may have read for sums at once, and sumBytesPerSecond what it may more. A partner that
	// compares a window of 60 days once a month stays below it.
	sumBytes          = 64 << 30
	sumBytesPerSecond = 1 << 20
	// sumClients is of how many addresses it is known how much was read for them.
	sumClients = 1 << 14
)

// sumKey is a file and how it is summed up: the sum of both never changes.
type sumKey struct {
	digest    wire.Digest
	algorithm string
}

// sumCache keeps the sums of files that were asked for last, so that asking again reads nothing.
type sumCache struct {
	most int

	mu    sync.Mutex
	all   map[sumKey]*list.Element // of keptSum
	order list.List                // the one that was asked for last in front
}

type keptSum struct {
	sumKey
	sum []byte
}

func newSumCache(most int) *sumCache {
	return &sumCache{most: most, all: map[sumKey]*list.Element{}}
}

// get returns a sum, which is not to be changed; nil: it is not kept.
func (c *sumCache) get(k sumKey) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.all[k]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(keptSum).sum
}

// put keeps a sum, instead of the one that was asked for longest ago.
func (c *sumCache) put(k sumKey, sum []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[k] != nil {
		return
	}
	c.all[k] = c.order.PushFront(keptSum{k, sum})
	if len(c.all) > c.most {
		oldest := c.order.Remove(c.order.Back()).(keptSum)
		delete(c.all, oldest.sumKey)
	}
}

// spend takes what is read for a sum out of the budget of the client's address and network. Errors: a refusal.
func (s *session) spend(bytes int64) error {
	wait, ok := s.budget.Spend(s.cfg.Admission.AddressOf(s.request), bytes)
	if ok {
		return nil
	}
	s.metrics.overBudget.Inc()
	return refuse(exitPartial, "your address has used up what this server reads for checksums: try again in %s, or without --checksum", wait.Round(time.Second))
}

// newSumBudget is the budget of all addresses.
func newSumBudget() *endpoint.Budget {
	return endpoint.NewBudget(endpoint.Rate{PerSecond: sumBytesPerSecond, Burst: sumBytes}, sumClients)
}
