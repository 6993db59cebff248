// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"time"

	"github.com/substorm/substorm/ingest-gateway/names"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// An object that has a name is stored under it, once: its name is claimed first, for its digest,
// and a sender of the same bytes is answered that they are there. If JetStream is away and the
// object may go to the spool, it goes there without a claim, under a key of its own, and claims its
// name while it drains.

// duplicateWindow is how long JetStream knows a notice: later the manifest shows whether an object
// was announced. It is a little shorter than the stream's.
const duplicateWindow = 90 * time.Second

// joinLook is how often a duplicate looks whether the first is announced.
const joinLook = 25 * time.Millisecond

// Describe notes what the sender says of the object: its name and its media type, if they are not
// empty.
func (o *Object) Describe(name, mediaType string) { o.name, o.mediaType = name, mediaType }

// OnlyFirst says that the object is stored only if its name has no other one, whatever the
// Instrument says of versions.
func (o *Object) OnlyFirst() { o.onlyFirst = true }

// takeName gives the object its name, and the notice the key of that. Done: nothing is left
// to store, since it duplicates an object of its name, is in the spool, or failed.
func (o *Object) takeName(ctx context.Context, n wire.Notice) (_ wire.Notice, what outcome, done bool, err error) {
	d := decide(o.facts())
	held, err := o.claim(ctx, n, 0, d.claim)
	for err == nil {
		setVersion(&n, held)
		if !held.Announced || held.Own {
			return n, stored, false, nil
		}
		var first wire.Notice
		var state standing
		first, state, err = o.duplicate(ctx, n, held, d)
		switch {
		case err != nil:
		case state == expired: // the object is the name's next version
			held, err = o.claim(ctx, n, held.Version, d.claim)
		case state == lost:
			return n, spooled, true, o.spool(ctx, n, d.place)
		default:
			o.archive.countDuplicate(o, n)
			return first, duplicate, true, nil
		}
	}
	if d.otherwise != nowhere && (isAway(err) || errors.Is(err, stream.ErrUnavailable)) {
		return n, spooled, true, o.spool(ctx, n, d.otherwise) // it claims its name, and is looked for, while it drains
	}
	return n, stored, true, err
}

// duplicate says what became of the announced object that has the object's name, and stores
// it again where the store lost it: it is still lost only where the object goes to the spool.
func (o *Object) duplicate(ctx context.Context, n wire.Notice, held names.Held, d decision) (first wire.Notice, state standing, err error) {
	a := o.archive
	if d.otherwise != nowhere && a.health.away() {
		return n, unknown, errAway
	}
	try, cancel := o.limit(ctx, d)
	defer cancel()
	as := o.notice(held.ReceivedAt, n.Digest) // what is backfill, and the path, go by when the first came
	setVersion(&as, held)
	first, state, err = a.nameStands(try, as, held.NameVersion)
	if err != nil || state != lost || d.place.isSpool() {
		return first, state, err
	}
	if err = o.put(try, first, false); err == nil {
		a.reportRepaired(ctx, first)
	}
	return first, whole, err
}

// claim gives the object its name, beyond the version that expired. JetStream gets as long as a
// notice does.
func (o *Object) claim(ctx context.Context, n wire.Notice, expired int, ask asking) (names.Held, error) {
	a := o.archive
	wait := a.cfg.Patience
	switch ask {
	case later:
		return names.Held{}, stream.ErrUnavailable // what drains asks anyway
	case briefly:
		wait = a.cfg.ShortWait
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return a.cfg.Names.Claim(ctx, wanted(n, o.instrument.KeepVersions && !o.onlyFirst, expired))
}

func wanted(n wire.Notice, keepVersions bool, expired int) names.Wanted {
	return names.Wanted{
		Instrument: n.Instrument, Name: n.Name, Digest: n.Digest, Size: n.Size,
		ReceivedAt: n.ReceivedAt, Gateway: n.Gateway, Incarnation: n.Incarnation, KeepVersions: keepVersions, Expired: expired,
	}
}

// setVersion gives a notice the key of the version that it claimed.
func setVersion(n *wire.Notice, held names.Held) {
	n.ID, n.Key, n.Supersedes = held.Key, held.Key, held.Supersedes
	if held.Version > 1 {
		n.Version = held.Version
	}
	fits := *n
	fits.Looks = ""               // is given up first
	if !wire.MetadataFits(fits) { // its publisher does without
		n.Path = ""
	}
}

// countDuplicate counts an object whose bytes are there already, under its name.
func (a *Archive) countDuplicate(o *Object, n wire.Notice) {
	a.cfg.Ledger.Unfinished(n.Instrument, o.began, wire.CauseDuplicate, n.Size)
	a.metrics.duplicates.WithLabelValues(n.Instrument).Inc()
}

// join ensures that the equal object under the name, or of the same origin, is announced, whichever
// gateway stored it, and counts both. An error is not counted yet.
func (a *Archive) join(ctx context.Context, o *Object, n wire.Notice) (wire.Notice, error) {
	first, announced, err := a.findEqual(ctx, n)
	if errors.Is(err, errReplaced) {
		if first, err = n, o.put(ctx, n, false); err == nil {
			a.reportRepaired(ctx, n)
		}
	}
	if err != nil {
		return n, err
	}
	if first.Origin != nil && first.Path == "" {
		first.Path = n.Path // there was no space for it, see putOptions
	}
	if announced || n.Name != "" && a.awaitAnnounced(ctx, n) {
		a.countDuplicate(o, n)
		a.named(first)
		return first, nil
	}
	// An outcome that is known only after ctx ended is counted as if it were known before; the
	// sender has no receipt then. The first itself is counted as unfinished by its own incarnation,
	// see wire.Reconcile.
	return first, a.publishCounted(ctx, first, func(err error) {
		if err != nil {
			a.cfg.Ledger.Unfinished(n.Instrument, o.began, stream.CauseOf(err), n.Size)
			return
		}
		a.countDuplicate(o, n)
	})
}

// awaitAnnounced gives the gateway that stored the object a short while to announce it: if two
// announce it, both would count it.
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
		if !retry.Sleep(ctx, joinLook) {
			return false
		}
	}
}

// findEqual returns the object under n's key, which must be equal to n, and whether it is known that it
// was announced. Errors: as of lying.
func (a *Archive) findEqual(ctx context.Context, n wire.Notice) (first wire.Notice, announced bool, err error) {
	first, info, err := a.readStored(ctx, n.Key, n.Digest)
	if err != nil || time.Since(info.ModifiedAt) < duplicateWindow {
		return first, false, err
	}
	_, announced, err = a.listing(ctx, first.Instrument, wire.DayOf(first.ReceivedAt), first.ID)
	return first, announced, err
}
