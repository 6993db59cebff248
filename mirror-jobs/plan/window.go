// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// RemovalDays is how many days, with the one on which a run begins, a pull's safety stop counts removals over: another side cannot have a
// share removed by each of many runs.
const RemovalDays = 7

// Removed is how many objects were removed, by the day on which a run did.
type Removed map[wire.Day]int

// Since returns how many were removed on the days that still count.
func (r Removed) Since(now time.Time) (n int) {
	first, last := counts(now)
	for day, objects := range r {
		if day >= first && day <= last {
			n += objects
		}
	}
	return n
}

// Plus returns the days that still count, and some more objects.
func (r Removed) Plus(now time.Time, objects int) Removed {
	first, last := counts(now)
	kept := Removed{last: objects}
	for day, n := range r {
		if day >= first && day <= last {
			kept[day] += n
		}
	}
	return kept
}

// counts are the days that count at a time. One behind it was written by a clock that was wrong.
func counts(now time.Time) (first, last wire.Day) {
	return wire.DayOf(now.AddDate(0, 0, 1-RemovalDays)), wire.DayOf(now)
}
