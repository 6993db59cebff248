// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"maps"
	"sync"

	"golang.org/x/time/rate"
)

// rates bound how often this replica does something for each FeedConsumer.
type rates struct {
	limit rate.Limit // in a second
	burst int        // at once

	mu sync.Mutex
	// of FeedConsumers that the registry has.
	of map[string]*rate.Limiter
}

func newRates(limit rate.Limit, burst int) *rates {
	return &rates{limit: limit, burst: burst, of: map[string]*rate.Limiter{}}
}

// may reports whether it may be done for a FeedConsumer once more now.
func (r *rates) may(consumer string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.of[consumer]
	if l == nil {
		l = rate.NewLimiter(r.limit, r.burst)
		r.of[consumer] = l
	}
	return l.Allow()
}

// forget lets go of what is known of FeedConsumers that are gone.
func (r *rates) forget(is func(consumer string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.of, func(consumer string, _ *rate.Limiter) bool { return !is(consumer) })
}
