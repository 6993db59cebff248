// SPDX-License-Identifier: Apache-2.0

package site

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
)

// Runs compare lists: what the manifests here list counts as here. A run that forces, or verifies, asks the store, too, which may have
// lost objects since. They are fetched again, and a gateway stores them as they are listed.

// lostOf returns the IDs of the records of a day whose bytes the store does not have, or has in another size. An object that lies in a
// pack is not fetched, because only the archivist writes packs: those that are lost with theirs are counted in packed. Errors: of the
// store.
func (r *run) lostOf(ctx context.Context, records []*wire.Record) (lost map[string]bool, packed int, err error) {
	lost = map[string]bool{}
	sizes := map[string]map[string]int64{} // of the objects in a folder of the bucket: those of a day are in one
	packs := map[string]int64{}
	for _, record := range records {
		if !bucket.Holds(*record) {
			continue
		}
		if record.Key != record.ID {
			size, known := packs[record.Key]
			if !known {
				if size, err = r.sizeOf(ctx, record.Key); err != nil {
					return nil, 0, err
				}
				packs[record.Key] = size
			}
			if size < record.Offset+record.Length {
				packed++
			}
			continue
		}
		folder := path.Dir(record.Key) + "/"
		if sizes[folder] == nil {
			if sizes[folder], err = r.sizesIn(ctx, folder); err != nil {
				return nil, 0, err
			}
		}
		if size, is := sizes[folder][record.Key]; !is || size != record.Size {
			lost[record.ID] = true
		}
	}
	return lost, packed, nil
}

// sizeOf an object in the store; -1 where it is not there.
func (r *run) sizeOf(ctx context.Context, key string) (int64, error) {
	info, err := r.Store.Head(ctx, key)
	if errors.Is(err, objectstore.ErrNotFound) {
		return -1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look for %s in the object store: %w", key, err)
	}
	return info.Size, nil
}

func (r *run) sizesIn(ctx context.Context, folder string) (map[string]int64, error) {
	sizes := map[string]int64{}
	for info, err := range r.Store.List(ctx, folder, "") {
		if err != nil {
			return nil, fmt.Errorf("list %s in the object store: %w", folder, err)
		}
		sizes[info.Key] = info.Size
	}
	return sizes, nil
}

// inside returns those of some records that lie within the bounds of a run of a part.
func (r *run) inside(records []*wire.Record) []*wire.Record {
	if !r.isBounded() {
		return records
	}
	return slices.DeleteFunc(slices.Clone(records), func(record *wire.Record) bool {
		first, last := record.Observed()
		return !r.To.IsZero() && !first.Before(r.To) || last.Before(r.From)
	})
}

// findLost finds what the store lost of a day that is listed here, as lostOf, and logs it.
func (r *run) findLost(ctx context.Context, in *instrument, day wire.Day, records []*wire.Record) (lost map[string]bool, packed int, err error) {
	lost, packed, err = r.lostOf(ctx, r.inside(records))
	if err != nil {
		return nil, 0, err
	}
	if len(lost) > 0 {
		r.lost = true
		r.Logger.Warn("the object store does not have objects that are listed here: the next run that does not only verify fetches what the other Site still gives",
			"instrument", in.guest, "day", day, "objects", len(lost))
		if err := r.putInDoubt(ctx, in.name, day); err != nil {
			return nil, 0, err
		}
	}
	if packed > 0 {
		if r.looks { // else a run that looks at all counts them
			r.unrepairable += packed
		}
		r.Logger.Error("the object store lost a pack with objects that are listed here, which no pull brings back: restore the bucket from a copy (substorm archive verify names them)",
			"instrument", in.guest, "day", day, "objects", packed)
	}
	return lost, packed, nil
}

// countMissing counts what was lost here of a day and comes again, and what does not: of that the other Site has nothing to give any more.
func (r *run) countMissing(d *day) {
	r.again += len(d.Again)
	if d.missing = len(d.Missing); d.missing == 0 {
		return
	}
	if !r.looks { // a run that looks at all counts them
		return
	}
	first := d.Missing[0]
	if r.firstMissing == "" {
		r.firstMissing = fmt.Sprintf("%q of %s, %s", cmp.Or(first.Path, first.ID), d.in.guest, d.day)
	}
	r.missing += d.missing
	r.Logger.Error("the object store lost objects that are listed here, and no run fetches them: the other Site does not give them any more, or they are not selected: "+
		"substorm archive verify names them; restore their files in the bucket from a copy",
		"instrument", d.in.guest, "day", d.day, "objects", d.missing, "object", cmp.Or(first.Path, first.ID), "key", first.Key)
}

// misses is the error of a run that knows of such objects.
func (r *run) misses() error {
	owed := ""
	if r.owed > 0 {
		owed = fmt.Sprintf("; %d others are owed%s: %s", r.owed, r.firstOwed, r.step())
	}
	return fmt.Errorf("%w: the object store here lost %d objects that are listed, as %s, and no run brings them back, because the other Site does not give them any more or they are not selected: "+
		"`substorm archive verify` names them; restore their files in the bucket from another mirror or a backup, or purge the objects here, "+
		"and then run `kubectl substorm mirror run %s --verify-only`%s",
		push.ErrNotPulled, r.missing+r.lostUnlisted, r.firstMissing, r.Entry.Partner, owed)
}
