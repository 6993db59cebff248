// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// rateOver is what a rate is the average of.
const rateOver = time.Minute

// Sample is how many bytes had been moved at a time.
type Sample struct {
	At    time.Time
	Bytes int64
}

// Recent drops samples that no rate needs any more.
func Recent(all []Sample) []Sample {
	if len(all) == 0 {
		return all
	}
	last := all[len(all)-1].At
	return slices.DeleteFunc(all, func(s Sample) bool { return last.Sub(s.At) > rateOver })
}

// BytesPerSecond is the average over some samples; 0 if it is unknown.
func BytesPerSecond(all []Sample) int64 {
	if len(all) < 2 {
		return 0
	}
	first, last := all[0], all[len(all)-1]
	took := last.At.Sub(first.At).Seconds()
	if took <= 0 {
		return 0
	}
	return int64(float64(last.Bytes-first.Bytes) / took)
}

// lastEnd bounds when a run is said to end: anything later is unpredictable.
const lastEnd = 366 * 24 * time.Hour

// Ends is when some bytes are moved at a rate; zero if that is unknown, or in more than a year.
func Ends(now time.Time, bytes, perSecond int64) time.Time {
	if perSecond <= 0 || bytes/perSecond > int64(lastEnd/time.Second) {
		return time.Time{}
	}
	return now.Add(time.Duration(bytes/perSecond) * time.Second).Truncate(time.Second)
}

// Rate is the limit in force at a time, in bytes a second: the limit of the first window that holds the time, or else the general one; 0:
// no limit.
func Rate(l wire.MirrorLimits, now time.Time) int64 {
	for _, r := range l.Rates {
		if within(r.MirrorWindow, local(l, now)) {
			return r.BytesPerSecond
		}
	}
	return l.BytesPerSecond
}

// Maintained says whether nothing may be moved at a time, and until when.
func Maintained(l wire.MirrorLimits, now time.Time) (until time.Time, is bool) {
	at := local(l, now)
	for _, w := range l.Maintenance {
		if within(w, at) {
			return endOf(w, at), true
		}
	}
	return time.Time{}, false
}

// local is a time in the limits' time zone, or in UTC if that zone is unknown.
func local(l wire.MirrorLimits, now time.Time) time.Time {
	zone, err := time.LoadLocation(l.TimeZone)
	if err != nil {
		zone = time.UTC
	}
	return now.In(zone)
}

// within says whether a window holds a time of its time zone. A window that goes over midnight
// belongs to the day on which it begins.
func within(w wire.MirrorWindow, at time.Time) bool {
	from, to := minutes(w.From), minutes(w.To)
	is := at.Hour()*60 + at.Minute()
	on := func(day time.Time) bool { return len(w.Days) == 0 || slices.Contains(w.Days, day.Weekday().String()) }
	if from < to {
		return on(at) && is >= from && is < to
	}
	return on(at) && is >= from || on(at.AddDate(0, 0, -1)) && is < to
}

// endOf is when a window that holds a time ends.
func endOf(w wire.MirrorWindow, at time.Time) time.Time {
	to := minutes(w.To)
	end := time.Date(at.Year(), at.Month(), at.Day(), to/60, to%60, 0, 0, at.Location())
	if !end.After(at) {
		end = time.Date(at.Year(), at.Month(), at.Day()+1, to/60, to%60, 0, 0, at.Location())
	}
	return end
}

// minutes of a time of day, as 18:00.
func minutes(text string) int {
	t, err := time.Parse("15:04", text)
	if err != nil {
		return 0
	}
	return t.Hour()*60 + t.Minute()
}
