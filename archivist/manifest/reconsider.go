// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// The original of a duplicate may be purged, or fall due to expire, after the duplicate
// was found. The bytes of both would be lost, so that is asked for again before a part is
// closed, and before a duplicate is deleted.

// reconsider lists those duplicates of the open parts as objects of their own whose
// originals are to be removed by now.
func (w *Writer) reconsider(ctx context.Context) error {
	if len(w.duplicates) == 0 {
		return nil
	}
	asked := w.removed()
	orphans := map[dayKey]map[string]pendingDuplicate{}
	for _, n := range w.duplicates {
		gone, err := asked.removesOriginal(ctx, n.Notice)
		if err != nil {
			return err
		}
		if gone {
			of := dayKey{n.Instrument, wire.DayOf(n.ReceivedAt)}
			if orphans[of] == nil {
				orphans[of] = map[string]pendingDuplicate{}
			}
			orphans[of][n.ID] = n
		}
	}
	for of, those := range orphans {
		d := w.days[of]
		if d == nil {
			continue
		}
		kept, err := w.unmark(d, those)
		if err != nil {
			return err
		}
		w.duplicates = slices.DeleteFunc(w.duplicates, func(n pendingDuplicate) bool { return kept[n.ID] })
	}
	return nil
}

// unmark lists duplicates of a day's open part as current, and returns which it found
// there: of the others a closed part says that they are duplicates.
func (w *Writer) unmark(d *day, those map[string]pendingDuplicate) (kept map[string]bool, err error) {
	kept = map[string]bool{}
	changes := len(d.changes)
	d.changes = slices.DeleteFunc(d.changes, func(r wire.Record) bool {
		_, asked := those[r.ID]
		return asked && r.State == wire.StateDuplicate
	})
	w.changes -= changes - len(d.changes)
	grown, err := d.open.change(func(r *wire.Record) {
		n, asked := those[r.ID]
		if !asked || r.State != wire.StateDuplicate {
			return
		}
		kept[r.ID] = true
		d.columns.Keep(r)
		d.unsaved = true
		n.Record = *r
		n.State, n.DuplicateOf = wire.StateCurrent, ""
		told := n.Path
		if n.first {
			w.publish(d, &n.Notice)
		}
		if n.Path != told || !wire.IsOurs(n.Key) {
			w.addChange(d, n.Record)
		}
		w.cfg.Log.Warn("keeping a duplicate: the earlier object is to be removed",
			"instrument", d.instrument, "object", r.ID, "earlier", r.DuplicateOf)
		*r = n.Record
		if s := d.slots[slotOf(*r)]; s != nil {
			s.ids[read.HashID(r.ID)] = current
		}
		w.index.add(d.instrument, *r)
	})
	w.compressed += grown
	return kept, err
}

// removed says what is to be removed as of now, what was listed as purged since the parts
// were last closed among it.
func (w *Writer) removed() removed {
	purged := make(map[string]bool, len(w.removals))
	for _, r := range w.removals {
		purged[r.ID] = true
	}
	return removed{js: w.cfg.JetStream, bucket: w.cursors.Bucket(), store: w.cfg.Store, whole: map[dayKey]bool{}, purged: purged}
}

// Expired says that a day is listed as purged by its Instrument's retention: nothing that
// comes is a duplicate of what it held. It may be called from any goroutine.
func (w *Writer) Expired(instrument string, day wire.Day) {
	w.expiredMu.Lock()
	defer w.expiredMu.Unlock()
	w.expired = append(w.expired, dayKey{instrument, day})
}

// forgetLost drops what is known of days whose files the bucket lost, so that the sweep finds what they listed. An
// open part of such a day is closed first.
func (w *Writer) forgetLost(ctx context.Context) error {
	for _, l := range w.cfg.Index.TakeLost() {
		of := dayKey{l.Instrument, l.Day}
		w.index.removeDay(of.instrument, of.day)
		w.originals.forget()
		if d := w.days[of]; d != nil && (d.open.len() > 0 || d.unsaved) {
			if err := w.close(ctx); err != nil {
				return err
			}
		}
		if d := w.days[of]; d != nil {
			w.drop(d)
		}
	}
	return nil
}

// drop forgets a day without an open part.
func (w *Writer) drop(d *day) {
	for _, s := range d.slots {
		w.held -= s.cost()
	}
	w.held -= d.paths.cost()
	delete(w.days, d.dayKey)
}

// forgetExpired drops what expired from the index.
func (w *Writer) forgetExpired() {
	w.expiredMu.Lock()
	days := w.expired
	w.expired = nil
	w.expiredMu.Unlock()
	for _, of := range days {
		w.index.removeDay(of.instrument, of.day)
		w.originals.forget()
	}
}

// removed says which originals are to be removed.
type removed struct {
	js jetstream.JetStream
	// bucket is the bucket of cursors.
	bucket string
	store  objectstore.Store
	// whole has the days that were asked for, with whether they are to be removed; nil if each is
	// asked for again.
	whole map[dayKey]bool
	// purged are the IDs of objects that are listed as purged, and that the bucket of cursors may
	// not know yet.
	purged map[string]bool
}

// removesOriginal says whether the original of a duplicate, or all of its day, is to be removed.
func (a removed) removesOriginal(ctx context.Context, duplicate wire.Notice) (bool, error) {
	id := duplicate.DuplicateOf
	if a.purged[id] {
		return true, nil
	}
	day, known := wire.DayOfID(id)
	if !known {
		info, err := a.store.Head(ctx, id)
		if errors.Is(err, objectstore.ErrNotFound) {
			return false, nil // the lookup in the store finds that
		}
		if err != nil {
			return false, err
		}
		original, err := wire.NoticeFromMetadata(id, info.Metadata)
		if err != nil {
			return false, nil // it is no object of ours that could expire
		}
		day = wire.DayOf(original.ReceivedAt)
	}
	of := dayKey{duplicate.Instrument, day}
	whole, asked := a.whole[of]
	if !asked {
		var err error
		if whole, err = a.has(ctx, wire.Removal{Instrument: of.instrument, Day: of.day}); err != nil {
			return false, err
		}
		if a.whole != nil {
			a.whole[of] = whole
		}
	}
	if whole {
		return true, nil
	}
	return a.has(ctx, wire.Removal{Instrument: of.instrument, Day: of.day, ID: id})
}

func (a removed) has(ctx context.Context, r wire.Removal) (bool, error) {
	return hasKey(ctx, a.js, a.bucket, r.Key())
}

// hasKey asks the leader: a replica that is behind does not know of a removal that was
// written just now, and what a removal reaches must not be taken for what is kept.
func hasKey(ctx context.Context, js jetstream.JetStream, bucket, key string) (bool, error) {
	_, _, err := stream.Newest(ctx, js, bucket, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("bucket %s: %w", bucket, err)
	}
	return true, nil
}
