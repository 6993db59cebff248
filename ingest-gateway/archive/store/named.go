// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"time"

	"github.com/substorm/substorm/ingest-gateway/archive/names"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// An object that has a name is stored under it, once: its name is claimed first,
// for its digest, and whoever sends the same bytes again is told that they are
// there. Where JetStream is away and the object may go to the spool, it goes
// there without a claim, under a key of its own, and claims its name on its way
// home.

// duplicateWindow is how long JetStream knows a notice: later the manifest tells
// whether an object was announced. It is a little shorter than the stream's.
const duplicateWindow = 90 * time.Second

// joinLook is how often a repeat looks whether the first is announced.
const joinLook = 25 * time.Millisecond

// Describe says what the sender says of the object: its name and its media
// type, where they are not empty.
func (o *Object) Describe(name, mediaType string) { o.name, o.mediaType = name, mediaType }

// keepNamed puts an object that has a name into the store or, as acknowledge
// allows, the spool.
func (o *Object) keepNamed(ctx context.Context, n wire.Notice) (wire.Notice, outcomeOf, error) {
	held, err := o.claim(ctx, n, 0)
	switch {
	case errors.Is(err, stream.ErrUnavailable) && o.maySpool() && o.parts == nil:
		return n, spooled, o.spool(ctx, n)
	case err != nil:
		return n, stored, err
	}
	return o.keepHeld(ctx, n, held)
}

// keepHeld keeps an object as the version of its name that it has, or repeats.
func (o *Object) keepHeld(ctx context.Context, n wire.Notice, held names.Held) (wire.Notice, outcomeOf, error) {
	a := o.archive
	place(&n, held)
	if held.Announced && !held.Own {
		return o.keepRepeat(ctx, n, held)
	}
	if o.goesToSpool() {
		return n, spooled, o.spool(ctx, n)
	}
	try, cancel, may := o.shortly(ctx)
	defer cancel()
	err := o.storeNamed(try, n)
	switch {
	case may && isAway(err):
		return n, spooled, o.spool(ctx, n)
	case errors.Is(err, objectstore.ErrExists):
		n, err = a.join(ctx, o, n)
		return n, repeated, err
	}
	return n, stored, err
}

// keepRepeat keeps an object that repeats an announced one of its name: where the
// store has that one nothing is kept, where the store lost it, it is stored again, and where
// it expired the object is the name's next version.
func (o *Object) keepRepeat(ctx context.Context, n wire.Notice, held names.Held) (wire.Notice, outcomeOf, error) {
	a := o.archive
	if o.maySpool() && o.parts == nil && a.health.away() {
		return n, spooled, o.spool(ctx, n) // it is looked for on the way home
	}
	try, cancel, may := o.shortly(ctx)
	defer cancel()
	as := o.notice(held.ReceivedAt, n.Digest) // what is backfill, and the path, go by when the first came
	place(&as, held)
	first, is, err := a.nameStands(try, as, held.NameVersion)
	if err == nil && is == lost {
		if o.goesToSpool() {
			return n, spooled, o.spool(ctx, n)
		}
		if err = o.send(try, first, false); err == nil {
			a.repaired(ctx, first)
		}
	}
	if err == nil && is == expired {
		if held, err = o.claim(ctx, n, held.Version); err == nil {
			return o.keepHeld(ctx, n, held)
		}
	}
	switch {
	case may && (isAway(err) || errors.Is(err, stream.ErrUnavailable)):
		return n, spooled, o.spool(ctx, n)
	case err != nil:
		return n, stored, err
	}
	a.repeated(o, n)
	return first, repeated, nil
}

