// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"fmt"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// What the other Site has retracted or purged is counted on all days before the archivist is asked for the first of it: where that
// is too much, nothing goes.

// maxWaiting bounds the retractions and purges that wait in memory for the end of the run: some 300 bytes each. Those beyond it are
// counted, and a later run asks for them.
const maxWaiting = 100_000

// removal has the retractions and purges that a run found.
type removal struct {
	days           []removalDay
	found, waiting int
}

// removalDay has those of a day. Asked are the other changes of it that the archivist is asked for.
type removalDay struct {
	in      *instrument
	day     wire.Day
	asked   int
	changes []plan.Change
}

// add has the retractions and purges of a day wait.
func (m *removal) add(d *day) {
	is := removalDay{in: d.in, day: d.day, asked: d.asked}
	for _, c := range d.Remove[:min(len(d.Remove), maxWaiting-m.waiting)] {
		record := &wire.Record{ID: c.Record.ID, ReceivedAt: c.Record.ReceivedAt}
		is.changes = append(is.changes, plan.Change{Action: c.Action, Record: record, Reason: sayable(c.Reason)})
	}
	m.found += len(d.Remove)
	m.waiting += len(is.changes)
	m.days = append(m.days, is)
}

// remove asks the archivist for what waits, if it is not too much.
func (r *run) remove(ctx context.Context) error {
	if r.removal.found == 0 {
		return nil
	}
	pulled, err := r.pulled(ctx)
	if err != nil {
		return err
	}
	r.stop = r.policy.Allow(r.removal.found, pulled)
	if r.stop != nil {
		r.stop.Command = fmt.Sprintf("`kubectl substorm mirror run %s --force`", r.Entry.Partner)
		r.Logger.Error("the other Site has retracted or purged objects, and the archivist is asked for none of them", "error", r.stop)
	}
	seen := map[*instrument]map[string]map[string]noted{}
	for _, d := range r.removal.days {
		for i, c := range d.changes {
			if r.stop != nil {
				if i == 0 {
					r.Logger.Warn("this object must go, or is one of those of its day", "instrument", d.in.guest, "day", d.day, "object", c.Record.ID, "action", c.Action)
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
		seen[d.in][month][string(d.day)] = noted{asked: d.asked}
	}
	for in, months := range seen {
		if err := r.keepNoted(ctx, in, months); err != nil {
			return err
		}
	}
	return nil
}

// hide asks the archivist for a retraction or a purge.
func (r *run) hide(ctx context.Context, in *instrument, c plan.Change) error {
	if err := r.announcer.change(ctx, in.guest, c); err != nil {
		return err
	}
	r.told(in, c)
	r.Progress.Remove(1)
	return nil
}

// pulled is how many objects were pulled from the other Site: those of days of which nothing is left do not count.
func (r *run) pulled(ctx context.Context) (n int, err error) {
	for guest := range r.Registry().Instruments {
		if origin, _, is := wire.ParseGuestName(guest); !is || origin != r.origin {
			continue
		}
		days, err := r.Catalog.Days(ctx, guest)
		if unreadable(err) {
			r.Logger.Error("how many objects of an instrument are here cannot be read, and none counts for spec.safetyStopPercent: substorm archive rebuild makes its manifests anew",
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
