// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/substorm/substorm/internal/wire"
)

const (
	// searchInterval is how often it is looked for what can be made again while the disk has space.
	searchInterval = time.Hour
	// spaceWait is how long days that were let go for space have to free some before more are.
	spaceWait = 10 * time.Minute
)

// reproducibleDay is a day of an Instrument whose objects can be made again, with the bytes that are to go with it.
type reproducibleDay struct {
	instrument string
	day        wire.Day
	bytes      int64
}

// oldestFirst returns the days that go for so many bytes, the oldest first.
func oldestFirst(days []reproducibleDay, remove int64) []reproducibleDay {
	slices.SortFunc(days, func(a, b reproducibleDay) int {
		return cmp.Or(cmp.Compare(a.day, b.day), cmp.Compare(a.instrument, b.instrument))
	})
	for i, d := range days {
		if remove <= 0 {
			return days[:i]
		}
		remove -= d.bytes
	}
	return days
}

// findForSpace tells the disk budget what can be made again, and writes a removal for each day of it that is to go for space.
func (r *Collector) findForSpace(ctx context.Context, now time.Time) error {
	if r.cfg.Budget == nil || r.cfg.Declared == nil || !r.cfg.Budget.State().NearlyFull() && time.Since(r.searched) < searchInterval {
		return nil
	}
	entries, known := r.cfg.Declared()
	if !known {
		return nil
	}
	all, err := r.batches(ctx)
	if err != nil {
		return err
	}
	days, reproducible, err := r.reproducible(ctx, entries, all)
	if err != nil {
		if waitsFor(ctx, err) == nil {
			return err
		}
		r.cfg.Log.Warn("what can be made again cannot be looked for now", "error", err)
		return nil
	}
	r.searched = time.Now()
	var removable int64
	for _, d := range days {
		removable += d.bytes
	}
	r.cfg.Budget.Archived(removable, reproducible)
	is := r.cfg.Budget.State()
	if is.Remove == 0 || slices.ContainsFunc(all, func(b *batch) bool {
		return b.whole != nil && b.whole.ForSpace && now.Sub(b.whole.At).Abs() < spaceWait
	}) {
		return nil
	}
	reason := fmt.Sprintf("expired: it can be made again, and %s of %s of the disk budget were used",
		humanize.IBytes(uint64(is.Used)), humanize.IBytes(uint64(is.Budget())))
	for _, d := range oldestFirst(days, is.Remove) {
		r.cfg.Log.Warn("the disk budget is nearly used up: a day of what can be made again expires", "instrument", d.instrument, "day", d.day, "bytes", d.bytes)
		if err := r.expireLater(ctx, d.instrument, DueDay{Day: d.day, Reason: reason, ForSpace: true}, now); err != nil {
			return err
		}
	}
	return nil
}

// reproducible returns the days of what can be made again that may go now: they are closed, under no legal hold, and nothing was begun
// to be removed of them; and how many bytes there are of all. Errors: those of days.
func (r *Collector) reproducible(ctx context.Context, entries []wire.InstrumentEntry, begun []*batch) (may []reproducibleDay, bytes int64, err error) {
	closedTo := r.cfg.ClosedTo()
	for i := range entries {
		e := &entries[i]
		if e.Retention == nil || !e.Retention.WhenDiskFull {
			continue
		}
		days, err := r.days(ctx, e.Instrument)
		if err != nil {
			return nil, 0, fmt.Errorf("days of instrument %s: %w", e.Instrument, err)
		}
		held := r.cfg.Deleter.Held(e.Instrument) != ""
		for _, d := range days {
			own := d.Bytes - d.ForeignBytes
			bytes += own
			removing := slices.ContainsFunc(begun, func(b *batch) bool { return b.instrument == e.Instrument && b.day == d.Day })
			if own > 0 && d.Day <= closedTo && !held && !removing {
				may = append(may, reproducibleDay{e.Instrument, d.Day, own})
			}
		}
	}
	return may, bytes, nil
}

// spaceLacks says whether a day that was let go for space still goes: the disk budget is nearly used up, and its Instrument still says
// that its objects can be made again.
func (r *Collector) spaceLacks(keep wire.RetentionEntry) bool {
	return keep.WhenDiskFull && r.cfg.Budget.State().Remove > 0
}
