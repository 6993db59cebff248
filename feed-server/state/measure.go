// SPDX-License-Identifier: Apache-2.0

// Package state measures how consumers do, and reports it to the Site and to Prometheus.
package state

import (
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// The thresholds that FeedConsumer's documentation promises.
const (
	// SlowAge is how old the oldest message that was not given is where a consumer is
	// slow, SlowIntervals that in intervals for mode Sample, and SlowFor how long that
	// lasts before it is said.
	SlowAge       = 5 * time.Second
	SlowIntervals = 2
	SlowFor       = 10 * time.Second
	// OverrunFor is how long after its last gap record a consumer is overrun.
	OverrunFor = 10 * time.Minute
)

// Facts are what the state of a consumer follows from.
type Facts struct {
	// Connected: a client reads, or asked for messages lately.
	Connected bool
	// Since is when the oldest message that was not given arrived; zero if there is none.
	Since time.Time
	// LastGap is when the last gap record was written; zero for never.
	LastGap time.Time
	// Interval of mode Sample, else 0.
	Interval time.Duration
}

// Tracker remembers since when a consumer is behind.
type Tracker struct {
	behind time.Time
}

// State returns how a consumer does now: wire.StateIdle and so on. Ask it often:
// what it did not see it does not know.
func (t *Tracker) State(f Facts, now time.Time) string {
	most := SlowAge
	if f.Interval > 0 {
		most = SlowIntervals * f.Interval
	}
	if !f.Connected || f.Since.IsZero() || now.Sub(f.Since) <= most {
		t.behind = time.Time{}
	} else if t.behind.IsZero() {
		t.behind = now
	}
	switch {
	case !f.Connected:
		return wire.StateIdle
	case !f.LastGap.IsZero() && now.Sub(f.LastGap) < OverrunFor:
		return wire.StateOverrun
	case !t.behind.IsZero() && now.Sub(t.behind) >= SlowFor:
		return wire.StateSlow
	default:
		return wire.StateFlowing
	}
}
