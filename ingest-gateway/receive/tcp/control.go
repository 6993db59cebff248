// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"slices"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Control frames that are passed over, as metrics call them.
const (
	controlUnknown   = "unknown"
	controlMalformed = "malformed"
)

// Commands send senders what is asked of their instruments.
type Commands interface {
	// Join calls tell with the line of the command that stands for an instrument, and
	// then with each other one, until leave is called. Tell does not wait.
	Join(instrument string, tell func(line string)) (leave func())
}

// obeys sees to it that a sender that takes commands gets them over this
// connection.
func (c *connection) obeys(h wire.Heartbeat) {
	commands := c.server.cfg.Commands
	if commands == nil || c.leave != nil || c.accepted.CloseReceipt || !slices.Contains(h.Commands, wire.CommandSampling) {
		return
	}
	c.leave = commands.Join(c.accepted.Instrument.Name, c.receipts.command)
}

// control takes what a sender says of itself. A frame that is not understood is counted
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
		h, err = wire.Decode[wire.Heartbeat](body)
	}
	if err != nil {
		c.server.metrics.controls.WithLabelValues(name, controlMalformed).Inc()
		return nil
	}
	c.server.metrics.controls.WithLabelValues(name, wire.ControlHeartbeat).Inc()
	if c.server.cfg.Heartbeat != nil {
		c.server.cfg.Heartbeat(name, h, received.UTC(), c.source.Addr())
	}
	c.obeys(h)
	return c.receipts.heartbeat(received)
}
