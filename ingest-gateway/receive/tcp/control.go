// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Control frames that are passed over, as metrics call them.
const (
	controlUnknown   = "unknown"
	controlMalformed = "malformed"
)

// control takes what a sender says of itself. What nobody understands is counted
// and passed over: a newer sender may say more. Errors: *cut.
func (c *connection) control(body []byte) error {
	received := time.Now()
	name := c.accepted.Instrument.Name
	kind, err := wire.ControlType(body)
	if err == nil && kind != wire.ControlHeartbeat {
		c.server.metrics.controls.WithLabelValues(name, controlUnknown).Inc()
		return nil
	}
	var h wire.Heartbeat
	if err == nil {
		h, err = wire.DecodeHeartbeat(body)
	}
	if err != nil {
		c.server.metrics.controls.WithLabelValues(name, controlMalformed).Inc()
		return nil
	}
	c.server.metrics.controls.WithLabelValues(name, wire.ControlHeartbeat).Inc()
	if c.server.cfg.Heartbeat != nil {
		c.server.cfg.Heartbeat(name, h, received.UTC(), c.source.Addr())
	}
	return c.receipts.heartbeat(received)
}
