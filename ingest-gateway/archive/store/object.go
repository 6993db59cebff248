// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"net/netip"
	"time"

	"github.com/substorm/substorm/ingest-gateway/archive/spool"
	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/intake/memory"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/tree"
	"github.com/substorm/substorm/internal/wire"
)

// Object is one object on its way from the network into the store. It belongs
// to one goroutine.
type Object struct {
	archive    *Archive
	instrument *intake.Instrument
	source     netip.AddrPort
	wake       func()
	began      time.Time
	// ctx ends when the object is given up.
	ctx    context.Context
	cancel context.CancelCauseFunc

	size   int64
	digest sum
	// part is the digest of what buffer holds, from the second part on; before
	// that it is digest. What goes to the store, or to the spool, must have the digest
	// of what came from the network, even where it lay in scratch in between.
	part sum
	// buffer holds the bytes that are not in a part yet.
	buffer *memory.Buffer
	// parts is set once the object outgrew PartSize, unless it goes to the spool:
	// then spooled are its parts there.
	parts   *multipart
	spooled []spool.Place

	// Of CameTo.
	port    uint16
	framing string
	// name and mediaType are what the sender says, see Describe.
	name, mediaType string

	// observed is when the observation began, zero where that is not known.
	observed time.Time

	// Of Whole.
	receivedAt   time.Time
	clockStep    time.Duration
	completeness wire.Completeness
}

// sum is a SHA-256 that is computed as bytes pass.
type sum struct{ hash.Hash }

func (s *sum) Reset()              { s.Hash = sha256.New() }
func (s *sum) digest() wire.Digest { return wire.Digest(s.Sum(nil)) }

// Size is how many bytes have arrived.
func (o *Object) Size() int64 { return o.size }

// Digest is that of what has arrived.
func (o *Object) Digest() wire.Digest { return o.digest.digest() }

// HoldsMemory says whether Space returns without waiting for a first slab.
func (o *Object) HoldsMemory() bool { return o.buffer.HoldsMemory() }

// Asked says whether another object waits for this one's memory: call Yield.
func (o *Object) Asked() bool { return o.buffer.Asked() }

// Yield writes what is in memory to scratch.
func (o *Object) Yield() error { return o.buffer.Yield() }

// Room returns a place for the next bytes where there is one without waiting, or nil.
func (o *Object) Room() []byte { return o.buffer.Room() }

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
	if o.parts != nil || len(o.spooled) > 0 {
		o.part.Write(space[:n])
	}
	o.buffer.Advance(n)
	o.size += int64(n)
	o.archive.cfg.Ledger.ObjectBytesRead(o.instrument.Name, o.began, n)
}

