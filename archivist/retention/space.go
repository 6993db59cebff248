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

// spaceDay is a day that may go for space, with the bytes that are to go with it: its objects can be made again, or partners have them.
type spaceDay struct {
	instrument string
	day        wire.Day
	bytes      int64
}

// oldestFirst returns the days that go for so many bytes, the oldest first.
func oldestFirst(days []spaceDay, remove int64) []spaceDay {
	sortOldest(days)
	for i, d := range days {
		if remove <= 0 {
			return days[:i]
		}
		remove -= d.bytes
	}
	return days
}

func sortOldest(days []spaceDay) {
	slices.SortFunc(days, func(a, b spaceDay) int {
		return cmp.Or(cmp.Compare(a.day, b.day), cmp.Compare(a.instrument, b.instrument))
	})
}

// findForSpace reports to the disk budget what can be made again and what partners have, and writes a removal for each such day that is to
// go for space.
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
	again, reproducible, err := r.mayGo(ctx, entries, all, func(keep *wire.RetentionEntry) bool { return keep.WhenDiskFull })
	var copied []spaceDay
	if err == nil {
		copied, err = r.copied(ctx, entries, all, now)
	}
	if err != nil {
		if waitsFor(ctx, err) == nil {
			return err
		}
		r.cfg.Log.Warn("cannot look for days to remove for space now", "error", err)
		return nil
	}
	r.searched = time.Now()
	r.cfg.Budget.Archived(bytesOf(again)+bytesOf(copied), reproducible)
	state := r.cfg.Budget.State()
	if state.Remove == 0 || slices.ContainsFunc(all, func(b *batch) bool {
		return b.whole != nil && b.whole.ForSpace && now.Sub(b.whole.At).Abs() < spaceWait
	}) {
		return nil
	}
	used := fmt.Sprintf("%s of %s of the disk budget were used", humanize.IBytes(uint64(state.Used)), humanize.IBytes(uint64(state.Budget())))
	if err := r.expireForSpace(ctx, oldestFirst(again, state.Remove), "it can be made again, and "+used, now); err != nil {
		return err
	}
	return r.expireForSpace(ctx, oldestFirst(copied, state.Remove-bytesOf(again)), "partners have it, and "+used, now)
}

// bytesOf adds up what goes with some days.
func bytesOf(days []spaceDay) (bytes int64) {
	for _, d := range days {
		bytes += d.bytes
	}
	return bytes
}

// expireForSpace writes a removal for each of some days.
func (r *Collector) expireForSpace(ctx context.Context, days []spaceDay, why string, now time.Time) error {
	for _, d := range days {
		r.cfg.Log.Warn("the disk budget is nearly used up: a day expires", "instrument", d.instrument, "day", d.day, "bytes", d.bytes, "reason", why)
		if err := r.expireLater(ctx, d.instrument, DueDay{Day: d.day, Reason: "expired: " + why, ForSpace: true}, now); err != nil {
			return err
		}
	}
	return nil
}

// copied returns the days that may go because partners have all of them, the oldest first, and no more than the budget is to get back: each
// look reads the manifest of a day. One that partners lack some of is not looked at again for a while.
func (r *Collector) copied(ctx context.Context, entries []wire.InstrumentEntry, begun []*batch, now time.Time) (days []spaceDay, err error) {
	state := r.cfg.Budget.State()
	if !state.NearlyFull() {
		return nil, nil
	}
	may, _, err := r.mayGo(ctx, entries, begun, func(keep *wire.RetentionEntry) bool { return keep.WhenMirrored && !keep.WhenDiskFull })
	if err != nil {
		return nil, err
	}
	sortOldest(may)
	for lack := max(state.Excess(), 1); len(may) > 0 && lack > 0; may = may[1:] {
		d := may[0]
		key := wire.Removal{Instrument: d.instrument, Day: d.day}.Key()
		if now.Before(r.lacking[key]) {
			continue
		}
		delete(r.lacking, key)
		held, kept, err := r.isFullyMirrored(ctx, &batch{instrument: d.instrument, day: d.day}, now)
		if err != nil {
			return nil, err
		}
		if !held {
			r.cfg.Metrics.kept.WithLabelValues(kept).Inc()
			if kept == keptUncompared {
				r.cfg.Log.Warn("the disk budget is nearly used up, and a day that partners have in full stays: none of them has compared its copies lately",
					"instrument", d.instrument, "day", d.day, "within", comparedWithin)
			}
			r.lacking[key] = now.Add(r.cfg.ExpireInterval / owedLooks)
			continue
		}
		days = append(days, d)
		lack -= d.bytes
	}
	return days, nil
}

// mayGo returns the days of the Instruments that say so which may go now: they are closed, under no legal hold, and nothing was begun
// to be removed of them; and how many bytes there are of all. Errors: those of days.
func (r *Collector) mayGo(ctx context.Context, entries []wire.InstrumentEntry, begun []*batch, says func(*wire.RetentionEntry) bool) (may []spaceDay, bytes int64, err error) {
	closedTo := r.cfg.ClosedTo()
	for i := range entries {
		e := &entries[i]
		if e.Retention == nil || !says(e.Retention) {
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
				may = append(may, spaceDay{e.Instrument, d.Day, own})
			}
		}
	}
	return may, bytes, nil
}

// spaceLacks says whether a day that was let go for space still goes: the disk budget is nearly used up, and its Instrument still says
// that its objects can be made again, or that they may go where partners have them, and they have. Errors: those of shares.
func (r *Collector) spaceLacks(ctx context.Context, b *batch, keep wire.RetentionEntry, now time.Time) (bool, error) {
	switch {
	case r.cfg.Budget.State().Remove == 0:
		return false, nil
	case keep.WhenDiskFull:
		return true, nil
	case keep.WhenMirrored:
		held, _, err := r.isFullyMirrored(ctx, b, now)
		return held, err
	default:
		return false, nil
	}
}
