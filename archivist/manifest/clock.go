// SPDX-License-Identifier: Apache-2.0

package manifest

import "github.com/substorm/substorm/internal/wire"

// clocks are what is known of the times that instruments state, for the instruments that once stated one that was
// not believed.
type clocks struct{ said[wire.ClockStatus] }

// note takes an object that was listed, which may be one that was listed before. An imported tree is no evidence of today's clock.
func (c *clocks) note(n *wire.Notice) {
	if n.Gateway == wire.ImportWriter {
		return
	}
	from, _, doubted := n.Told()
	status, known := c.of[n.Instrument]
	switch {
	case doubted != nil:
		if known && n.ReceivedAt.Before(status.DoubtedAt) {
			return
		}
		status = wire.ClockStatus{DoubtedAt: n.ReceivedAt, Offset: wire.Span(n.ReceivedAt.Sub(doubted.To)), Doubted: status.Doubted + 1}
	case from != nil && known && status.BelievedAt == nil && n.ReceivedAt.After(status.DoubtedAt):
		at := n.ReceivedAt
		status.BelievedAt = &at
	default:
		return
	}
	c.set(n.Instrument, status)
}
