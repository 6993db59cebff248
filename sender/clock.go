// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"slices"
	"sync"
	"time"
)

// clock estimates how far ours is from the gateways', as NTP's clock filter
// does (RFC 5905, section 10): of the last samples the one with the shortest round
// trip is the best.
type clock struct {
	mu      sync.Mutex
	samples []clockSample
}

type clockSample struct{ offset, roundTrip time.Duration }

const clockSamples = 8

func (c *clock) add(offset, roundTrip time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if roundTrip < 0 {
		roundTrip = 0 // the other clock ran faster than ours meanwhile
	}
	if best, ok := c.best(); ok && (offset-best.offset).Abs() > (roundTrip+best.roundTrip)/2+clockSlack {
		c.samples = nil // both cannot be true: a clock was set
	}
	if len(c.samples) == clockSamples {
		c.samples = slices.Delete(c.samples, 0, 1)
	}
	c.samples = append(c.samples, clockSample{offset, roundTrip})
}

// clockSlack is what clocks may drift apart while samples are kept.
const clockSlack = 50 * time.Millisecond

func (c *clock) best() (clockSample, bool) {
	if len(c.samples) == 0 {
		return clockSample{}, false
	}
	return slices.MinFunc(c.samples, func(a, b clockSample) int { return int(a.roundTrip - b.roundTrip) }), true
}

// estimate returns false where nothing was measured yet.
func (c *clock) estimate() (offset, roundTrip time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.best()
	return s.offset, s.roundTrip, ok
}