// handOver sends the full buffer as a part and goes on with an empty one.
func (o *Object) handOver(ctx context.Context) error {
	if len(o.spooled) > 0 || o.parts == nil && o.mustSpool() {
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

// CameTo says to which port of the gateway the object came, and what stood around
// its bytes there, as in wire.Record. It is called before Commit.
func (o *Object) CameTo(port uint16, framing string) { o.port, o.framing = port, framing }

// Whole says that all bytes have arrived, the last one just now, and whether
// they are known to be all that the sender meant. Commit may be called from
// another goroutine afterwards: objects keep their order of arrival, whichever
// is stored first.
func (o *Object) Whole(c wire.Completeness) {
	o.receivedAt, o.clockStep = o.archive.clock.now()
	o.completeness = c
	o.buffer.Seal()
}

// Commit stores the object; without Whole before, it is Unverified. It returns
// the receipt once the object is as safe as its instrument's "acknowledge" says;
// whoever could deliver that calls Acknowledged. Errors are Failures; the object
// is counted and its memory given back in either case. Ctx ends where the gateway
// can wait no longer.
func (o *Object) Commit(ctx context.Context) (wire.Receipt, time.Time, error) {
	kept, err := o.Keep(ctx)
	if err != nil {
		return wire.Receipt{}, time.Time{}, err
	}
	return wire.Receipt{Digest: kept.Digest, Bytes: kept.Size}, kept.ReceivedAt, nil
}

// Kept is what became of an object that may be receipted.
type Kept struct {
	wire.Record
	// Again: an equal object has the name, and the record is that one's; nothing
	// new is kept.
	Again bool
}

// Keep is Commit, and tells more.
func (o *Object) Keep(ctx context.Context) (Kept, error) {
	defer o.release()
	if o.receivedAt.IsZero() {
		o.Whole(wire.CompletenessUnverified)
	}
	o.archive.metrics.unsafe.Inc()
	defer o.archive.metrics.unsafe.Dec()
	o.readObservationTime()
	digest := o.digest.digest()
	var n wire.Notice
	var what outcomeOf
	var err error
	if o.name != "" {
		n, what, err = o.keepNamed(ctx, o.notice(o.receivedAt, digest))
	} else {
		n, what, err = o.keep(ctx, digest)
	}
	switch {
	case err != nil:
		counted := new(countedError)
		isCounted := errors.As(err, &counted)
		if err = failure(ctx, CauseOf(err), err); !isCounted {
			o.count(err)
		}
		return Kept{}, err
	case what == repeated:
		return Kept{Record: n.Record, Again: true}, nil
	case what == stored:
		if err := o.storedAt(ctx, n); err != nil {
			return Kept{}, failure(ctx, stream.CauseOf(err), err)
		}
		o.archive.named(n)
	}
	return Kept{Record: n.Record}, nil
}

// outcomeOf says where an object is that may be receipted.
type outcomeOf int

const (
	// stored: in the store; it is to be announced and counted.
	stored outcomeOf = iota
	// spooled: in the spool, and counted.
	spooled
	// repeated: an equal object has the name, and is announced or will be; counted.
	repeated
)

// keep puts the object into the store or, as acknowledge allows, the spool.
func (o *Object) keep(ctx context.Context, digest wire.Digest) (n wire.Notice, what outcomeOf, err error) {
	if o.goesToSpool() {
		n = o.notice(o.receivedAt, digest)
		if o.isSmall() {
			n.ID = wire.SpooledID(n)
		}
		return n, spooled, o.spool(ctx, n)
	}
	if o.mayPack() {
		if n, inSpool, packed, err := o.pack(ctx, digest); packed {
			if inSpool {
				what = spooled
			}
			return n, what, err
		}
	}
	try, cancel, may := o.shortly(ctx)
	defer cancel()
	n, err = o.store(try, digest)
	if may && isAway(err) && n.Key != "" {
		err = o.spool(ctx, n)
		if err == nil || !o.isReplicated() {
			return n, spooled, err
		}
		n, err = o.store(ctx, digest) // no peer has a copy: the receipt means Stored
	}
	return n, stored, err
}

func (o *Object) goesToSpool() bool { return len(o.spooled) > 0 || o.parts == nil && o.mustSpool() }

// shortly bounds how long the store may take where the object may go to the
// spool instead.
func (o *Object) shortly(ctx context.Context) (context.Context, context.CancelFunc, bool) {
	if !o.maySpool() || o.parts != nil { // what went to the store in parts is not here any more
		return ctx, func() {}, false
	}
	try, cancel := context.WithTimeout(ctx, o.archive.cfg.ShortWait+time.Duration(o.size)*time.Second/brisk)
	return try, cancel, true
}

// storedAt has an object announced that is in the store.
func (o *Object) storedAt(ctx context.Context, n wire.Notice) error {
	if o.maySpool() {
		return o.archive.announceOrSpool(ctx, n)
	}
	return o.announce(ctx, n)
}

// failure says why an object was given up: for cause, or because ctx ended.
func failure(ctx context.Context, cause wire.Cause, err error) error {
	if ctx.Err() != nil {
		cause = wire.CauseDraining
	}
	return &Failure{cause, err}
}

// announce publishes the notice. What becomes of it is counted even where it is
// known only after Commit returned.
func (o *Object) announce(ctx context.Context, n wire.Notice) error {
	ctx, cancel := context.WithTimeout(ctx, o.archive.cfg.Patience)
	defer cancel()
	a := o.archive
	return a.cfg.Announcer.Notice(ctx, n, func(err error) {
		if err != nil {
			a.cfg.Ledger.Unfinished(n.Instrument, n.ReceivedAt, stream.CauseOf(err), n.Size)
			return
		}
		a.cfg.Ledger.Received(n.Instrument, n.ReceivedAt, n.Size, n.Digest)
		a.metrics.received(n.Instrument, n.Size)
	})
}

// Acknowledged counts that the receipt of an object was delivered.
func (a *Archive) Acknowledged(in *intake.Instrument, receivedAt time.Time) {
	a.cfg.Ledger.Acknowledged(in.Name, receivedAt)
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

// store puts the object under its key and returns its notice. The key names the
// millisecond of receipt: where equal bytes arrived in the same one, through
// whichever gateway, the later object takes the next.
func (o *Object) store(ctx context.Context, digest wire.Digest) (wire.Notice, error) {
	if o.parts != nil {
		if err := o.parts.finish(ctx, o.buffer, o.part.digest()); err != nil {
			return wire.Notice{}, err
		}
	}
	for receivedAt := o.receivedAt; ; {
		n := o.notice(receivedAt, digest)
		opts, err := putOptions(n)
		if err != nil {
			return wire.Notice{}, err
		}
		if o.parts == nil {
			err = o.archive.request(ctx, "put", o.size, func(ctx context.Context) error {
				return o.archive.cfg.Objects.Put(ctx, n.Key, o.buffer.Reader(), o.size, opts)
			})
		} else {
			err = o.parts.copyTo(ctx, n.Key, opts)
		}
		if errors.Is(err, objectstore.ErrExists) {
			var ours bool
			if ours, err = o.archive.isStored(ctx, n); err == nil && !ours {
				receivedAt = receivedAt.Add(time.Millisecond)
				continue
			}
		}
		return n, err
	}
}

// isStored says whether what lies under the notice's key is the notice's
// object: a try whose answer was lost had arrived.
func (a *Archive) isStored(ctx context.Context, n wire.Notice) (bool, error) {
	there, err := a.lookUp(ctx, n)
	return err == nil && sameObject(there, n), err
}

func (o *Object) notice(receivedAt time.Time, digest wire.Digest) wire.Notice {
	cfg := &o.archive.cfg
	key := wire.RawKey(cfg.Site, o.instrument.Name, receivedAt, digest)
	n := wire.Notice{Site: cfg.Site, Instrument: o.instrument.Name, Record: wire.Record{
		ID: key, Key: key, Name: o.name, Size: o.size, Digest: digest,
		MediaType: cmp.Or(o.mediaType, o.instrument.MediaType), State: wire.StateCurrent,
		ReceivedAt: receivedAt, ClockStepMillis: o.clockStep.Milliseconds(), TimeSource: wire.TimeSourceReceived,
		Completeness: o.completeness,
		Source:       o.source.String(), Port: o.port, Framing: o.framing, Gateway: cfg.Gateway, Incarnation: cfg.Incarnation,
	}}
	if !o.observed.IsZero() {
		n.SetObserved(o.observed, o.instrument.ObservationName.Resolution())
		n.Backfill = n.IsLate(receivedAt, o.instrument.LateAfter)
	}
	n.Path = tree.Path(o.instrument.Naming, n.Instrument, o.instrument.Station, n.Record, 0)
	return n
}

// A name tells no time of observation that is further from the receipt: a clock that was not
// set would end an embargo at once, or never, and have its Instrument owe data since 1970.
const mostPast, mostFuture = 366 * 24 * time.Hour, 24 * time.Hour

// readObservationTime reads out of the object's name when it was observed, where the
// Instrument says that names tell.
func (o *Object) readObservationTime() {
	t := o.instrument.ObservationName
	if t == nil {
		return
	}
	v, err := t.Read(o.name)
	if err != nil || v.Time.Before(o.receivedAt.Add(-mostPast)) || v.Time.After(o.receivedAt.Add(mostFuture)) {
		o.archive.metrics.unknownTimes.WithLabelValues(o.instrument.Name).Inc()
		return
	}
	o.observed = v.Time
}

func putOptions(n wire.Notice) (objectstore.PutOptions, error) {
	metadata, err := wire.ObjectMetadata(n)
	if err != nil {
		return objectstore.PutOptions{}, fmt.Errorf("metadata of %s: %w", n.Key, err)
	}
	return objectstore.PutOptions{
		ContentType: n.MediaType, Metadata: metadata, Digest: n.Digest, CreateOnly: true,
	}, nil
}
