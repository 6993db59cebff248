// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"errors"
	"slices"

	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// An object that has a name keeps it: where it came by another way too, without a
// name, that one goes, though it may have come first.

// markNameless marks as duplicates the objects without a name that are equal to one that has one
// and is listed. Nothing is removed for an object that others can change, or whose digest was not
// computed by Substorm.
func (w *Writer) markNameless(ctx context.Context, n wire.Notice) error {
	window := w.repeatWindow(n.Instrument)
	if !wire.IsNamedID(n.ID) || n.Name == "" || n.DigestSource != "" || window <= 0 {
		return nil
	}
	for _, id := range w.index.all(n.Instrument, n.Digest, n.ReceivedAt, window) {
		if id == n.ID || wire.IsNamedID(id) {
			continue
		}
		r, found, err := w.recordOf(ctx, n, id)
		if err != nil {
			return err
		}
		if found && n.ReceivedAt.Before(w.earliestOriginal(&wire.Notice{Site: n.Site, Instrument: n.Instrument, Record: r})) {
			continue // it is kept for longer than the one with a name
		}
		w.index.remove(n.Instrument, n.Digest, id)
		if !found || r.Size != n.Size || r.Name != "" {
			continue
		}
		d, s, err := w.slot(ctx, n.Instrument, r)
		if err != nil {
			return err
		}
		if s.ids[read.HashID(id)] > current {
			continue // it is a duplicate, or purged
		}
		gone := n
		gone.Record = r
		stays, err := w.originals.stays(ctx, n.ID, gone)
		if err != nil {
			return err
		}
		if !stays {
			w.index.add(n.Instrument, r)
			continue
		}
		gone.State, gone.DuplicateOf = wire.StateDuplicate, n.ID
		w.list(d, s, gone)
		w.duplicates = append(w.duplicates, pendingDuplicate{Notice: gone})
	}
	return nil
}

// recordOf returns the record of an earlier object: from an open part, from the
// object itself, or from the closed parts of its day.
func (w *Writer) recordOf(ctx context.Context, n wire.Notice, id string) (wire.Record, bool, error) {
	for key, d := range w.days {
		if key.instrument != n.Instrument {
			continue
		}
		open, err := d.open.all()
		if err != nil {
			return wire.Record{}, false, err
		}
		if i := slices.IndexFunc(open, func(r wire.Record) bool { return r.ID == id }); i >= 0 {
			return open[i], true, nil
		}
	}
	if key, packed := wire.KeyOfID(id); !packed {
		info, err := w.cfg.Store.Head(ctx, key)
		if err != nil && !errors.Is(err, objectstore.ErrNotFound) {
			return wire.Record{}, false, err
		}
		if err == nil {
			if there, err := wire.NoticeFromMetadata(key, info.Metadata); err == nil {
				return there.Record, true, nil
			}
		}
	}
	of, ok := wire.DayOfID(id)
	if !ok {
		return wire.Record{}, false, nil
	}
	var last wire.Record
	files, err := read.List(ctx, w.cfg.Store, n.Site, n.Instrument, of)
	if err != nil {
		return wire.Record{}, false, err
	}
	in, bad := dayKey{n.Instrument, of}, map[string]error{}
	for r, err := range readLines(ctx, w.cfg.Store, w.cfg.Site, in, files, bad) {
		if err != nil {
			return wire.Record{}, false, err
		}
		if r.ID == id && (last.ID == "" || r.State == wire.StateCurrent) {
			last = r // a later line has its place
		}
	}
	w.unreadable.tell(ctx, in, bad)
	return last, last.State == wire.StateCurrent, nil
}

// openPlace returns the key that has the bytes of a record in an open part: the ID of one that came
// from a spool does not say.
func (w *Writer) openPlace(of dayKey, id string) (string, bool, error) {
	d := w.days[of]
	if d == nil {
		return "", false, nil
	}
	open, err := d.open.all()
	i := slices.IndexFunc(open, func(r wire.Record) bool { return r.ID == id && r.State == wire.StateCurrent })
	if i < 0 || err != nil {
		return "", false, err
	}
	return open[i].Key, true, nil
}
