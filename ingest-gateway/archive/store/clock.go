// SPDX-License-Identifier: Apache-2.0

package store

import (
	"sync/atomic"
	"time"
)

// clock tells receive times. It never steps back, and never tells the same
// nanosecond twice: gateway, incarnation and receive time name an object.
type clock struct{ last atomic.Int64 }

// now returns the gateway's time, or, where that has stepped back, the time
// after the last one told.
func (c *clock) now() time.Time { return c.after(time.Now().UnixNano()) }

func (c *clock) after(now int64) time.Time {
	for {
		last := c.last.Load()
		t := max(now, last+1)
		if c.last.CompareAndSwap(last, t) {
			return time.Unix(0, t).UTC()
		}
	}
}
