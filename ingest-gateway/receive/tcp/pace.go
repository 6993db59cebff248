// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// paceStep is how long a connection that is read slowly is deaf to what else it
// should do: give memory back, drain.
const paceStep = 50 * time.Millisecond

// count takes note of bytes that were read, which says when more may be.
func (c *connection) count(n int) {
	c.entry.Arrived(n)
	if wait := c.listener.Instrument.Limit.Read(n); wait > 0 {
		c.paced = c.heard.Add(wait)
	}
}

// pace waits a while if the instrument has sent as much as it may, and says whether it did: the
// caller looks around then, and asks again. The sender does not count as silent meanwhile, because
// the gateway does not read.
func (c *connection) pace() bool {
	if c.paced.IsZero() {
		return false
	}
	wait := time.Until(c.paced)
	if wait <= 0 {
		c.paced = time.Time{}
		return false
	}
	c.server.metrics.paced.WithLabelValues(c.listener.Instrument.Name).Inc()
	time.Sleep(min(wait, paceStep))
	c.heard = time.Now()
	return true
}

// paceObject waits until one more object may begin, and says whether it had to.
// Errors: *cut.
func (c *connection) paceObject() (slowed bool, err error) {
	for {
		wait, ok := c.listener.Instrument.Limit.TakeObject()
		if ok {
			return slowed, nil
		}
		slowed = true
		if c.server.ctx.Err() != nil || c.receipts != nil && c.receipts.failed() != "" {
			return true, &cut{cause: wire.CauseDraining}
		}
		if c.displaced.Load() {
			return true, &cut{cause: wire.CauseDisplaced}
		}
		time.Sleep(min(wait, paceStep))
	}
}
