// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"fmt"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// The retractions and purges of the other Site are counted on all days before the archivist is asked for the first of them: if they are
// too many, together with those that runs asked for on the days before (plan.RemovalDays), nothing goes. A change that is asked for
// again, because the archivist has not done it yet, is counted once: the state has their number for each day. A run that is forced ends
// the count: a person has reviewed what was removed.

// maxWaiting bounds the retractions and purges that wait in memory for the end of the run: some 300 bytes each. Those beyond it are
// counted, and a later run asks for them.
const maxWaiting = 100_000

// removal has the retractions and purges that a run found.
type removal struct {
	days           []removalDay
	found, waiting int
}

// removalDay has those of a day. Asked are the other changes of it that the archivist is asked for, gone the objects that were retracted
// or purged before, and found those that are to be.
type removalDay struct {
	in                 *instrument
	day                wire.Day
	asked, gone, found int
	changes            []plan.Change
}

// add has the retractions and purges of a day wait.
func (m *removal) add(d *day) {
	entry := removalDay{in: d.in, day: d.day, asked: d.asked, gone: d.Gone, found: len(d.Remove)}
	for _, c := range d.Remove[:min(len(d.Remove), maxWaiting-m.waiting)] {
		record := &wire.Record{ID: c.Record.ID, ReceivedAt: c.Record.ReceivedAt}
		entry.changes = append(entry.changes, plan.Change{Action: c.Action, Record: record, Reason: sayable(c.Reason), RetractedAt: c.RetractedAt})
	}
	m.found += len(d.Remove)
	m.waiting += len(entry.changes)
	m.days = append(m.days, entry)
}

// remove asks the archivist for what waits, if it is not too much.
func (r *run) remove(ctx context.Context) error {
	if r.Force && !r.VerifyOnly {
		return r.state.countRemoved(ctx, func(plan.Removed) plan.Removed { return nil })
	}
	if r.removal.found == 0 {
		return nil
	}
	if err := r.allow(ctx); err != nil {
		return err
	}
	seen := map[*instrument]map[string]map[string]noted{}
	for _, d := range r.removal.days {
		for i, c := range d.changes {
			if r.stop != nil {
				if i == 0 {
					r.Logger.Warn("objects of a day must go, among them this one", "instrument", d.in.guest, "day", d.day, "object", c.Record.ID, "action", c.Action)
				}
				continue
			}
			if err := r.hide(ctx, d.in, c); err != nil {
				return err
			}
			d.asked++
		}
		month := mirrorindex.MonthOf(d.day)
		if seen[d.in] == nil {
			seen[d.in] = map[string]map[string]noted{}
		}
		if seen[d.in][month] == nil {
			seen[d.in][month] = map[string]noted{}
		}
		entry := noted{asked: d.asked}
		if r.stop == nil {
			entry.counted = d.gone + len(d.changes)
		}
		seen[d.in][month][string(d.day)] = entry
	}
	for in, months := range seen {
		if err := r.keepNoted(ctx, in, months); err != nil {
			return err
		}
	}
	return nil
}

// allow sets stop where too much would go, and else counts what goes.
func (r *run) allow(ctx context.Context) error {
	more, err := r.uncounted(ctx)
	if err != nil {
		return err
	}
	removed, err := r.state.removed(ctx)
	if err != nil {
		return err
	}
	pulled, err := r.pulled(ctx)
	if err != nil {
		return err
	}
	if r.stop = r.policy.Allow(more, removed.Since(r.now), pulled); r.stop != nil {
		r.stop.Command = fmt.Sprintf("`kubectl substorm mirror run %s --force`", r.Entry.Partner)
		r.Logger.Error("the other Site has retracted or purged objects, and the archivist is asked for none of them", "error", r.stop)
		return nil
	}
	if more == 0 {
		return nil
	}
	return r.state.countRemoved(ctx, func(removed plan.Removed) plan.Removed { return removed.Plus(r.now, more) })
}

// uncounted is how many of the retractions and purges that wait were not asked for before.
func (r *run) uncounted(ctx context.Context) (n int, err error) {
	known := map[string]tags{}
	for _, d := range r.removal.days {
		part := daysPart(d.in.name, mirrorindex.MonthOf(d.day))
		if _, read := known[part]; !read {
			if known[part], err = r.state.tagsOf(ctx, part); err != nil {
				return 0, err
			}
		}
		before, is := known[part].Counted[string(d.day)]
		if !is {
			before = d.gone
		}
		n += max(0, d.gone+d.found-before)
	}
	return n, nil
}

// hide asks the archivist for a retraction or a purge.
func (r *run) hide(ctx context.Context, in *instrument, c plan.Change) error {
	if err := r.announcer.change(ctx, in.guest, c); err != nil {
		return err
	}
	r.logAsked(in, c)
	r.Progress.Remove(1)
	return nil
}

// pulled is how many objects were pulled from the other Site: days with nothing left do not count.
func (r *run) pulled(ctx context.Context) (n int, err error) {
	for guest := range r.Registry().Instruments {
		if origin, _, is := wire.ParseGuestName(guest); !is || origin != r.origin {
			continue
		}
		days, err := r.Catalog.Days(ctx, guest)
		if unreadable(err) {
			r.Logger.Error("cannot count the objects of an instrument here, and none counts for spec.safetyStopPercent: substorm archive rebuild recreates its manifests",
				"instrument", guest, "error", err)
			continue
		}
		if err != nil {
			return 0, err
		}
		for _, d := range days {
			if d.Bytes > 0 {
				n += d.Entries
			}
		}
	}
	return n, nil
}
