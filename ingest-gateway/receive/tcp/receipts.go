// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/substorm/substorm/ingest-gateway/store"
	"github.com/substorm/substorm/internal/wire"
)

// maxInFlight bounds the objects of one connection between their first byte and
// their receipt: enough for a store that takes 50 ms and a sender of 600 small
// objects a second, and at most 2 MiB of first slabs.
const maxInFlight = 32

// receipts writes the receipts of a connection's objects in the order in which
// the objects arrived, while later ones are still received and stored.
type receipts struct {
	c *connection
	// slots holds a token for each object on its way.
	slots chan struct{}
	// queue has space for all of them and one refusal without a token: putting
	// something in never waits.
	queue   chan *flight
	written sync.WaitGroup
	// failure is the wire.Cause for which the connection ends without a receipt.
	failure atomic.Value
	// gone is closed with the first failure.
	gone chan struct{}
	// unsaid receipts of objects that were safe only after it.
	unsaid int

	// ordered is the command to write, nil for none; toObey says that there is one.
	ordered atomic.Pointer[string]
	toObey  chan struct{}
}

// flight is an object on its way.
type flight struct {
	done  chan struct{} // closed once what follows is known
	token bool
	// held: the connection does not give way before the answer is written.
	held bool

	size       int64
	receipt    wire.Receipt
	receivedAt time.Time
	err        error

	// heartbeat is when a heartbeat was received, whose answer this is; zero for
	// objects.
	heartbeat time.Time
}

func newReceipts(c *connection) *receipts {
	r := &receipts{
		c: c, slots: make(chan struct{}, maxInFlight), queue: make(chan *flight, maxInFlight+1),
		gone: make(chan struct{}), toObey: make(chan struct{}, 1),
	}
	r.written.Go(r.write)
	return r
}

// enter waits until one more object may be on its way, and says whether it had
// to. Errors: *cut.
func (r *receipts) enter() (waited bool, err error) {
	select {
	case r.slots <- struct{}{}:
		return false, nil
	default:
	}
	r.c.server.metrics.waits.WithLabelValues(r.c.accepted.Instrument.Name).Inc()
	select {
	case r.slots <- struct{}{}:
		return true, nil
	case <-r.gone:
		return true, &cut{cause: r.failed()}
	case <-r.c.server.ctx.Done():
		return true, &cut{cause: wire.CauseDraining}
	}
}

// waiting says whether a receipt is still to be written.
func (r *receipts) waiting() bool { return len(r.slots) > 0 }

// commit stores an object that has entered.
func (r *receipts) commit(o *store.Object) {
	held := r.c.entry.Hold() // one that was displaced meanwhile ends behind this object
	f := &flight{done: make(chan struct{}), token: true, held: held, size: o.Size()}
	r.queue <- f
	go func() {
		defer close(f.done)
		f.receipt, f.receivedAt, f.err = o.Commit(r.c.server.ctx)
		if f.err != nil {
			f.receipt.Refused = store.CauseOf(f.err)
		}
	}()
}

// heartbeat puts the answer to a heartbeat behind the receipts of what came
// before. Errors: *cut.
func (r *receipts) heartbeat(received time.Time) error {
	if _, err := r.enter(); err != nil {
		return err
	}
	f := &flight{done: make(chan struct{}), token: true, heartbeat: received}
	close(f.done)
	r.queue <- f
	return nil
}

// refuse puts a refusal behind the receipts of what came before. Token: the
// object had entered.
func (r *receipts) refuse(cause wire.Cause, size int64, err error, token bool) {
	f := &flight{done: make(chan struct{}), token: token, size: size, receipt: wire.Receipt{Refused: cause}, err: err}
	close(f.done)
	r.queue <- f
}

// close returns once there is nothing more to write, and says whether every
// object has its receipt or refusal.
func (r *receipts) close() bool {
	close(r.queue)
	r.written.Wait()
	if r.unsaid > 0 {
		r.c.server.cfg.Logger.Warn("receipts not delivered: the objects are stored, and repeats of them will be marked as duplicates",
			"instrument", r.c.accepted.Instrument.Name, "source", r.c.source, "objects", r.unsaid, "cause", r.failed())
	}
	return r.failed() == ""
}

// fail ends the connection: an object has no receipt, and its sender must not
// take a later line, or a clean end, for one.
func (r *receipts) fail(cause wire.Cause) {
	if r.failure.CompareAndSwap(nil, cause) {
		close(r.gone)
		r.c.interrupt()
	}
}

// failed returns why the connection ends, or "".
func (r *receipts) failed() wire.Cause {
	cause, _ := r.failure.Load().(wire.Cause)
	return cause
}

// command writes a command as soon as may be, whatever waits for the store. One that
// was not written yet is replaced.
func (r *receipts) command(line string) {
	r.ordered.Store(&line)
	select {
	case r.toObey <- struct{}{}:
	default:
	}
}

func (r *receipts) write() {
	for {
		select {
		case <-r.toObey:
			r.order()
		case f, ok := <-r.queue:
			if !ok {
				return
			}
			r.finish(f)
		}
	}
}

// finish answers what is on its way, once that is known.
func (r *receipts) finish(f *flight) {
	for known := false; !known; {
		select {
		case <-r.toObey:
			r.order()
		case <-f.done:
			known = true
		}
	}
	r.answer(f)
	if f.held {
		r.c.entry.Unhold()
	}
	if f.token {
		<-r.slots
	}
}

// order writes the command that stands.
func (r *receipts) order() {
	line := r.ordered.Swap(nil)
	if line == nil || r.failed() != "" {
		return
	}
	if r.c.sayLine(*line) != nil {
		r.fail(wire.CauseReset)
		return
	}
	r.c.server.metrics.commands.WithLabelValues(r.c.accepted.Instrument.Name, wire.CommandSampling).Inc()
}

// answer writes one line.
func (r *receipts) answer(f *flight) {
	c := r.c
	if !f.heartbeat.IsZero() {
		if !c.accepted.CloseReceipt && r.failed() == "" && c.sayLine(wire.HeartbeatAnswer{Received: f.heartbeat, Answered: time.Now()}.Line()) != nil {
			r.fail(wire.CauseReset)
		}
		return
	}
	if cause := f.receipt.Refused; cause != "" {
		c.server.refusals.Say(c.accepted.Instrument.Name, cause, c.source, f.size, f.err)
		switch {
		case withoutLine[cause]:
			r.fail(cause)
		case c.accepted.CloseReceipt, r.failed() == "" && c.say(f.receipt) != nil:
			r.fail(wire.CauseReset)
		}
		return
	}
	switch {
	case r.failed() != "":
		r.unsaid++
	case c.accepted.CloseReceipt:
	case c.acknowledge(f.receipt, f.receivedAt) != nil:
		r.fail(wire.CauseReset)
	}
}
