// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/store"
	"github.com/substorm/substorm/internal/wire"
)

// cut is why the connection ends before its sender ended it.
type cut struct {
	cause wire.Cause
	err   error // nil where cause says all
}

// Error implements error.
func (e *cut) Error() string { return fmt.Sprintf("%s: %v", e.cause, e.err) }

// Unwrap returns what went wrong.
func (e *cut) Unwrap() error { return e.err }

// cutOf returns the cut that an error of reading is.
func cutOf(err error) *cut {
	if why := new(cut); errors.As(err, &why) {
		return why
	}
	return &cut{wire.CauseReset, err}
}

var (
	// errPause: within an object nothing came for the listener's idleAfter.
	errPause = errors.New("the sender paused")
	// errLeave: the gateway ends the connection, and cuts no object off by that.
	errLeave = errors.New("the gateway ends the connection")
)

// limit is the greatest size of an object, in bytes.
func (c *connection) limit() int64 {
	return min(c.listener.Instrument.MaxObjectSize, store.MaxObjectSize)
}

func (c *connection) size() int64 { return c.object.Size() }

// fill reads once: at most limit bytes that follow the object's last one, and what comes behind
// these into ahead. It returns what it read, for take, and how many bytes are in ahead. It waits
// for the sender, for memory and for the store. Errors: io.EOF, errPause, *cut.
func (c *connection) fill(limit int64, ahead []byte) (got []byte, n int, err error) {
	for {
		// The order matters: an interrupting goroutine sets its mark first and the deadline then.
		c.setDeadline()
		if err := c.checkEnded(); err != nil {
			return nil, 0, err
		}
		if c.object.Asked() {
			if got := c.takeArrived(limit); len(got) > 0 {
				return got, 0, nil
			}
			if err := c.object.Yield(); err != nil {
				return nil, 0, &cut{store.CauseOf(err), err}
			}
			continue
		}
		space := c.object.FreeSpace()
		if space == nil {
			if err := c.makeSpace(); err != nil {
				return nil, 0, err
			}
			continue
		}
		space = space[:min(len(space), c.listener.Instrument.Limit.Chunk())]
		if int64(len(space)) < limit {
			ahead = nil // it does not end in this space
		} else {
			space = space[:limit]
		}
		if c.pace() {
			continue
		}
		n, m, err := c.transport.readAhead(space, ahead)
		if n > 0 {
			c.heard = time.Now()
			c.count(n)
			return space[:n], m, nil
		}
		if err := c.readError(err); err != nil {
			return nil, 0, err
		}
	}
}

// readError sorts an error of a transport: nil for a deadline, io.EOF, *cut.
func (c *connection) readError(err error) error {
	var why *cut
	switch {
	case err == nil:
		return nil
	case errors.As(err, &why):
		return why
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.until = time.Time{}
		return nil
	case errors.Is(err, io.EOF):
		return io.EOF
	case c.slot.Displaced():
		return &cut{wire.CauseDisplaced, err}
	default:
		return &cut{wire.CauseReset, err}
	}
}

// take makes what fill returned, or the beginning of it, the object's.
func (c *connection) take(got []byte) {
	c.object.Advance(got, len(got))
	if c.listener.Expect != nil {
		c.witness.See(got)
	}
}

// put copies into the object what was read before the object began.
func (c *connection) put(b []byte) error {
	for len(b) > 0 {
		if c.object.Asked() {
			if err := c.object.Yield(); err != nil {
				return &cut{store.CauseOf(err), err}
			}
		}
		space := c.object.FreeSpace()
		if space == nil {
			if err := c.space(); err != nil {
				return err
			}
			continue
		}
		n := copy(space, b)
		c.take(space[:n])
		b = b[n:]
	}
	return nil
}

// read reads once, what is not, or not yet, an object's. Errors as fill, and
// errLeave.
func (c *connection) read(into []byte) (int, error) {
	for {
		c.setDeadline()
		if err := c.checkEnded(); err != nil {
			return 0, err
		}
		n, err := c.transport.read(into)
		if n > 0 {
			c.heard = time.Now()
			c.entry.Arrived(n)
			c.started()
			return n, nil
		}
		if err := c.readError(err); err != nil {
			return 0, err
		}
	}
}

// await returns once there is something to read. Errors as read.
func (c *connection) await() error {
	for {
		c.setDeadline()
		if err := c.checkEnded(); err != nil {
			return err
		}
		err := c.transport.readable()
		if err == nil {
			c.heard = time.Now()
			c.started()
			return nil
		}
		if err := c.readError(err); err != nil {
			return err
		}
	}
}

// started says that something of the next object has come.
func (c *connection) started() {
	if c.began.IsZero() {
		c.began = c.heard
	}
}

// between says that nothing of an object has come.
func (c *connection) between() { c.began, c.skipping = time.Time{}, false }

// begin begins an object, once there is space for one more on its way. Errors:
// errLeave, *cut.
func (c *connection) begin() error {
	listener, refusal := c.server.cfg.Registry.Identify(c.claim)
	if c.draining.Load() || refusal.Cause != "" || !mayContinue(c.accepted, listener) {
		// The bytes of the object that were read are few; its sender has no receipt and
		// sends it again, over a connection that is checked again.
		c.between()
		return errLeave
	}
	c.listener = listener
	waited, err := c.receipts.enter()
	if err != nil {
		return err
	}
	if slowed, err := c.paceObject(); err != nil {
		return err
	} else if waited || slowed { // it was not the sender who kept us waiting
		c.heard = time.Now()
		c.began = c.heard
	}
	c.took, c.witness = false, intake.Witness{}
	c.object = c.server.cfg.Archive.Begin(c.listener.Instrument, c.source, c.interrupt)
	return nil
}

