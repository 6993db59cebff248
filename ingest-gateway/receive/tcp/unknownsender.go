// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"context"
	"io"
	"net/netip"
	"time"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/internal/wire"
)

// UnknownSenders takes what unknown senders send.
type UnknownSenders interface {
	// Receive keeps what r holds, up to its end, as one object. Its receipt says
	// that the object is safe; otherwise it returns why it is not kept.
	Receive(ctx context.Context, r io.Reader, source netip.AddrPort, port uint16) (wire.Receipt, wire.Cause, error)
}

// How long an unknown sender may be silent, and send: the defaults of a listener.
const (
	unknownIdle = time.Minute
	unknownAge  = time.Hour
)

// quarantine receives one object of an unknown sender, if that is wanted, and says whether it did.
// On a port of TLS the bytes are no object, and an edge may name a port without a listener.
func (c *connection) quarantine(refusal intake.Refusal) bool {
	s := c.server
	if s.cfg.UnknownSenders == nil || refusal.Cause != wire.CauseUnknownSource || !s.ports.Has(c.port) ||
		s.cfg.Registry.Current().PortTLS(wire.ProtocolTCP, c.port) != "" {
		return false
	}
	defer context.AfterFunc(s.ctx, c.interrupt)()
	receipt, cause, err := s.cfg.UnknownSenders.Receive(s.ctx, &unknownSender{c, time.Now().Add(unknownAge)}, c.source, c.port)
	if cause != "" {
		s.cfg.Registry.Refusals.Note(refusal, wire.ProtocolTCP, c.port, c.source.Addr(), 1)
		c.refuseUnreadAs(cause, err)
		return true
	}
	s.cfg.Registry.Refusals.Note(refusal, wire.ProtocolTCP, c.port, c.source.Addr(), 1)
	if c.say(receipt) == nil {
		c.endCleanly()
	}
	return true
}

func (c *connection) refuseUnreadAs(cause wire.Cause, err error) {
	c.server.cfg.Archive.Refused(wire.UnknownInstrument, cause)
	c.refuse(wire.UnknownInstrument, cause, 0, err)
}

// unknownSender reads a connection until its sender ends, stalls, or is too old.
type unknownSender struct {
	c   *connection
	end time.Time
}

// Read implements io.Reader.
func (s *unknownSender) Read(b []byte) (int, error) {
	_ = s.c.conn.SetReadDeadline(earlier(time.Now().Add(unknownIdle), s.end))
	if err := s.c.server.ctx.Err(); err != nil { // looked at after the deadline is set: interrupt moves it
		return 0, err
	}
	return s.c.transport.read(b)
}
