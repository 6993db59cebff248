// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"context"
	"slices"
	"time"

	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

type dayKey struct {
	instrument string
	day        wire.Day
}

// day is what the writer knows of one instrument's day.
type day struct {
	dayKey
	// listed are the slots with entries in closed or open parts. slots are those whose identities
	// are in memory: all that have records in an open part, and as many of the others as there is
	// space for.
	listed   [slotsOfDay]bool
	slots    map[int]*slot
	nextPart int
	open     openPart
	// changes are the records of open that say what their objects do not.
	changes []wire.Record
	paths   paths

	// columns are the ledger's of the day's objects; unsaved until the ledger has them.
	columns read.Columns
	unsaved bool
	// duplicated: the ledger has a column of duplicates, even if none are left.
	duplicated bool

	// setAside: when the day was read, at readAt, some of its files could not be.
	setAside bool
	readAt   time.Time
}

// slot is some minutes of a day.
type slot struct {
	ids idSet
	// used is when it was last used, by the writer's clock of uses; closes how
	// many times parts had been closed when it last got a record.
	used, closes uint64
}

// count counts a line of an object; first: it is the object's first line.
func (d *day) count(r *wire.Record, first bool) {
	switch {
	case r.Segment != nil:
		return // the cutter counts datagrams
	case first:
		d.columns.Add(r)
	case r.State == wire.StateDuplicate:
		d.columns.MarkDuplicate(r)
	default:
		return
	}
	d.unsaved = true
}

// slot returns what is listed in the slot of a record, and its day; both are read from the
// manifests if they are not in memory.
func (w *Writer) slot(ctx context.Context, instrument string, r wire.Record) (*day, *slot, error) {
	key, number := dayKey{instrument, wire.DayOf(r.ReceivedAt)}, slotOf(r)
	d := w.days[key]
	switch {
	case d == nil:
		if err := w.loadWindow(ctx, instrument); err != nil {
			return nil, nil, err
		}
		var err error
		if d, err = w.loadDay(ctx, key, number); err != nil {
			return nil, nil, err
		}
	case d.slots[number] == nil && d.listed[number]:
		if err := w.loadSlots(ctx, d, number); err != nil {
			return nil, nil, err
		}
	}
	s := d.slots[number]
	if s == nil {
		s = w.keep(d, number, make(idSet))
	}
	w.uses++
	s.used = w.uses
	w.forget()
	return d, s, nil
}

// loadDay reads a day for the first time.
func (w *Writer) loadDay(ctx context.Context, key dayKey, number int) (*day, error) {
	d := &day{dayKey: key, slots: make(map[int]*slot), readAt: time.Now()}
	d.paths.template = w.template(d.instrument).Template
	taken := &d.paths
	if wire.IsGuest(d.instrument) {
		taken = nil
	}
	counted := lineTally{max: maxDuplicates}
	l, err := readDay(ctx, w.cfg.Store, w.cfg.Site, d.dayKey, number, w.limits.ids/2, taken, &counted)
	if err != nil {
		return nil, err
	}
	// Changes are ordered by the numbers of their parts. If manifests are lost and changes are not, a new part that reuses an old number would
	// let an older change, such as a restore, prevail over a later retraction.
	changed, err := read.LastChangedPart(ctx, w.cfg.Store, w.cfg.Site, d.instrument, d.day)
	if err != nil {
		return nil, err
	}
	w.days[key] = d
	w.held += d.paths.cost()
	d.nextPart, d.listed = max(l.files.NextPart, changed+1), l.listed
	d.columns, d.unsaved = counted.Columns, len(counted.Announced) > 0
	for n, ids := range l.slots {
		w.keep(d, n, ids)
	}
	w.setAside(ctx, d, l.unreadable)
	w.cfg.Index.Seen(ctx, d.instrument, d.day, l.files)
	return d, nil
}

// loadSlots reads slots again that were forgotten, from a number on.
func (w *Writer) loadSlots(ctx context.Context, d *day, number int) error {
	l, err := readDay(ctx, w.cfg.Store, w.cfg.Site, d.dayKey, number, w.limits.ids/2, nil, nil)
	if err != nil {
		return err
	}
	w.setAside(ctx, d, l.unreadable)
	w.cfg.Metrics.reread.Inc()
	for n, ids := range l.slots {
		if d.slots[n] == nil { // one that we have knows open parts too
			w.keep(d, n, ids)
		}
	}
	return nil
}

func (w *Writer) keep(d *day, number int, ids idSet) *slot {
	s := &slot{ids: ids, used: w.uses}
	d.slots[number] = s
	w.held += s.cost()
	return s
}

// cost is what a slot takes of the space for identities.
func (s *slot) cost() int { return len(s.ids) + slotCost }

// forget drops the slots that were not used for longest, but never one with
// records in an open part, until a quarter of the space is free.
func (w *Writer) forget() {
	defer func() { w.cfg.Metrics.identities.Set(float64(w.held)) }()
	if w.held <= w.limits.ids {
		return
	}
	type candidate struct {
		*slot
		day    *day
		number int
	}
	var cold []candidate
	for _, d := range w.days {
		for number, s := range d.slots {
			if s.closes < w.closes && s.used < w.uses {
				cold = append(cold, candidate{s, d, number})
			}
		}
	}
	slices.SortFunc(cold, func(a, b candidate) int { return cmp.Compare(a.used, b.used) })
	for _, c := range cold {
		if w.held <= w.limits.ids*3/4 {
			return
		}
		w.held -= c.cost()
		delete(c.day.slots, c.number)
		if d := c.day; len(d.slots) == 0 && d.open.len() == 0 && !d.unsaved {
			w.held -= d.paths.cost()
			delete(w.days, d.dayKey)
		}
	}
}

// loadWindow fills the index with what an instrument sent within its repeat
// window, the newest first, once.
func (w *Writer) loadWindow(ctx context.Context, instrument string) error {
	window := w.cfg.RepeatWindow(instrument)
	if window <= 0 || w.index.loaded(instrument) {
		return nil
	}
	begun := time.Now()
	oldest := wire.DayOf(begun.Add(-window))
	var days []wire.Day
	for d, err := range read.Days(ctx, w.cfg.Store, w.cfg.Site, instrument) {
		if err != nil {
			return err
		}
		if d >= oldest {
			days = append(days, d)
		}
	}
	known := 0
	for i := len(days) - 1; i >= 0 && w.index.hasSpace(); i-- {
		files, err := read.List(ctx, w.cfg.Store, w.cfg.Site, instrument, days[i])
		if err != nil {
			return err
		}
		gone := make(map[read.IDHash]bool) // no duplicate may go for an original that went itself, in whichever order they are listed
		of, bad := dayKey{instrument, days[i]}, map[string]error{}
		for r, err := range readLines(ctx, w.cfg.Store, w.cfg.Site, of, files, bad) {
			switch {
			case err != nil:
				return err
			case listingOf(r.State) != current:
				gone[read.HashID(r.ID)] = true
				w.index.remove(instrument, r.Digest, r.ID)
			case !gone[read.HashID(r.ID)]:
				w.index.add(instrument, r)
				known++
			}
		}
		w.unreadable.tell(ctx, of, bad)
	}
	w.index.setLoaded(instrument)
	w.cfg.Log.Debug("read the manifests of the repeat window", "instrument", instrument,
		"days", len(days), "objects", known, "took", time.Since(begun))
	return nil
}
