// SPDX-License-Identifier: Apache-2.0

package push

import (
	"context"
	"errors"
	"fmt"

	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// Copies whose originals are gone here, since they expired, may be the last ones. A run that compares all asks the partner for them, too,
// by size and time: their bytes are not here. No run brings those that the partner has lost, so none keeps owing them: the run that finds
// it fails, and the ledger does not count them from then on.

// ErrLost: the partner lost copies that no run can bring again.
var ErrLost = errors.New("the partner has lost copies of objects that are not here any more")

// losses is the error of a run that found such copies lost; nil: it found none.
func (r *run) losses() error {
	if r.lost == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d, as %q: they cannot be brought again, and the ledger does not count them any more. Restore them at the partner from another copy, "+
		"with their times, and run `kubectl substorm mirror run %s --verify-only`; the next run does not name them again", ErrLost, r.lost, r.firstLost, r.Entry.Partner)
}

// compareKept asks the partner for the copies of all days whose originals are gone here, and notes which it does not have.
func (r *run) compareKept(ctx context.Context) error {
	return r.each(ctx, func(ctx context.Context, in wire.InstrumentEntry, day wire.Day, known seen) error {
		if known.Count == 0 {
			return nil
		}
		d, err := r.read(ctx, in, day, known)
		if err != nil {
			return err
		}
		d.plan = r.policy.Day(d.objects, known.PushKnown, false)
		if !d.plan.Confirmed || len(d.plan.Kept) == 0 { // what is not confirmed is not counted
			return nil
		}
		return r.compareKeptDay(ctx, d)
	})
}

// compareKeptDay does that for one day.
func (r *run) compareKeptDay(ctx context.Context, d *pushed) error {
	for _, i := range d.plan.Kept {
		if !r.inside(d.objects[i].Record) {
			return nil // a part of a day does not cover the rest
		}
	}
	missing, err := r.missingOf(ctx, d, d.plan.Kept, func(o *plan.PushObject) (string, bool) { return d.here.pathOf(o, false) })
	if err == nil && r.policy.AllVersions && len(missing) > 0 { // it may have been superseded before it expired
		missing, err = r.missingOf(ctx, d, missing, func(o *plan.PushObject) (string, bool) { return d.here.pathOf(o, true) })
	}
	if err == nil && len(missing) > 0 { // its name may have been used again
		missing, err = r.missingOf(ctx, d, missing, func(o *plan.PushObject) (string, bool) {
			path, ok := d.here.pathOf(o, false)
			return path + asideSuffix(o.Record), ok
		})
	}
	if err != nil {
		return err
	}
	r.Progress.Compare(len(d.plan.Kept) - len(missing))
	absent, lost, first := wire.Totals{}, 0, ""
	for _, i := range missing {
		o := &d.objects[i]
		absent.AddCopy(o.Record)
		is, err := r.Catalog.Find(ctx, d.in.Instrument, o.Path)
		if err != nil && !errors.Is(err, catalog.ErrNotFound) {
			return err
		}
		if err == nil && is.ID != o.Record.ID { // a newer version has taken the place of its copy
			continue
		}
		if lost++; first == "" {
			first, _ = d.here.pathOf(o, false)
		}
	}
	if known := d.known; lost == known.AbsentCopies && absent.SameObjects(known.Absent) && absent.SameSegments(known.Absent) {
		return nil
	}
	return r.noteAbsent(ctx, d, absent, lost, first)
}

// missingOf returns those of some objects of a day, by index, whose copies the partner does not have under some path.
func (r *run) missingOf(ctx context.Context, d *pushed, some []int, pathOf func(*plan.PushObject) (path string, ok bool)) (missing []int, err error) {
	var files []File
	var of []int
	var paths owners
	ask := func() error {
		if len(files) == 0 {
			return nil
		}
		err := r.Pause(ctx)
		if err == nil {
			err = r.Mover.Verify(ctx, files, false, func(i int, _ string) { missing = append(missing, of[i]) })
		}
		files, of, paths = nil, nil, nil
		return err
	}
	for _, i := range some {
		o := &d.objects[i]
		path, ok := pathOf(o)
		if !ok {
			missing = append(missing, i)
			continue
		}
		f := gone{path: path, record: o.Record}.file()
		f.owner = o.Record.ID
		if len(files) >= r.files || paths.have(f) {
			if err := ask(); err != nil {
				return nil, err
			}
		}
		files, of = append(files, f), append(of, i)
		paths.add(f)
	}
	err = ask()
	return missing, err
}

// noteAbsent notes in the book, and in the ledger, which copies of a day the partner does not have whose originals are gone here.
func (r *run) noteAbsent(ctx context.Context, d *pushed, absent wire.Totals, copies int, first string) error {
	known := d.known.KnownDay
	if lost := copies - known.AbsentCopies; lost > 0 {
		if r.lost += lost; r.firstLost == "" {
			r.firstLost = first
		}
		r.Logger.Error("the partner has lost copies of objects that are not here any more: they cannot be brought again, and are not confirmed any more",
			"instrument", d.in.Instrument, "day", d.day, "copies", lost, "path", first)
	}
	known.Absent, known.AbsentCopies = absent, copies
	planned := r.policy.Day(d.objects, known.PushKnown, false)
	var waits wire.Totals // they are not at the partner yet
	for _, i := range planned.Deliver {
		waits.AddCopy(d.objects[i].Record)
	}
	set, err := r.Book.SetConfirmed(ctx, d.in.Instrument, d.day, d.known.was, known, planned.Totals.MinusCopies(waits))
	r.unsettled = r.unsettled || !set
	return err
}
