// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"crypto/sha256"
	"time"

	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

// maxIDs bounds the identities held for days that are not written to at the
// moment: at some 40 bytes each it is 10 MiB.
const maxIDs = 250_000

type dayKey struct {
	instrument string
	day        wire.Day
}

// idHash stands for a record's ID.
type idHash [16]byte

func hashID(id string) idHash {
	sum := sha256.Sum256([]byte(id))
	return idHash(sum[:16])
}

// day is what the writer knows of one instrument's day.
type day struct {
	dayKey
	// ids of all records, in closed parts or open; true for withdrawn ones.
	ids      map[idHash]bool
	nextPart int
	open     []wire.Record
	used     time.Time

	// repeats is the ledger's column; unsaved until the ledger has it.
	repeats wire.Totals
	unsaved bool
}

func (d *day) addRepeat(r wire.Record) {
	d.repeats = d.repeats.Plus(wire.Totals{Objects: 1, ObjectBytes: uint64(r.Size), Digest: r.Digest})
	d.unsaved = true
}

// day returns a day, read from its manifests where it is not in memory.
func (w *Writer) day(ctx context.Context, instrument string, of wire.Day) (*day, error) {
	key := dayKey{instrument, of}
	if d := w.days[key]; d != nil {
		d.used = time.Now()
		return d, nil
	}
	if err := w.loadWindow(ctx, instrument); err != nil {
		return nil, err
	}
	files, err := read.List(ctx, w.cfg.Store, w.cfg.Site, instrument, of)
	if err != nil {
		return nil, err
	}
	d := &day{dayKey: key, ids: make(map[idHash]bool), nextPart: files.NextPart, used: time.Now()}
	if len(files.InEffect) > 0 {
		for r, err := range read.Records(ctx, w.cfg.Store, w.cfg.Site, instrument, of) {
			if err != nil {
				return nil, err
			}
			withdrawn := r.State == wire.StateWithdrawn
			d.ids[hashID(r.ID)] = withdrawn
			if withdrawn {
				d.addRepeat(r)
			}
		}
	}
	w.days[key] = d
	w.forgetDays()
	return d, nil
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
	for i := len(days) - 1; i >= 0 && w.index.hasRoom(); i-- {
		for r, err := range read.Day(ctx, w.cfg.Store, w.cfg.Site, instrument, days[i]) {
			if err != nil {
				return err
			}
			w.index.add(instrument, r)
			known++
		}
	}
	w.index.setLoaded(instrument)
	w.cfg.Log.Debug("read the manifests of the repeat window", "instrument", instrument,
		"days", len(days), "objects", known, "took", time.Since(begun))
	return nil
}

// forgetDays drops the days that were not used for longest.
func (w *Writer) forgetDays() {
	total := 0
	for _, d := range w.days {
		total += len(d.ids) + 1
	}
	for total > maxIDs {
		var oldest *day
		for _, d := range w.days {
			if len(d.open) == 0 && !d.unsaved && (oldest == nil || d.used.Before(oldest.used)) {
				oldest = d
			}
		}
		if oldest == nil || time.Since(oldest.used) < time.Second {
			return
		}
		total -= len(oldest.ids) + 1
		delete(w.days, oldest.dayKey)
	}
}