// mayContinue says whether a connection that was accepted for one listener may carry
// objects of another: the same instrument's, framed and receipted alike.
func mayContinue(accepted, now *intake.Listener) bool {
	return now == accepted || now.Instrument.UID == accepted.Instrument.UID && now.Instrument.Name == accepted.Instrument.Name &&
		now.Framing == accepted.Framing && now.CloseReceipt == accepted.CloseReceipt && now.TLS == accepted.TLS
}

// end hands a whole object over and continues with the next.
func (c *connection) end(framed bool) {
	o := c.object
	c.object = nil
	c.between()
	o.CameTo(c.listener.Name, c.port, c.framingOf(framed))
	o.Whole(c.completeness(framed))
	c.receipts.commit(o)
}

// framingOf says what stood around the bytes of an object.
func (c *connection) framingOf(framed bool) string {
	if framed {
		return c.listener.Framing
	}
	return ""
}

// skip refuses the object, whose rest may still come.
func (c *connection) skip(cause wire.Cause) {
	size := c.object.Size()
	c.object.Abort(cause)
	c.object = nil
	c.skipping = true
	c.receipts.refuse(cause, size, nil, true)
}

// checkEnded says why reading ends now, if it does: errPause, errLeave, *cut.
func (c *connection) checkEnded() error {
	now := time.Now()
	switch framed := c.receipts != nil; {
	case c.server.ctx.Err() != nil:
		return &cut{cause: wire.CauseDraining}
	case framed && c.receipts.failed() != "":
		return &cut{cause: c.receipts.failed()}
	case c.displaced.Load():
		return &cut{cause: wire.CauseDisplaced}
	case c.began.IsZero():
		return c.checkQuiet(now)
	case !framed && c.draining.Load() && c.object.Size() == 0:
		return &cut{cause: wire.CauseDraining}
	case now.Sub(c.began) >= c.listener.MaxAge:
		return &cut{cause: wire.CauseTooOld}
	case now.Sub(c.heard) < c.pause():
		return nil
	case c.listener.IdleAfter == 0:
		return &cut{cause: wire.CauseStalled}
	case c.transport.readNow(nil) != 0:
		// We were late, not the sender.
		c.heard = now
		return nil
	default:
		return errPause
	}
}

// checkQuiet says whether the connection ends between two objects.
func (c *connection) checkQuiet(now time.Time) error {
	switch {
	case c.draining.Load():
		return errLeave
	case now.Sub(c.heard) < c.quietFor():
		return nil
	case c.receipts.waiting(): // then the sender may wait, too
		c.heard = now
		return nil
	default:
		return errLeave
	}
}

// commandsQuiet is how long a sender that takes commands may be silent at least:
// commands reach it only while its connection stands. On metered links it sends a
// heartbeat each few minutes.
const commandsQuiet = 15 * time.Minute

// quietFor is how long the sender may be silent between objects.
func (c *connection) quietFor() time.Duration {
	if c.leave != nil {
		return max(c.listener.Quiet, commandsQuiet)
	}
	return c.listener.Quiet
}

// pause is how long the sender may be silent within an object.
func (c *connection) pause() time.Duration {
	if c.listener.IdleAfter > 0 {
		return c.listener.IdleAfter
	}
	return c.listener.IdleTimeout
}

// deadline is when ended must be asked again.
func (c *connection) deadline() time.Time {
	if c.began.IsZero() {
		return c.heard.Add(c.quietFor())
	}
	return earlier(c.heard.Add(c.pause()), c.began.Add(c.listener.MaxAge))
}

// setDeadline makes reads end at the deadline at the latest. One that ends too
// early only asks again, so the socket's is moved where it must come earlier or
// has passed: not with each read.
func (c *connection) setDeadline() {
	if d := c.deadline(); c.until.IsZero() || d.Before(c.until) {
		_ = c.conn.SetReadDeadline(d)
		c.until = d
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// makeSpace waits for something to read, and then for a place for it. A
// connection whose sender is silent needs no memory: it asks for a slab only
// when there is something to read. Errors: io.EOF, *cut.
func (c *connection) makeSpace() error {
	if !c.object.HoldsMemory() {
		if err := c.transport.readable(); err != nil {
			return c.readError(err)
		}
	}
	return c.space()
}

// space waits for a place, as long as the sender might keep us waiting.
func (c *connection) space() error {
	if c.object.TrySpace() {
		return nil
	}
	until := earlier(time.Now().Add(c.listener.IdleTimeout), c.began.Add(c.listener.MaxAge))
	ctx, cancel := context.WithDeadline(c.server.ctx, until)
	defer cancel()
	_, err := c.object.Space(ctx)
	switch {
	case err == nil:
		c.heard = time.Now() // it was not the sender who kept us waiting
		return nil
	case c.server.ctx.Err() != nil:
		return &cut{wire.CauseDraining, err}
	case time.Since(c.began) >= c.listener.MaxAge:
		return &cut{wire.CauseTooOld, err}
	default:
		return &cut{store.CauseOf(err), err}
	}
}

// takeArrived returns what has arrived, the first time that it is called after memory was asked
// back: so a connection that got memory makes progress before it gives it back.
func (c *connection) takeArrived(limit int64) []byte {
	space := c.object.FreeSpace()
	if c.took || space == nil {
		c.took = false
		return nil
	}
	space = space[:min(int64(len(space)), limit)]
	n := c.transport.readNow(space)
	if n <= 0 {
		return nil // the next read returns the reason
	}
	c.took, c.heard = true, time.Now()
	c.count(n)
	return space[:n]
}
