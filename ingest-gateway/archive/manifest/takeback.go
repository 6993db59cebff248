// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/ingest-gateway/archive/names"
	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

// Objects are taken back by notices: of wire.StateRetracted, which hides them; of
// wire.StateCurrent with RestoredAt, which undoes that; of wire.StatePurged, which
// gives them up for good. Such a notice names the object by its ID and receivedAt;
// what it is, and where it lies, the manifests say.

// Why a notice that takes something back is refused.
const (
	refusedUnlisted = "Unlisted"  // no manifest lists the object
	refusedHold     = "LegalHold" // the instrument is under legal hold, or nobody knows whether it is
	refusedState    = "State"     // what was not retracted cannot be restored, what was purged cannot come back
	refusedNames    = "Names"     // nobody knows yet whether a name has a newer version
	refusedForeign  = "Foreign"   // its bytes lie where others write: they are not ours to remove
)

// What is done to an object.
const (
	changeRetracted = "Retracted"
	changeRestored  = "Restored"
	changePurged    = "Purged"
)

// namesTimeout bounds a look at who has a name.
const namesTimeout = 10 * time.Second

// refusal says why something cannot be taken back, and what to do.
type refusal struct{ reason, next string }

func (r *refusal) Error() string { return r.reason + ": " + r.next }

// takesBack says whether a notice is of that kind.
func takesBack(n wire.Notice) bool {
	return n.State == wire.StateRetracted || n.State == wire.StatePurged || n.RestoredAt != nil
}

// takeBack lists what a notice asks for, or refuses it.
func (w *Writer) takeBack(ctx context.Context, d *day, s *slot, n wire.Notice) error {
	err := w.tryTakeBack(ctx, d, s, n)
	var no *refusal
	if !errors.As(err, &no) {
		return err
	}
	w.refusals.note(n, no)
	w.cfg.Metrics.changesRefused.WithLabelValues(no.reason).Inc()
	w.cfg.Log.Error("an object is not taken back", "instrument", n.Instrument, "object", n.ID, "day", d.day,
		"asked", changeOf(n), "by", n.ChangedBy, "reason", no.reason, "next", no.next)
	return nil
}

func changeOf(n wire.Notice) string {
	if n.State == wire.StateRetracted || n.State == wire.StatePurged {
		return string(n.State)
	}
	return changeRestored
}

func (w *Writer) tryTakeBack(ctx context.Context, d *day, s *slot, n wire.Notice) error {
	is := s.ids[read.HashID(n.ID)]
	if is == unlisted {
		return &refusal{refusedUnlisted, "what is new is listed within a minute: ask again, by what substorm archive ls -o json says"}
	}
	// By its state: what was once restored keeps restoredAt, whatever is asked of it now.
	if why := w.underHold(n.Instrument); why != "" && changeOf(n) != changeRestored {
		return &refusal{refusedHold, why}
	}
	if is == withdrawn {
		return w.purgeRepeat(ctx, d, n)
	}
	listed, err := w.standing(ctx, d, n.ID)
	if err != nil {
		return err
	}
	r := listed.Record
	if !listed.found {
		return &refusal{refusedUnlisted, "no manifest of the day lists it: substorm archive rebuild makes them anew"}
	}
	switch {
	case n.State == wire.StateRetracted:
		err = w.retract(d, s, r, n)
	case n.State == wire.StatePurged:
		err = w.purge(d, s, r, n)
	default:
		err = w.restore(ctx, d, s, r, n)
	}
	return err
}

// underHold says why nothing of an instrument may be taken back; empty: it may.
func (w *Writer) underHold(instrument string) string {
	if w.cfg.Held == nil {
		return ""
	}
	return w.cfg.Held(instrument)
}

func (w *Writer) retract(d *day, s *slot, r wire.Record, n wire.Notice) error {
	switch r.State {
	case wire.StateRetracted:
		return nil
	case wire.StatePurged:
		return &refusal{refusedState, "it was purged, which is more"}
	}
	r.State, r.Reason, r.ChangedBy, r.RetractedAt, r.RestoredAt = wire.StateRetracted, n.Reason, n.ChangedBy, orNow(n.RetractedAt), nil
	w.changed(d, s, r, changeRetracted)
	return nil
}

