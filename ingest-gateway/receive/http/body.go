// SPDX-License-Identifier: Apache-2.0

package http

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/substorm/substorm/ingest-gateway/store"
	"github.com/substorm/substorm/internal/wire"
)

// How long, and how much, is read of a sender that is refused while it still
// sends, so that it reads the answer before a reset destroys it; and of how many
// at a time.
const (
	lingerTime  = 5 * time.Second
	lingerBytes = 64 << 20
	maxLingers  = 256
)

// past is a deadline that interrupts a read.
var past = time.Unix(1, 0)

// bufferSize is what is read at once, at most: as much as a frame of HTTP/2 or a
// record of TLS carries.
const bufferSize = 16 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, bufferSize); return &b }}

// body reads a request's body. A goroutine waits for the sender, with a small
// buffer of its own, so that the object's memory can be asked back meanwhile.
type body struct {
	q      *request
	buffer *[]byte
	// arrived reports what is in buffer; more lets the goroutine continue.
	arrived chan arrival
	more    chan struct{}
	woken   chan struct{}
}

type arrival struct {
	n   int
	err error
}

// sink takes what arrives: an object, or a run of an upload's bytes.
type sink interface {
	Size() int64
	// FreeSpace and Space return a place for the next bytes, Advance takes them.
	FreeSpace() []byte
	Space(ctx context.Context) ([]byte, error)
	Advance(space []byte, n int)
	// Asked: another waits for the memory, which Yield gives back.
	Asked() bool
	Yield() error
}

func newBody(q *request) *body {
	return &body{q: q, arrived: make(chan arrival, 1), more: make(chan struct{}, 1), woken: make(chan struct{}, 1)}
}

// wake brings readInto to ask whether the object's memory is asked back.
func (b *body) wake() {
	select {
	case b.woken <- struct{}{}:
	default:
	}
}

// readInto reads the body to its end, at most limit bytes. It returns the cause
// for which the object is to be given up; "" once all of it has arrived.
func (b *body) readInto(o sink, limit int64) (wire.Cause, error) {
	b.buffer = buffers.Get().(*[]byte)
	go b.pump()
	cause, waiting, err := b.take(o, limit)
	b.stop(waiting)
	if cause == "" && !b.q.entry.Hold() {
		cause = wire.CauseDisplaced
	}
	return cause, err
}

// take moves what arrives into the object. Waiting: the sender may be waited for
// all the same.
func (b *body) take(o sink, limit int64) (cause wire.Cause, waiting bool, err error) {
	for {
		select {
		case p := <-b.arrived:
			b.q.entry.Arrived(p.n)
			if o.Size()+int64(p.n) > limit {
				return wire.CauseObjectTooLarge, false, nil
			}
			if cause, err := b.put(o, (*b.buffer)[:p.n]); cause != "" {
				return cause, false, err
			}
			if errors.Is(p.err, io.EOF) {
				b.q.unread = false
				return "", false, nil
			}
			if p.err != nil {
				return b.causeOf(p.err), false, p.err
			}
			b.more <- struct{}{}
		case <-b.q.displaced:
			return wire.CauseDisplaced, true, nil
		case <-b.woken:
			if o.Asked() {
				if err := o.Yield(); err != nil {
					return store.CauseOf(err), true, err
				}
			}
		case <-b.q.server.ctx.Done():
			return wire.CauseDraining, true, context.Cause(b.q.server.ctx)
		}
	}
}

// put copies into the object what arrived. It waits for memory and for the store.
func (b *body) put(o sink, from []byte) (wire.Cause, error) {
	for len(from) > 0 {
		space := o.FreeSpace()
		if space == nil {
			var cause wire.Cause
			var err error
			if space, cause, err = b.space(o); cause != "" {
				return cause, err
			}
		}
		n := copy(space, from)
		o.Advance(space, n)
		from = from[n:]
		if o.Asked() { // it has made progress
			if err := o.Yield(); err != nil {
				return store.CauseOf(err), err
			}
		}
	}
	return "", nil
}

// space waits for a place, as long as the sender might keep us waiting.
func (b *body) space(o sink) ([]byte, wire.Cause, error) {
	until := earlier(time.Now().Add(b.q.listener.IdleTimeout), b.q.began.Add(b.q.listener.MaxAge))
	ctx, cancel := context.WithDeadline(b.q.server.ctx, until)
	defer cancel()
	space, err := o.Space(ctx)
	switch {
	case err == nil:
		return space, "", nil
	case b.q.server.ctx.Err() != nil:
		return nil, wire.CauseDraining, err
	case time.Since(b.q.began) >= b.q.listener.MaxAge:
		return nil, wire.CauseTooOld, err
	default:
		return nil, store.CauseOf(err), err
	}
}

// pump waits for the sender.
func (b *body) pump() {
	defer close(b.arrived)
	for {
		_ = b.q.control.SetReadDeadline(earlier(time.Now().Add(b.q.listener.IdleTimeout), b.q.began.Add(b.q.listener.MaxAge)))
		n, err := b.q.r.Body.Read(*b.buffer)
		b.arrived <- arrival{n, err}
		if err != nil {
			return
		}
		if _, ok := <-b.more; !ok || !b.pace(n) {
			return
		}
	}
}

// pace waits while the instrument has sent as much as it may, unless the body is
// given up meanwhile.
func (b *body) pace(n int) bool {
	wait := b.q.listener.Instrument.Limit.Read(n)
	if wait <= 0 {
		return true
	}
	select {
	case <-time.After(wait):
		return true
	case _, ok := <-b.more:
		return ok
	}
}

// stop ends the goroutine, and returns once it has ended.
func (b *body) stop(waiting bool) {
	close(b.more)
	for {
		select {
		case _, open := <-b.arrived:
			if !open {
				buffers.Put(b.buffer)
				_ = b.q.control.SetReadDeadline(time.Time{})
				return
			}
		case <-time.After(time.Millisecond): // it may have been about to set its own
			if waiting {
				_ = b.q.control.SetReadDeadline(past)
			}
		}
	}
}

// causeOf sorts an error of reading.
func (b *body) causeOf(err error) wire.Cause {
	switch {
	case b.q.server.ctx.Err() != nil:
		return wire.CauseDraining
	case errors.Is(err, os.ErrDeadlineExceeded) && time.Since(b.q.began) >= b.q.listener.MaxAge:
		return wire.CauseTooOld
	case errors.Is(err, os.ErrDeadlineExceeded):
		return wire.CauseStalled
	case b.q.slot().Displaced():
		return wire.CauseDisplaced
	default:
		return wire.CauseReset
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// discard reads what the sender still sends, within limits, so that it comes to
// read the answer. One that waits for "100 Continue" has not begun.
func (q *request) discard() {
	if q.r.Header.Get("Expect") != "" || !q.server.lingers.TryAcquire(1) {
		return
	}
	defer q.server.lingers.Release(1)
	_ = q.control.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, q.r.Body, lingerBytes)
}
