// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/substorm/substorm/ingest-gateway/announce"
	"github.com/substorm/substorm/internal/diskbudget"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// outbox holds closed messages until they are handed to the announcer, and counts those on their way.
type outbox struct {
	mu      sync.Mutex
	waiting []*message
	// inFlight were handed over and are not settled.
	inFlight int
	// changed is closed, and replaced, when any of the above changed.
	changed chan struct{}
	// closed: nothing waits any more. It is set with mu held.
	closed atomic.Bool
	// full: the stream took no message since it said that it is full. noSpace: nothing may be kept on the disk.
	full, noSpace atomic.Bool
}

// fullPause is how long a full stream is left alone.
const fullPause = 500 * time.Millisecond

func (o *outbox) init() { o.changed = make(chan struct{}) }

// push makes a message wait, and returns false where nothing waits any more.
func (o *outbox) push(m *message) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed.Load() {
		return false
	}
	o.waiting = append(o.waiting, m)
	o.signal()
	return true
}

// signal is called with mu held.
func (o *outbox) signal() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// next takes the oldest message, or returns false when ctx ends.
func (o *outbox) next(ctx context.Context) (*message, bool) {
	for {
		o.mu.Lock()
		if len(o.waiting) > 0 && ctx.Err() == nil {
			m := o.waiting[0]
			o.waiting[0] = nil
			o.waiting = o.waiting[1:]
			o.inFlight++
			o.mu.Unlock()
			return m, true
		}
		changed := o.changed
		o.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, false
		}
	}
}

// done says that a message is settled.
func (o *outbox) done() {
	o.mu.Lock()
	o.inFlight--
	o.signal()
	o.mu.Unlock()
}

// giveBack makes a message wait again, and returns false where nothing waits any more.
func (o *outbox) giveBack(m *message) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed.Load() {
		return false
	}
	o.inFlight--
	o.waiting = append(o.waiting, m)
	o.signal()
	return true
}

// await returns true once nothing waits or flies, and false when ctx ends before.
func (o *outbox) await(ctx context.Context) bool {
	for {
		o.mu.Lock()
		empty, changed := len(o.waiting) == 0 && o.inFlight == 0, o.changed
		o.mu.Unlock()
		if empty {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// cause says why a datagram cannot be kept.
func (o *outbox) cause() wire.Cause {
	switch {
	case o.noSpace.Load():
		return wire.CauseNoSpace
	case o.full.Load():
		return wire.CauseStreamFull
	case o.closed.Load():
		return wire.CauseDraining
	}
	return wire.CauseBacklog
}

// publish hands messages to the announcer until ctx ends.
func (r *Receiver) publish(ctx context.Context) {
	for {
		m, ok := r.outbox.next(ctx)
		if !ok {
			return
		}
		if !r.awaitSpace(ctx) {
			r.outbox.giveBack(m)
			return
		}
		if r.outbox.full.Load() {
			if !retry.Sleep(ctx, fullPause) {
				r.outbox.giveBack(m)
				return
			}
		}
		err := r.cfg.Announcer.Telemetry(ctx, announce.Telemetry{
			Instrument: m.flow.instrument, Channel: m.flow.channel, At: time.Unix(0, m.first),
			Payload: m.payload, Datagrams: m.datagrams, DatagramBytes: m.bytes,
		}, func(err error) { r.settled(m, err) })
		if err != nil { // nothing was queued: ctx ended, or the committer is closed
			r.outbox.giveBack(m)
			if ctx.Err() == nil {
				r.log.Error("telemetry cannot be published", "instrument", m.flow.instrument, "error", err)
				<-ctx.Done()
			}
			return
		}
	}
}

// awaitSpace waits until something may be kept on the disk, and returns false when ctx ends before. Meanwhile the budget of memory is
// spent, and what comes then is dropped.
func (r *Receiver) awaitSpace(ctx context.Context) bool {
	for r.cfg.NoSpace != nil && r.cfg.NoSpace() {
		if !r.outbox.noSpace.Swap(true) {
			r.log.Error("telemetry waits in memory, and is dropped once memory is full", "error", diskbudget.ErrUsedUp)
		}
		if !retry.Sleep(ctx, fullPause) {
			return false
		}
	}
	r.outbox.noSpace.Store(false)
	return true
}

// settled ends a message's way, or sends it again.
func (r *Receiver) settled(m *message, err error) {
	switch {
	case err == nil:
		r.cfg.Ledger.DatagramsReceived(m.flow.instrument, time.Unix(0, m.first), m.datagrams, m.bytes)
		r.outbox.full.Store(false)
	case errors.Is(err, stream.ErrFull):
		if !r.outbox.full.Swap(true) {
			r.log.Error("the stream is full: telemetry waits until it is trimmed or made larger", "error", err)
		}
		if r.outbox.giveBack(m) {
			return
		}
		r.dropMessage(m, wire.CauseStreamFull)
	case errors.Is(err, stream.ErrRefused):
		r.log.Error("a telemetry message is refused: its datagrams are dropped",
			"instrument", m.flow.instrument, "channel", m.flow.channel, "datagrams", m.datagrams, "error", err)
		r.dropMessage(m, stream.CauseOf(err))
	}
	// Else the outcome is unknown: the ledger counts them as unknown when the gateway ends.
	r.release(m)
	r.outbox.done()
}

func (r *Receiver) dropMessage(m *message, cause wire.Cause) {
	r.cfg.Ledger.DatagramsDropped(m.flow.instrument, time.Unix(0, m.first), cause, m.datagrams)
	r.metrics.dropped(m.flow.instrument, cause).Add(float64(m.datagrams))
}

func (r *Receiver) release(m *message) {
	r.memory.give(costOf(m.class))
	m.recycle()
}

// dropLeft counts what Drain had no time for.
func (r *Receiver) dropLeft() {
	r.outbox.mu.Lock()
	left := r.outbox.waiting
	r.outbox.waiting = nil
	r.outbox.closed.Store(true)
	r.outbox.mu.Unlock()
	for _, m := range left {
		r.dropMessage(m, r.outbox.cause())
		r.release(m)
	}
	r.closeOpen() // of a source that has not ended; from here on, ports open none
}