// restore lists what was retracted as what it would be without that: a version that
// has a newer one is superseded.
func (w *Writer) restore(ctx context.Context, d *day, s *slot, r wire.Record, n wire.Notice) error {
	switch r.State {
	case wire.StateRetracted:
	case wire.StatePurged:
		return &refusal{refusedState, "it was purged: its bytes are gone, and only its sender can send them again"}
	default:
		return nil // it is not hidden
	}
	superseded, err := w.hasNewer(ctx, n.Instrument, r)
	if err != nil {
		return err
	}
	r.State = wire.StateCurrent
	if superseded {
		r.State = wire.StateSuperseded
	}
	r.Reason, r.ChangedBy, r.RestoredAt = n.Reason, n.ChangedBy, orNow(n.RestoredAt)
	w.changed(d, s, r, changeRestored)
	return nil
}

// hasNewer says whether a name has a later version than a record. Error refusal: while
// claims that were lost are made anew, that there is none says nothing.
func (w *Writer) hasNewer(ctx context.Context, instrument string, r wire.Record) (bool, error) {
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
	whole, err := names.IsWhole(ctx, kv)
	if err != nil {
		return false, err
	}
	if !whole {
		return false, &refusal{refusedNames, "which versions its name has is found out anew, because the bucket " + bucket +
			" was lost or is of an older Substorm: ask again when the gateways' log says that the names have their claims"}
	}
	e, err := kv.Get(ctx, wire.NameKey(instrument, r.Name))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("bucket %s: %w", bucket, err)
	}
	claim, err := wire.DecodeNameClaim(e.Value())
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

// purge lists an object as purged; its bytes go after that is in a closed part. What
// is listed so already is only looked after: its bytes may not be gone yet.
func (w *Writer) purge(d *day, s *slot, r wire.Record, n wire.Notice) error {
	if r.State == wire.StatePurged {
		w.remove(d, r)
		return nil
	}
	if !wire.IsOurs(r.Key) {
		return &refusal{refusedForeign, fmt.Sprintf("its bytes lie where they were imported in place, at %s, and are not ours to remove: "+
			"retract it, and remove them there", r.Key)}
	}
	r.State, r.Reason, r.ChangedBy, r.PurgedAt = wire.StatePurged, n.Reason, n.ChangedBy, orNow(n.PurgedAt)
	w.changed(d, s, r, changePurged)
	s.ids[read.HashID(r.ID)] = purged
	w.index.remove(d.instrument, r.Digest, r.ID) // what comes now is no repeat of it
	w.remove(d, r)
	return nil
}

// purgeRepeat takes the bytes of a repeat out of the pack in which they wait for its
// compaction.
func (w *Writer) purgeRepeat(ctx context.Context, d *day, n wire.Notice) error {
	if n.State != wire.StatePurged {
		return &refusal{refusedState, "it is a repeat of another object and was withdrawn: take that one back"}
	}
	is, err := w.standing(ctx, d, n.ID)
	if err != nil {
		return err
	}
	r := is.Record
	if is.open || r.State != wire.StateWithdrawn {
		return &refusal{refusedUnlisted, "it was found to be a repeat just now: ask again in a minute"}
	}
	r.Reason, r.ChangedBy, r.PurgedAt = n.Reason, n.ChangedBy, orNow(n.PurgedAt)
	w.remove(d, r)
	return nil
}

func (w *Writer) changed(d *day, s *slot, r wire.Record, change string) {
	w.change(d, s, r)
	w.cfg.Metrics.changes.WithLabelValues(change).Inc()
	w.cfg.Log.Info("an object is taken back", "instrument", d.instrument, "object", r.ID, "change", change, "reason", r.Reason, "by", r.ChangedBy)
}

func orNow(at *time.Time) *time.Time {
	if at == nil {
		now := time.Now()
		at = &now
	}
	utc := at.UTC()
	return &utc
}
