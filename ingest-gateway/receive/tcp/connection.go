// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/receive/listen"
	"github.com/substorm/substorm/ingest-gateway/store"
	"github.com/substorm/substorm/internal/wire"
)

// past is a deadline that interrupts a read.
var past = time.Unix(1, 0)

// connection is one sender's connection. It belongs to one goroutine, which
// reads; receipts of framed objects are written by another one.
type connection struct {
	server *Server
	// conn is the socket, and transport what carries the bytes on it.
	conn      *net.TCPConn
	slot      *listen.Slot
	transport transport
	source    netip.AddrPort
	port      uint16
	// claim is how the sender identified itself.
	claim intake.Claim
	// accepted is the listener for which the connection was accepted; listener is the listener of
	// the current object: its limits may have changed since.
	accepted, listener *intake.Listener

	// object is the one that is being received; nil between objects.
	object  *store.Object
	witness intake.Witness
	// began is when the object's first byte came, and zero between objects. An
	// object of UntilClose begins with its connection.
	began time.Time
	// heard is when the sender was last heard of.
	heard time.Time
	// until is the socket's deadline; zero if it has passed.
	until time.Time
	// took: since memory was asked back, what had arrived was taken.
	took bool
	// skipping: what comes is the rest of an object that is refused already.
	skipping bool
	// paced is when reading may continue, within the instrument's limits.
	paced time.Time

	// leave ends the commands of a sender that takes them; nil for others.
	leave func()

	// receipts are the receipts of framed objects; nil for UntilClose.
	receipts *receipts
	// draining: a connection without a byte is turned away.
	draining atomic.Bool
	// entry is the connection's share of what its instrument may have open; displaced says
	// that it gives way to another.
	entry     *listen.Entry
	displaced atomic.Bool
}

// interrupt makes a read that waits return, so that its caller looks around.
func (c *connection) interrupt() { _ = c.conn.SetReadDeadline(past) }

func (c *connection) drain() {
	c.draining.Store(true)
	c.interrupt()
}

// displace ends a connection that gives way to another.
func (c *connection) displace() {
	c.displaced.Store(true)
	c.interrupt()
}

// run receives what the sender sends, stores it, and writes receipts.
func (c *connection) run() {
	s := c.server
	s.mu.Lock()
	s.begun[c] = struct{}{}
	c.draining.Store(s.closed)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.begun, c)
		s.mu.Unlock()
	}()
	stop := context.AfterFunc(s.ctx, c.interrupt)
	defer stop()
	c.transport = recognize(c.transport, c.listener)
	if f := newFraming(c.listener.Framing); f != nil {
		c.runFramed(f)
	} else {
		c.runUntilClose()
	}
}

// runUntilClose receives one object, whose end is the sender's.
func (c *connection) runUntilClose() {
	if _, err := c.paceObject(); err != nil {
		c.refuseUnread(c.listener.Instrument.Name, cutOf(err).cause)
		return
	}
	c.heard = time.Now()
	c.began = c.heard
	c.object = c.server.cfg.Archive.Begin(c.listener.Instrument, c.source, c.interrupt)
	for {
		got, _, err := c.fill(c.limit()+1, nil)
		if err == nil {
			c.take(got)
		}
		switch {
		case c.object.Size() > c.limit():
			c.abort(wire.CauseObjectTooLarge, nil)
		case err == nil:
			continue
		case errors.Is(err, io.EOF) && c.object.Size() == 0:
			c.abort(wire.CauseEmpty, nil)
		case errors.Is(err, io.EOF):
			c.finish()
		default:
			why := cutOf(err)
			c.abort(why.cause, why.err)
		}
		return
	}
}

// abort gives the object of UntilClose up.
func (c *connection) abort(cause wire.Cause, err error) {
	size := c.object.Size()
	c.object.Abort(cause)
	c.refuse(c.listener.Instrument.Name, cause, size, err)
}

// finish stores the object of UntilClose and writes its receipt.
func (c *connection) finish() {
	if !c.entry.Hold() {
		c.abort(wire.CauseDisplaced, nil)
		return
	}
	c.object.CameTo(c.listener.Name, c.port, c.framingOf(false))
	c.object.Whole(c.completeness(false))
	receipt, receivedAt, err := c.object.Commit(c.server.ctx)
	if err != nil {
		c.refuse(c.listener.Instrument.Name, store.CauseOf(err), c.object.Size(), err)
		return
	}
	if !c.listener.CloseReceipt && c.acknowledge(receipt, receivedAt) != nil {
		return
	}
	c.endCleanly() // the line goes out, and then a clean end
}

// endCleanly makes the close that follows a clean end, and no reset.
func (c *connection) endCleanly() {
	if c.transport.farewell() == nil {
		_ = c.conn.SetLinger(-1)
	}
}

// runFramed receives objects until the sender, or the gateway, ends the connection.
func (c *connection) runFramed(f framing) {
	c.receipts = newReceipts(c)
	err := f.receive(c)
	if c.leave != nil {
		c.leave()
	}
	if why := new(cut); errors.As(err, &why) {
		c.giveUp(why.cause, why.err)
	}
	switch {
	case !c.receipts.close():
		// An object has no receipt. Linger is {1,0}: closing resets.
	case errors.Is(err, io.EOF):
		c.endCleanly() // the sender has ended, and has all its receipts
	case c.listener.CloseReceipt:
		// A clean end that is not an answer to the sender's own would pass for the
		// receipt of what it sent meanwhile: reset.
	case c.transport.endWriting() == nil:
		c.discard()
		_ = c.conn.SetLinger(-1)
	}
}

// giveUp ends a connection before its sender did, with a refusal where an
// object is cut off by that.
func (c *connection) giveUp(cause wire.Cause, err error) {
	switch {
	case c.object != nil:
		size := c.object.Size()
		c.object.Abort(cause)
		c.object = nil
		c.receipts.refuse(cause, size, err, true)
	case c.skipping: // refused already
	case c.began.IsZero() && cause == wire.CauseDisplaced:
		c.receipts.refuse(cause, 0, err, false) // behind the receipts of what came before
	case c.began.IsZero() && cause == wire.CauseWrongProtocol:
		c.server.cfg.Archive.Refused(c.listener.Instrument.Name, cause)
		c.receipts.refuse(cause, 0, err, false)
	case c.began.IsZero():
		if withoutLine[cause] {
			c.receipts.fail(cause)
		}
	default: // not more than its length has come
		c.server.cfg.Archive.Refused(c.listener.Instrument.Name, cause)
		c.receipts.refuse(cause, 0, err, false)
	}
}

// completeness says whether the object is known to be whole: what the Instrument
// expects decides, without that how the object ended.
func (c *connection) completeness(framed bool) wire.Completeness {
	if e := c.listener.Expect; e != nil {
		framed = c.witness.Meets(e)
		if !framed {
			c.server.metrics.unexpected.WithLabelValues(c.listener.Instrument.Name).Inc()
		}
	}
	if framed {
		return wire.CompletenessVerified
	}
	return wire.CompletenessUnverified
}
