// SPDX-License-Identifier: Apache-2.0

package session

import (
	"time"

	"golang.org/x/time/rate"
)

// pace keeps a connection to so many bytes a second. Bytes are paid for after they were
// written, so that what is written next is chosen as late as can be. Its burst is a second's
// worth, or one message that is larger.
type pace struct {
	limiter *rate.Limiter // nil: no limit
	until   time.Time
}

func newPace(bytesPerSecond int64) *pace {
	if bytesPerSecond <= 0 {
		return &pace{}
	}
	return &pace{limiter: rate.NewLimiter(rate.Limit(bytesPerSecond), int(bytesPerSecond))}
}

// most is how much may be written at a time, of what could be.
func (p *pace) most(bytes int) int {
	if p.limiter == nil {
		return bytes
	}
	return min(bytes, p.limiter.Burst())
}

// wrote pays for what was written.
func (p *pace) wrote(bytes int, now time.Time) {
	if p.limiter == nil {
		return
	}
	var delay time.Duration
	for bytes > 0 {
		part := min(bytes, p.limiter.Burst())
		delay = p.limiter.ReserveN(now, part).DelayFrom(now)
		bytes -= part
	}
	p.until = now.Add(delay)
}

// wait is how long nothing may be written.
func (p *pace) wait(now time.Time) time.Duration { return p.until.Sub(now) }
