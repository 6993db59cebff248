// SPDX-License-Identifier: Apache-2.0

package store

// This file takes an object that has arrived to its receipt: its name, its place, its notice.

import (
	"context"
	"errors"
	"time"

	"github.com/substorm/substorm/ingest-gateway/packer"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// Commit stores the object; without Whole before, it is Unverified. It returns the receipt once the
// object is as safe as its instrument's "acknowledge" says; a caller that could deliver it calls
// Acknowledged. Errors are Failures; the object is counted and its memory given back in either
// case. Ctx ends when the gateway can wait no longer.
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

// Keep is Commit, and returns more.
func (o *Object) Keep(ctx context.Context) (Kept, error) {
	defer o.release()
	if o.receivedAt.IsZero() {
		o.Whole(wire.CompletenessUnverified)
	}
	o.archive.metrics.unsafe.Inc()
	defer o.archive.metrics.unsafe.Dec()
	o.readObservationTime()
	n, what, err := o.keep(ctx, o.notice(o.receivedAt, o.digest.digest()))
	if err == nil && what == stored {
		err = o.archive.announce(ctx, n, decide(o.facts()).notice)
	}
	if err == nil {
		if what != duplicate {
			o.archive.cfg.Ledger.ReceivedAt(o.instrument.Name, o.listener, n.ReceivedAt)
		}
		return Kept{Record: n.Record, Again: what == duplicate}, nil
	}
	failure := &Failure{CauseOf(err), err}
	if ctx.Err() != nil {
		failure.Cause = wire.CauseDraining
	}
	if counted := new(countedError); !errors.As(err, &counted) {
		o.count(failure)
	}
	return Kept{}, failure
}

// outcome says where an object is that may be receipted.
type outcome int

const (
	// stored: in the store; it is to be announced and counted.
	stored outcome = iota
	// spooled: in the spool, and counted.
	spooled
	// duplicate: an equal object has the name, and is announced or will be; counted.
	duplicate
)

// keep puts the object where the decision says, once it has its name.
func (o *Object) keep(ctx context.Context, n wire.Notice) (_ wire.Notice, what outcome, err error) {
	if err := o.archive.MayKeep(); err != nil {
		return n, stored, err
	}
	if o.mirrored != nil {
		return o.keepMirrored(ctx, n)
	}
	if o.name != "" {
		var done bool
		if n, what, done, err = o.takeName(ctx, n); done {
			return n, what, err
		}
	}
	f := o.facts()
	d := decide(f)
	if d.place == inPack {
		packed, what, err := o.pack(ctx, n, d)
		if !errors.Is(err, packer.ErrNoSpace) {
			return packed, what, err
		}
		f.packBelow = 0 // there is no memory for a copy in a pack
		d = decide(f)
	}
	if d.place.isSpool() {
		if f.sharesPack() {
			n.ID = wire.SpooledID(n)
		}
		return n, spooled, o.spool(ctx, n, d.place)
	}
	return o.keepByItself(ctx, n, d)
}

// keepByItself stores the object under its own key, or puts it where the decision says
// otherwise.
func (o *Object) keepByItself(ctx context.Context, n wire.Notice, d decision) (_ wire.Notice, what outcome, err error) {
	try, cancel := o.limit(ctx, d)
	n, err = o.store(try, n)
	cancel()
	switch {
	case errors.Is(err, objectstore.ErrExists): // an object that has the same name is there
		n, err = o.archive.join(ctx, o, n)
		return n, duplicate, err
	case d.otherwise == nowhere || !isAway(err):
		return n, stored, err
	}
	if err = o.spool(ctx, n, d.otherwise); err == nil || d.atLast == nowhere {
		return n, spooled, err
	}
	n, err = o.store(ctx, n)
	return n, stored, err
}
