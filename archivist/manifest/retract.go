// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/nameclaims"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// Why a request is refused.
const (
	refusedUnlisted = "Unlisted"  // no manifest lists the object
	refusedHold     = "LegalHold" // the instrument is under legal hold, or it is unknown whether it is
	refusedState    = "State"     // what was not retracted cannot be restored, what was purged cannot come back
	refusedNames    = "Names"     // it is unknown yet whether a name has a newer version
	refusedForeign  = "Foreign"   // its bytes are where others write: they are not ours to remove
	refusedOwn      = "Own"       // what the Site itself received is superseded by a newer version, and by nothing else
	// refusedUnreadable: not all that its day lists is known.
	refusedUnreadable = "Unreadable"
)

// The changes of an object.
const (
	changeRetracted  = "Retracted"
	changeRestored   = "Restored"
	changePurged     = "Purged"
	changeSuperseded = "Superseded"
)

// namesTimeout bounds a lookup of a name's claim.
const namesTimeout = 10 * time.Second

// refusal says why something cannot be retracted, and what to do.
type refusal struct{ reason, next string }

func (r *refusal) Error() string { return r.reason + ": " + r.next }

// changeOf names what becomes of an object that an action is done to.
func changeOf(a wire.Action) string {
	switch a {
	case wire.ActionRetract:
		return changeRetracted
	case wire.ActionPurge:
		return changePurged
	case wire.ActionSupersede:
		return changeSuperseded
	default:
		return changeRestored
	}
}

// apply does what a request asks for, or refuses it: error *refusal. It returns the record as the
// manifests have it from then on, and whether this request changed it, in which case subscribers
// must be notified.
func (w *Writer) apply(ctx context.Context, d *day, s *slot, q request) (r wire.Record, changed bool, err error) {
	if q.Action == wire.ActionSupersede && !wire.IsGuest(q.Instrument) {
		return r, false, &refusal{refusedOwn, "which version of a name is current follows from what its sender sends: retract the object, if it must not be shown"}
	}
	state := s.ids[read.HashID(q.ID)]
	if d.setAside {
		return r, false, errUnreadable
	}
	if state == unlisted {
		return r, false, &refusal{refusedUnlisted, "new objects are listed within a minute: ask again, with what substorm archive ls -o json says"}
	}
	if why := w.underHold(q.Instrument); why != "" && (q.Action == wire.ActionRetract || q.Action == wire.ActionPurge) {
		return r, false, &refusal{refusedHold, why}
	}
	if state == duplicate {
		return w.purgeDuplicate(ctx, d, q)
	}
	listed, err := w.standing(ctx, d, q.ID)
	if err != nil {
		return r, false, err
	}
	r = listed.Record
	if !listed.found {
		return r, false, &refusal{refusedUnlisted, "no manifest of the day lists it: substorm archive rebuild recreates its manifests"}
	}
	switch q.Action {
	case wire.ActionRetract, wire.ActionPurge:
		if r.Outdated, err = w.outdated(ctx, q.Instrument, r); err != nil {
			return r, false, err
		}
		if q.Action == wire.ActionRetract {
			return w.retract(d, s, r, q)
		}
		return w.purge(d, s, r, q)
	case wire.ActionSupersede:
		return w.supersedeGuest(d, s, r)
	default:
		return w.restore(ctx, d, s, r, q)
	}
}

// supersedeGuest lists an object as superseded because another one has its path at its origin. Subscribers are not notified: the
// notice of the other object says so.
func (w *Writer) supersedeGuest(d *day, s *slot, r wire.Record) (wire.Record, bool, error) {
	switch r.State {
	case wire.StateSuperseded:
		return r, false, nil
	case wire.StateCurrent:
	default:
		return r, false, &refusal{refusedState, "it is " + string(r.State) + ": restore it first"}
	}
	r.Supersede()
	w.changed(d, s, r, changeSuperseded)
	return r, false, nil
}

// underHold says why nothing of an instrument may be retracted; empty: it may.
func (w *Writer) underHold(instrument string) string {
	if w.cfg.Held == nil {
		return ""
	}
	return w.cfg.Held(instrument)
}

func (w *Writer) retract(d *day, s *slot, r wire.Record, q request) (wire.Record, bool, error) {
	switch {
	case r.State == wire.StateRetracted && !r.RetractedAgain(q.By, q.RetractedAt):
		return r, q.did(r.RetractedAt), nil
	case r.State == wire.StatePurged:
		return r, false, &refusal{refusedState, "it was purged, which goes further"}
	}
	r.Retract(q.Reason, q.By, q.at)
	q.noteOrigin(&r)
	w.changed(d, s, r, changeRetracted)
	return r, true, nil
}

// restore lists what was retracted as what it would be without that: a version that
// has a newer one is superseded.
func (w *Writer) restore(ctx context.Context, d *day, s *slot, r wire.Record, q request) (wire.Record, bool, error) {
	switch r.State {
	case wire.StateRetracted:
	case wire.StatePurged:
		return r, false, &refusal{refusedState, "it was purged: its bytes are gone, and only its sender can send them again"}
	default:
		return r, q.did(r.RestoredAt), nil // it is not hidden
	}
	superseded, err := w.hasNewer(ctx, q.Instrument, r)
	if err != nil {
		return r, false, err
	}
	r.Restore(q.Reason, q.By, q.at, superseded)
	w.changed(d, s, r, changeRestored)
	return r, true, nil
}

