// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"net/netip"
	"time"

	"github.com/substorm/substorm/ingest-gateway/content"
	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/intake/memory"
	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/internal/wire"
)

// Object is one object on its way from the network into the store. It belongs
// to one goroutine.
type Object struct {
	archive    *Archive
	instrument *intake.Instrument
	source     netip.AddrPort
	wake       func()
	// began is the instant at which the object is counted until it is received.
	began time.Time
	// ctx ends when the object is given up.
	ctx    context.Context
	cancel context.CancelCauseFunc

	size   int64
	digest sum
	// part is the digest of what buffer holds, from the second part on; before that it is digest.
	// The bytes that go to the store, or to the spool, must have the digest of what came from the
	// network, even if they were in scratch in between.
	part sum
	// buffer holds the bytes that are not in a part yet.
	buffer *memory.Buffer
	// parts is set once the object outgrew PartSize, unless it goes to the spool:
	// then spooled are its parts there.
	parts   *multipart
	spooled []spool.Place

	// Set by CameTo.
	listener string
	port     uint16
	framing  string
	// name and mediaType are what the sender says, see Describe.
	name, mediaType string
	// head are the first bytes, of content.HeadSize at most, and looks what they look like, as wire.Record says.
	head  []byte
	looks string
	// onlyFirst: see OnlyFirst.
	onlyFirst bool

	// observed is when the observation began, zero if that is unknown.
	observed time.Time

	// mirrored is what the origin knows of an object of a guest; nil for others.
	mirrored *wire.MirroredObject

	// Set by Whole.
	receivedAt   time.Time
	clockStep    time.Duration
	completeness wire.Completeness
}

// sum is a SHA-256 that is computed as bytes pass.
type sum struct{ hash.Hash }

func (s *sum) Reset()              { s.Hash = sha256.New() }
func (s *sum) digest() wire.Digest { return wire.Digest(s.Sum(nil)) }

// Begin counts a new object and returns it, empty. Wake is as in
// memory.Pool.NewBuffer. Each object ends in Commit or Abort.
func (a *Archive) Begin(in *intake.Instrument, source netip.AddrPort, wake func()) *Object {
	return a.begin(in, source, wake, time.Now())
}

func (a *Archive) begin(in *intake.Instrument, source netip.AddrPort, wake func(), began time.Time) *Object {
	ctx, cancel := context.WithCancelCause(context.Background())
	o := &Object{
		archive: a, instrument: in, source: source, wake: wake,
		began: began, ctx: ctx, cancel: cancel,
		buffer: a.cfg.Pool.NewBuffer(PartSize, wake),
	}
	o.digest.Reset()
	a.cfg.Ledger.ObjectBegun(in.Name, o.began)
	return o
}

// Size is how many bytes have arrived.
func (o *Object) Size() int64 { return o.size }

// Digest is the digest of what has arrived.
func (o *Object) Digest() wire.Digest { return o.digest.digest() }

// HoldsMemory says whether Space returns without waiting for a first slab.
func (o *Object) HoldsMemory() bool { return o.buffer.HoldsMemory() }

// Asked says whether another object waits for this one's memory: call Yield.
func (o *Object) Asked() bool { return o.buffer.Asked() }

// Yield writes what is in memory to scratch.
func (o *Object) Yield() error { return o.buffer.Yield() }

// FreeSpace returns a place for the next bytes if there is one without waiting, or nil.
func (o *Object) FreeSpace() []byte { return o.buffer.FreeSpace() }

// TrySpace is Space where that takes no waiting, and says whether there is a
// place now.
func (o *Object) TrySpace() bool { return o.buffer.TrySpace() }

// Space returns a place for the next bytes. It waits, and so stops reading from
// the network, while there is no memory or the store is slower than the sender.
// Errors: of memory, of the store, or ctx's.
func (o *Object) Space(ctx context.Context) ([]byte, error) {
	if o.buffer.Full() {
		if err := o.handOver(ctx); err != nil {
			return nil, err
		}
	}
	return o.buffer.Space(ctx)
}

// Advance says that n bytes were written to what Space returned.
func (o *Object) Advance(space []byte, n int) {
	o.digest.Write(space[:n])
	if left := content.HeadSize - len(o.head); left > 0 {
		o.head = append(o.head, space[:min(n, left)]...)
	}
	if o.parts != nil || len(o.spooled) > 0 {
		o.part.Write(space[:n])
	}
	o.buffer.Advance(n)
	o.size += int64(n)
	o.archive.cfg.Ledger.ObjectBytesRead(o.instrument.Name, o.began, n)
}

// handOver sends the full buffer as a part and continues with an empty one.
func (o *Object) handOver(ctx context.Context) error {
	if decide(o.facts()).place.isSpool() {
		return o.spoolPart()
	}
	digest := o.digest
	if o.parts == nil {
		o.parts = newMultipart(o)
	} else {
		digest = o.part
	}
	if err := o.parts.send(ctx, o.buffer, digest.digest()); err != nil {
		return err
	}
	o.part.Reset()
	o.buffer = o.archive.cfg.Pool.NewBuffer(PartSize, o.wake)
	return nil
}

// CameTo says to which of its instrument's listeners and to which port of the gateway the
// object came, and what stood around its bytes there, as in wire.Record. It is called before Commit.
func (o *Object) CameTo(listener string, port uint16, framing string) {
	o.listener, o.port, o.framing = listener, port, framing
}

// Whole says that all bytes have arrived, the last one just now, and whether
// they are known to be all that the sender meant. Commit may be called from
// another goroutine afterwards: objects keep their order of arrival, whichever
// is stored first.
func (o *Object) Whole(c wire.Completeness) {
	o.receivedAt, o.clockStep = o.archive.clock.now()
	o.completeness = c
	if m := o.mirrored; m != nil { // its origin knows
		o.receivedAt, o.clockStep, o.completeness = m.ReceivedAt, 0, m.Completeness
	}
	o.compareContent()
	o.buffer.Seal()
}

// compareContent compares what came with what was declared. An object of a guest was compared at its origin.
func (o *Object) compareContent() {
	if o.mirrored == nil {
		o.looks = content.Unexpected(o.instrument.MediaType, o.mediaType, o.head)
	}
	if o.looks != "" {
		o.archive.metrics.unexpected.WithLabelValues(o.instrument.Name).Inc()
	}
	o.head = nil
}

// Abort gives the object up: nothing of it is stored, and it is counted under cause.
func (o *Object) Abort(cause wire.Cause) {
	o.count(&Failure{Cause: cause, Err: errors.New("given up")})
	o.release()
}

func (o *Object) count(err error) {
	o.archive.cfg.Ledger.Unfinished(o.instrument.Name, o.began, CauseOf(err), o.size)
}

// release gives memory back and, in the background, removes what the store
// holds of the object outside the archive.
func (o *Object) release() {
	o.cancel(errGivenUp)
	o.buffer.Release()
	if len(o.spooled) > 0 {
		o.archive.cfg.Spool.Drop(o.spooled)
	}
	if o.parts != nil {
		o.archive.cleaning.Go(o.parts.clean)
	}
}

var errGivenUp = errors.New("the object was given up")
