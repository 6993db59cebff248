// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/ingest-gateway/archive/store"
	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/internal/wire"
)

// past is a deadline that interrupts a read.
var past = time.Unix(1, 0)

// connection is one sender's connection: one object.
type connection struct {
	server *Server
	conn   *net.TCPConn
	source netip.AddrPort
	way    *intake.Way
	began  time.Time
	// heard is when the sender was last heard of.
	heard  time.Time
	object *store.Object
	// draining: a connection without a byte is turned away.
	draining atomic.Bool
}

// interrupt makes a read that waits return, so that receive looks around.
func (c *connection) interrupt() { _ = c.conn.SetReadDeadline(past) }

func (c *connection) drain() {
	c.draining.Store(true)
	c.interrupt()
}

// run receives the object, stores it, and writes the receipt.
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

	c.heard = c.began
	c.object = s.cfg.Archive.Begin(c.way.Instrument, c.source, c.interrupt)
	if cause, err := c.receive(); cause != "" {
		size := c.object.Size()
		c.object.Abort(cause)
		c.refuse(c.way.Instrument.Name, cause, size, err)
		return
	}
	c.finish()
}

// finish stores a whole object and writes its receipt.
func (c *connection) finish() {
	receipt, receivedAt, err := c.object.Commit(c.server.ctx)
	if err != nil {
		c.refuse(c.way.Instrument.Name, store.CauseOf(err), c.object.Size(), err)
		return
	}
	if c.way.CloseReceipt {
		_ = c.conn.SetLinger(-1)
		return
	}
	if err := c.say(receipt); err != nil {
		c.server.cfg.Logger.Warn("receipt not delivered: the object is stored, and a repeat of it will be withdrawn",
			"instrument", c.way.Instrument.Name, "source", c.source, "sha256", receipt.Digest.String(), "error", err)
		return
	}
	c.server.cfg.Archive.Acknowledged(c.way.Instrument, receivedAt)
	_ = c.conn.SetLinger(-1) // the line goes out, and then a clean end
}

// receive reads until the sender closes its side. It returns why the object is
// given up instead.
func (c *connection) receive() (wire.Cause, error) {
	limit := min(c.way.Instrument.MaxObjectSize, store.MaxObjectSize)
	for {
		n, err := c.read()
		if n > 0 {
			c.heard = time.Now()
		}
		switch {
		case errors.Is(err, errAgain):
		case c.object.Size() > limit:
			return wire.CauseObjectTooLarge, nil
		case errors.Is(err, io.EOF) && c.object.Size() == 0:
			return wire.CauseEmpty, nil
		case errors.Is(err, io.EOF):
			return "", nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			if cause := c.interrupted(); cause != "" {
				return cause, nil
			}
			if err := c.yield(); err != nil {
				return store.CauseOf(err), err
			}
		case errors.As(err, new(*spaceError)):
			if cause := c.interrupted(); cause != "" && cause != wire.CauseStalled {
				return cause, err
			}
			return store.CauseOf(err), err
		case err != nil:
			return wire.CauseReset, err
		}
	}
}

// interrupted says why the connection ends after a deadline, if it does.
func (c *connection) interrupted() wire.Cause {
	now := time.Now()
	switch {
	case c.server.ctx.Err() != nil, c.draining.Load() && c.object.Size() == 0:
		return wire.CauseDraining
	case now.Sub(c.began) >= c.way.MaxAge:
		return wire.CauseTooOld
	case now.Sub(c.heard) >= c.way.IdleTimeout:
		return wire.CauseStalled
	default:
		return ""
	}
}

// errAgain: nothing was read yet, try again.
var errAgain = errors.New("try again")

// spaceError: there is no place for what the sender sends.
type spaceError struct{ error }

func (e *spaceError) Unwrap() error { return e.error }

// read reads once. A connection whose sender is silent needs no memory: it asks
// for a slab only when there is something to read.
func (c *connection) read() (int, error) {
	// The order matters: who interrupts sets its mark first and the deadline then.
	if err := c.conn.SetReadDeadline(c.deadline()); err != nil {
		return 0, err
	}
	if c.object.Asked() || c.interrupted() != "" {
		return 0, os.ErrDeadlineExceeded
	}
	space := c.object.Room()
	if space == nil {
		return 0, c.makeRoom()
	}
	n, err := c.conn.Read(space)
	if n > 0 {
		c.object.Advance(space, n)
	}
	return n, err
}

// makeRoom waits for something to read, and then for a place for it, as long as
// the sender might keep us waiting. It returns errAgain once there is room.
func (c *connection) makeRoom() error {
	if !c.object.HoldsMemory() {
		if err := c.readable(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithDeadline(c.server.ctx, c.deadlineFrom(time.Now()))
	defer cancel()
	if _, err := c.object.Space(ctx); err != nil {
		return &spaceError{err}
	}
	c.heard = time.Now() // it was not the sender who kept us waiting
	return errAgain
}

func (c *connection) deadline() time.Time { return c.deadlineFrom(c.heard) }

func (c *connection) deadlineFrom(heard time.Time) time.Time {
	idle, age := heard.Add(c.way.IdleTimeout), c.began.Add(c.way.MaxAge)
	if age.Before(idle) {
		return age
	}
	return idle
}

// readable waits until there is something to read. Errors: io.EOF, the
// socket's, or os.ErrDeadlineExceeded.
func (c *connection) readable() error {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return err
	}
	var n int
	var result error
	peek := make([]byte, 1)
	if err := raw.Read(func(fd uintptr) bool {
		n, _, result = unix.Recvfrom(int(fd), peek, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return !errors.Is(result, unix.EAGAIN) && !errors.Is(result, unix.EINTR)
	}); err != nil {
		return err
	}
	if result == nil && n == 0 {
		return io.EOF
	}
	return result
}

// yield gives memory to another object that waits for it, after taking what has
// arrived already.
func (c *connection) yield() error {
	if !c.object.Asked() {
		return nil
	}
	if space := c.object.Room(); space != nil {
		n, err := c.readNow(space)
		if err != nil {
			return nil // the next read tells
		}
		c.object.Advance(space, n)
		if n > 0 {
			c.heard = time.Now()
		}
	}
	return c.object.Yield()
}

// readNow reads what has arrived, without waiting and whatever the deadline.
func (c *connection) readNow(space []byte) (n int, err error) {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var result error
	if err := raw.Control(func(fd uintptr) {
		n, _, result = unix.Recvfrom(int(fd), space, unix.MSG_DONTWAIT)
	}); err != nil {
		return 0, err
	}
	if errors.Is(result, unix.EAGAIN) || errors.Is(result, unix.EINTR) {
		return 0, nil
	}
	return max(n, 0), result
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
