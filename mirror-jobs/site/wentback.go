// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// An archive lists what it had for ever, and an ID belongs to one object. If another Site lists other bytes under an ID, or no longer
// lists a day with objects here, it was installed again under its code, or restored from an older backup. A run keeps what is here,
// brings what is new, and reports that, until a run is forced.

// beginWentBack has the run report what earlier runs found, unless it is forced.
func (r *run) beginWentBack() {
	if r.Force && !r.part {
		r.state.root.WentBack = nil
	}
	r.Progress.SetWentBack(r.state.root.WentBack)
}

// noteWentBack notes a sign that the other Site went back.
func (r *run) noteWentBack(note func(*wire.MirrorWentBack)) {
	signs := wire.MirrorWentBack{Since: r.now.UTC().Truncate(time.Second)}
	if before := r.state.root.WentBack; before != nil {
		signs = *before
	}
	note(&signs)
	r.state.root.WentBack = &signs
	r.Progress.SetWentBack(&signs)
}

// checkClock reports what is wrong with the clock of the other Site. Times of receipt are kept as that Site says them.
func (r *run) checkClock(says time.Time) {
	r.noted = r.state.root.Now
	r.state.root.Now, r.clock = plan.CheckClock(says, r.state.root.Now, r.now)
	if r.clock != nil {
		r.Progress.SetOriginClock(r.clock.Error())
		r.Logger.Warn("cannot trust the clock of the other Site", "error", r.clock)
	}
}

// keepClock notes what the clock of the other Site showed in a run that found nothing changed, if that was not noted for long: by the time
// that is noted, later runs see that its clock went back.
func (r *run) keepClock(ctx context.Context) error {
	if r.part || !plan.ClockMoved(r.noted, r.state.root.Now) {
		return nil
	}
	return r.state.keepRoot(ctx)
}

// noteReused notes the objects of a day that have IDs of other ones.
func (r *run) noteReused(d *day) {
	key := d.in.name + "/" + string(d.day) + "/reused"
	before, known := r.state.root.Vanished[key]
	if len(d.Reused) == 0 && known && !d.partial { // they are here
		delete(r.state.root.Vanished, key)
	}
	if len(d.Reused) <= before || !known && len(r.state.root.Vanished) >= maxVanished {
		return
	}
	r.state.root.Vanished[key] = len(d.Reused)
	first := &d.lines[d.Reused[0]]
	r.Logger.Error("the other Site uses the IDs of objects that are here for other bytes: it was installed again under its code, or restored from an older backup. Both are kept",
		"instrument", d.in.name, "day", d.day, "objects", len(d.Reused), "path", first.Path, "id", first.ID)
	r.noteWentBack(func(w *wire.MirrorWentBack) {
		w.Objects += int64(len(d.Reused) - before)
		w.Instrument, w.Path = d.in.name, first.Path
	})
}

// reverted notes retractions and purges of a day that the other Site no longer lists, and that were not reverted there: they stand here,
// whether or not a run is forced.
func (r *run) reverted(d *day) {
	key := d.in.name + "/" + string(d.day) + "/retracted"
	before, known := r.state.root.Vanished[key]
	if d.Kept <= before || !known && len(r.state.root.Vanished) >= maxVanished {
		return
	}
	r.state.root.Vanished[key] = d.Kept
	r.Logger.Error("the other Site no longer lists retractions or purges that it had listed: it was restored from an older backup. "+
		"They stand here, and substorm archive restore publishes an object that was retracted",
		"instrument", d.in.name, "day", d.day, "objects", d.Kept)
	r.noteWentBack(func(w *wire.MirrorWentBack) { w.Retracted, w.Instrument = w.Retracted+int64(d.Kept-before), d.in.name })
}

// maxVanished bounds of how many days and months it is noted how much is not listed any more: they are in one entry of a bucket.
const maxVanished = 5000

// unlisted notes objects that are here, of a day that the other Site lists without them. If an Instrument has an
// embargo, those under it are not listed.
func (r *run) unlisted(d *day) {
	key := d.in.name + "/" + string(d.day)
	before, known := r.state.root.Vanished[key]
	if d.partial || d.in.access.Embargo() > 0 || !known && len(r.state.root.Vanished) >= maxVanished {
		return
	}
	policy := r.policyOf(d.in)
	first, n := policy.Unlisted(d.lines, d.here)
	if n <= before {
		return
	}
	r.state.root.Vanished[key] = n
	r.Logger.Error("the other Site no longer lists objects of a day that are here: it was installed again under its code, or restored from an older backup. What is here stays",
		"instrument", d.in.name, "day", d.day, "objects", n, "path", first.Path)
	r.noteWentBack(func(w *wire.MirrorWentBack) {
		w.Unlisted += int64(n - before)
		w.Instrument = d.in.name
		if w.Objects == 0 {
			w.Path = first.Path
		}
	})
}

// vanishedDays notes days that have objects here, but that the other Site does not list. If an Instrument has an embargo, days that may
// not be read at all yet are not listed. Month is the month that was asked for; empty: all.
func (r *run) vanishedDays(ctx context.Context, in *instrument, lines []mirrorindex.DaysLine, month string) error {
	if in.access.Embargo() > 0 {
		return nil
	}
	days, err := r.Catalog.Days(ctx, in.guest)
	if unreadable(err) {
		return nil // pulled says so
	}
	if err != nil {
		return err
	}
	listed := make(map[string]bool, len(lines))
	for _, line := range lines {
		listed[line.Month+string(line.Day)] = true
	}
	days = slices.DeleteFunc(days, func(d wire.RootDay) bool {
		of := mirrorindex.MonthOf(d.Day)
		return d.Bytes == 0 || listed[string(d.Day)] || month == "" && listed[of] || month != "" && month != of
	})
	key := in.name + "/" + month
	before := r.state.root.Vanished[key]
	if len(days) <= before {
		return nil
	}
	r.state.root.Vanished[key] = len(days)
	r.Logger.Error("the other Site no longer lists days of which objects are here: it was installed again under its code, or restored from an older backup. What is here stays",
		"instrument", in.name, "days", len(days), "first", days[0].Day)
	r.noteWentBack(func(w *wire.MirrorWentBack) { w.Days, w.Instrument = w.Days+int64(len(days)-before), in.name })
	return nil
}