// claim gives the object its name, beyond the version that expired. JetStream gets as long as a
// notice does.
func (o *Object) claim(ctx context.Context, n wire.Notice, expired int) (names.Held, error) {
	a := o.archive
	wait := a.cfg.Patience
	if o.maySpool() && o.parts == nil {
		if wait = a.cfg.ShortWait; a.homing.streamAway.Load() {
			return names.Held{}, stream.ErrUnavailable // what goes home asks anyway
		}
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return a.cfg.Names.Claim(ctx, wanted(n, o.instrument.KeepVersions, expired))
}

func wanted(n wire.Notice, keepVersions bool, expired int) names.Wanted {
	return names.Wanted{
		Instrument: n.Instrument, Name: n.Name, Digest: n.Digest, Size: n.Size,
		ReceivedAt: n.ReceivedAt, Gateway: n.Gateway, Incarnation: n.Incarnation, KeepVersions: keepVersions, Expired: expired,
	}
}

// place gives a notice the key of the version that it claimed.
func place(n *wire.Notice, held names.Held) {
	n.ID, n.Key, n.Supersedes = held.Key, held.Key, held.Supersedes
	if held.Version > 1 {
		n.Version = held.Version
	}
	if !wire.MetadataFits(*n) { // whoever publishes it does without
		n.Path = ""
	}
}

// storeNamed puts the object under its key. Error ErrExists: another object is
// there.
func (o *Object) storeNamed(ctx context.Context, n wire.Notice) error {
	err := o.send(ctx, n, true)
	if !errors.Is(err, objectstore.ErrExists) {
		return err
	}
	if ours, headErr := o.archive.isStored(ctx, n); headErr != nil || ours {
		return headErr
	}
	return err
}

// send puts the object under its key, once: createOnly where nothing lies there.
func (o *Object) send(ctx context.Context, n wire.Notice, createOnly bool) error {
	a := o.archive
	opts, err := putOptions(n)
	if err != nil {
		return err
	}
	opts.CreateOnly = createOnly
	if o.parts == nil {
		return a.request(ctx, "put", o.size, func(ctx context.Context) error {
			return a.cfg.Objects.Put(ctx, n.Key, o.buffer.Reader(), o.size, opts)
		})
	}
	if !o.parts.completed {
		if err := o.parts.finish(ctx, o.buffer, o.part.digest()); err != nil {
			return err
		}
	}
	return o.parts.copyTo(ctx, n.Key, opts)
}

// named notes that an object with a name is announced, or sure to be.
func (a *Archive) named(n wire.Notice) {
	if n.Name != "" {
		a.cfg.Names.Announced(n)
	}
}

// repeated counts an object whose bytes are there already, under its name.
func (a *Archive) repeated(o *Object, n wire.Notice) {
	a.cfg.Ledger.Unfinished(n.Instrument, o.began, wire.CauseRepeated, n.Size)
	a.metrics.repeated.WithLabelValues(n.Instrument).Inc()
}

// join sees to it that the equal object which lies under the name is announced,
// whoever stored it, and counts both. An error is not counted yet.
func (a *Archive) join(ctx context.Context, o *Object, n wire.Notice) (wire.Notice, error) {
	first, announced, err := a.found(ctx, n)
	if errors.Is(err, errReplaced) {
		if first, err = n, o.send(ctx, n, false); err == nil {
			a.repaired(ctx, n)
		}
	}
	if err != nil {
		return n, err
	}
	announced = announced || a.awaitAnnounced(ctx, n)
	if announced {
		a.repeated(o, n)
		a.named(first)
		return first, nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Patience)
	defer cancel()
	// What is known only after ctx ended is counted as if it were known before;
	// the sender has no receipt then. The first itself is one that its own incarnation
	// counts as unfinished, see wire.Reconcile.
	err = a.cfg.Announcer.Notice(ctx, first, func(err error) {
		if err != nil {
			a.cfg.Ledger.Unfinished(n.Instrument, o.began, stream.CauseOf(err), n.Size)
			return
		}
		a.repeated(o, n)
	})
	if err != nil {
		return n, &countedError{err}
	}
	a.named(first)
	return first, nil
}

// awaitAnnounced gives whoever stored the object a short while to announce it: of
// two who do, both would count it.
func (a *Archive) awaitAnnounced(ctx context.Context, n wire.Notice) bool {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ShortWait)
	defer cancel()
	for {
		claim, _, err := a.cfg.Names.Lookup(ctx, n.Instrument, n.Name)
		if err == nil {
			if v, found := claim.Find(n.Digest); found && v.Announced {
				return true
			}
		}
		if !pause(ctx, joinLook) {
			return false
		}
	}
}

// countedError is an error of an object that the ledger counts already.
type countedError struct{ error }

func (e *countedError) Unwrap() error { return e.error }

// found returns the object that lies under n's key, which must be equal to n, and
// whether it is known that it was announced. Errors: as of lying.
func (a *Archive) found(ctx context.Context, n wire.Notice) (first wire.Notice, announced bool, err error) {
	first, info, err := a.lying(ctx, n.Key, n.Digest)
	if err != nil || time.Since(info.ModifiedAt) < duplicateWindow {
		return first, false, err
	}
	_, announced, err = a.listing(ctx, first.Instrument, wire.DayOf(first.ReceivedAt), first.ID)
	return first, announced, err
}