// outdated says whether an object that is to be retracted is not the current version of its name. The manifests do not
// record it for an object that is retracted already.
func (w *Writer) outdated(ctx context.Context, instrument string, r wire.Record) (bool, error) {
	if r.State != wire.StateRetracted || r.Outdated {
		return r.Outdated || r.State == wire.StateSuperseded, nil
	}
	newer, err := w.hasNewer(ctx, instrument, r)
	var unknown *refusal
	if errors.As(err, &unknown) { // the claims are being rebuilt: subscribers are notified once too often
		return false, nil
	}
	return newer, err
}

// hasNewer says whether a name has a later version than a record. Error refusal: while lost claims
// are being rebuilt, a missing version proves nothing.
func (w *Writer) hasNewer(ctx context.Context, instrument string, r wire.Record) (bool, error) {
	if r.Origin != nil {
		return r.Outdated, nil // its versions are its origin's: it is what it was before
	}
	if !wire.IsNamedID(r.ID) || r.Name == "" {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, namesTimeout)
	defer cancel()
	bucket := wire.NamesBucket(w.cfg.Site)
	kv, err := w.cfg.JetStream.KeyValue(ctx, bucket)
	if err != nil {
		return false, fmt.Errorf("bucket %s: %w", bucket, err)
	}
	whole, err := nameclaims.IsWhole(ctx, kv)
	if err != nil {
		return false, err
	}
	if !whole {
		return false, &refusal{refusedNames, "the versions of its name are being determined again, because the bucket " + bucket +
			" was lost or is of an older Substorm: ask again when the archivist's log says that the names have their claims"}
	}
	value, _, err := stream.Newest(ctx, w.cfg.JetStream, bucket, wire.NameKey(instrument, r.Name))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("bucket %s: %w", bucket, err)
	}
	claim, err := wire.Decode[wire.NameClaim](value)
	if err != nil {
		return false, fmt.Errorf("bucket %s: %w", bucket, err)
	}
	for _, v := range claim.Versions {
		if v.Announced && v.Version > max(r.Version, 1) {
			return true, nil
		}
	}
	return false, nil
}

// purge lists an object as purged; its bytes are removed after that is in a closed part. For an object that is listed as purged already,
// purge only hands on the removal: its bytes may not be gone yet. If the request that is decided now already listed it, an archivist did so
// that was killed, perhaps before it wrote the removal. Until then no mirror could confirm it, and a run of a mirror does not look again at
// a day that is unchanged, so the line is listed once more. An object that only expired is purged by the request: mirrors keep their copies
// of it until then.
func (w *Writer) purge(d *day, s *slot, r wire.Record, q request) (wire.Record, bool, error) {
	if r.State == wire.StatePurged && !r.Expired() {
		w.remove(d, r)
		did := q.did(r.PurgedAt)
		if did {
			w.change(d, s, r)
		}
		return r, did, nil
	}
	if !wire.IsOurs(r.Key) {
		return r, false, &refusal{refusedForeign, fmt.Sprintf("its bytes lie where they were imported in place, at %s, and are not ours to remove: "+
			"retract it, and remove them there", r.Key)}
	}
	r.Purge(q.Reason, q.By, q.at)
	q.noteOrigin(&r)
	w.changed(d, s, r, changePurged)
	s.ids[read.HashID(r.ID)] = purged
	w.index.remove(d.instrument, r.Digest, r.ID) // what comes now is no duplicate of it
	w.remove(d, r)
	return r, true, nil
}

// noteOrigin notes of a guest's object when it was retracted at its origin, which the request follows.
func (q request) noteOrigin(r *wire.Record) {
	if r.Origin == nil || q.RetractedAt == nil {
		return
	}
	origin := *r.Origin
	origin.RetractedAt = q.RetractedAt
	r.Origin = &origin
}

// purgeDuplicate takes the bytes of a duplicate out of the pack in which they wait for its
// compaction. Readers never saw it, and subscribers are not notified.
func (w *Writer) purgeDuplicate(ctx context.Context, d *day, q request) (wire.Record, bool, error) {
	listed, err := w.standing(ctx, d, q.ID)
	r := listed.Record
	switch {
	case err != nil:
		return r, false, err
	case q.Action != wire.ActionPurge:
		return r, false, &refusal{refusedState, "it is a duplicate of another object: name that one"}
	case listed.open || r.State != wire.StateDuplicate:
		return r, false, &refusal{refusedUnlisted, "it was found to be a duplicate just now: ask again in a minute"}
	}
	r.Reason, r.ChangedBy, r.PurgedAt = q.Reason, q.By, &q.at
	w.remove(d, r)
	return r, false, nil
}

func (w *Writer) changed(d *day, s *slot, r wire.Record, change string) {
	w.change(d, s, r)
	w.cfg.Metrics.changes.WithLabelValues(change).Inc()
	w.cfg.Log.Info("an object is changed on request", "instrument", d.instrument, "object", r.ID, "change", change, "reason", r.Reason, "by", r.ChangedBy)
}
