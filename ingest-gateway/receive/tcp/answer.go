// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/internal/wire"
)

// How long, and how much, is read of a sender that is refused while it still
// sends. A socket that is closed with bytes unread resets, and a reset destroys
// what the sender has not read yet: the reason.
const (
	lingerTime  = 5 * time.Second
	lingerBytes = 64 << 20
	lingerChunk = 4 << 10
	// maxLingers bounds how many connections are read from for that at a time.
	maxLingers = 256
	// sayTimeout is how long a line may take into the kernel's buffer.
	sayTimeout = 5 * time.Second
)

// withoutLine: the object may be taken if it is sent again, by another gateway
// or later; the sender is reset, as by a gateway that died.
var withoutLine = map[wire.Cause]bool{
	wire.CauseReset:             true,
	wire.CauseDraining:          true,
	wire.CauseDisplaced:         true,
	wire.CauseNoSpace:           true,
	wire.CauseStoreUnavailable:  true,
	wire.CauseStreamUnavailable: true,
	wire.CauseStreamFull:        true,
}

// refuseSender refuses a connection of a sender that may not send.
func (c *connection) refuseSender(refusal intake.Refusal, err error) {
	s := c.server
	s.cfg.Registry.Refusals.Note(refusal, wire.ProtocolTCP, c.port, c.source.Addr(), 1)
	name := wire.UnknownInstrument
	if refusal.Cause == wire.CauseRetired {
		name = refusal.Name()
	}
	s.cfg.Archive.Refused(name, refusal.Cause)
	s.refusals.SayNearly(name, refusal, c.source, c.port, err)
	s.cfg.Slow.Hold(s.ctx, refusal.Cause, c.source.Addr())
	if listener, ok := s.cfg.Registry.Lookup(wire.ProtocolTCP, c.port, c.source.Addr()); ok && listener.CloseReceipt {
		return // it cannot bear a line; linger is {1,0}: closing resets
	}
	switch {
	case c.transport == nil: // the handshake failed: TLS has reported why
		if c.conn.CloseWrite() == nil {
			c.letRead()
		}
	case c.say(wire.Receipt{Refused: refusal.Cause}) == nil && c.transport.endWriting() == nil:
		c.letRead()
	}
}

// refuseUnread refuses a connection without reading from it.
func (c *connection) refuseUnread(instrument string, cause wire.Cause) {
	c.server.cfg.Archive.Refused(instrument, cause)
	c.refuse(instrument, cause, 0, nil)
}

// refuse counts and logs why there is no receipt and, if that helps, notifies the sender.
func (c *connection) refuse(instrument string, cause wire.Cause, size int64, err error) {
	c.server.refusals.Say(instrument, cause, c.source, size, err)
	if withoutLine[cause] || (c.listener != nil && c.listener.CloseReceipt) {
		return // linger is {1,0}: closing resets
	}
	if c.say(wire.Receipt{Refused: cause}) != nil || c.transport.endWriting() != nil {
		return
	}
	c.letRead()
}

// letRead reads until the sender has had its chance to read what was written last.
func (c *connection) letRead() {
	if c.discard() {
		_ = c.conn.SetLinger(-1)
	}
}

// acknowledge writes the receipt of an object that is safe, and counts it.
func (c *connection) acknowledge(receipt wire.Receipt, receivedAt time.Time) error {
	err := c.say(receipt)
	if err != nil {
		c.undelivered(receipt, err)
		return err
	}
	c.server.cfg.Archive.Acknowledged(c.accepted.Instrument, receivedAt)
	return nil
}

// undelivered logs a receipt that its sender will not get.
func (c *connection) undelivered(receipt wire.Receipt, err error) {
	c.server.cfg.Logger.Warn("receipt not delivered: the object is stored, and a repeat of it will be marked as a duplicate",
		"instrument", c.accepted.Instrument.Name, "source", c.source, "sha256", receipt.Digest.String(), "error", err)
}

// say writes a receipt line.
func (c *connection) say(r wire.Receipt) error { return c.sayLine(r.Line()) }

func (c *connection) sayLine(line string) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(sayTimeout)); err != nil {
		return err
	}
	_, err := io.WriteString(c.transport, line)
	return err
}

// discard reads until the sender closes its side, within limits, and says
// whether it did: then the sender has had its chance to read.
func (c *connection) discard() bool {
	if !c.server.lingers.TryAcquire(1) {
		return true
	}
	defer c.server.lingers.Release(1)
	end := time.Now().Add(lingerTime)
	buf := make([]byte, lingerChunk)
	for total := 0; total < lingerBytes && time.Now().Before(end) && c.server.ctx.Err() == nil; {
		if c.conn.SetReadDeadline(end) != nil { // each time: a late interrupt may have moved it
			return false
		}
		n, err := c.conn.Read(buf)
		total += n
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return errors.Is(err, io.EOF)
		}
	}
	return false
}
