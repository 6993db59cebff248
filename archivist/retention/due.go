// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/substorm/substorm/internal/wire"
)

// DueDay is a day that is not kept any longer.
type DueDay struct {
	Day wire.Day
	// Reason says why, in words for people.
	Reason string
	// ForSpace: the disk budget is nearly used up.
	ForSpace bool
}

// Due returns those days, which are given in their order, that a retention does not
// keep. A day goes as a whole: by age when all of it is older, and by size the oldest
// first, as many as it takes. One that is not closed stays.
func Due(days []wire.RootDay, keep wire.RetentionEntry, now time.Time, closed func(wire.Day) bool) []DueDay {
	var all int64
	for _, d := range days {
		all += d.Bytes - d.ForeignBytes // what others keep is not ours to remove
	}
	var due []DueDay
	for _, d := range days {
		own := d.Bytes - d.ForeignBytes
		if own == 0 || !closed(d.Day) { // what was purged has no bytes
			continue
		}
		var reason string
		switch {
		case isOld(d.Day, keep, now):
			reason = fmt.Sprintf("expired: kept for %s", time.Duration(keep.MaxAgeMillis)*time.Millisecond)
		case keep.MaxSize > 0 && all > keep.MaxSize:
			reason = fmt.Sprintf("expired: the oldest of more than %s", humanize.IBytes(uint64(keep.MaxSize)))
		default:
			continue
		}
		all -= own
		due = append(due, DueDay{Day: d.Day, Reason: reason})
	}
	return due
}

// DefaultMaxShare is the share, in percent, of a retention that sets none.
const DefaultMaxShare = 10

// TooMuch says whether more is due at once than a retention allows: beside the oldest day
// that is due, more than a share of all bytes. Share is what is due beside it, in percent.
func TooMuch(days []wire.RootDay, due []DueDay, keep wire.RetentionEntry) (share float64, too bool) {
	var all, beside int64
	for _, d := range days {
		own := d.Bytes - d.ForeignBytes
		all += own
		if i := slices.IndexFunc(due, func(is DueDay) bool { return is.Day == d.Day }); i > 0 {
			beside += own
		}
	}
	if all <= 0 {
		return 0, false
	}
	share = 100 * float64(beside) / float64(all)
	return share, share > float64(cmp.Or(keep.MaxShare, DefaultMaxShare))
}

func isOld(day wire.Day, keep wire.RetentionEntry, now time.Time) bool {
	start, err := day.Start()
	return err == nil && keep.MaxAgeMillis > 0 && now.Sub(start.AddDate(0, 0, 1)) >= time.Duration(keep.MaxAgeMillis)*time.Millisecond
}

// stillDue says whether a day that was due still is: its Instrument may keep more by
// now. The days were closed then.
func stillDue(day wire.Day, days []wire.RootDay, keep wire.RetentionEntry, now time.Time) bool {
	due := Due(days, keep, now, func(wire.Day) bool { return true })
	return slices.ContainsFunc(due, func(d DueDay) bool { return d.Day == day })
}
