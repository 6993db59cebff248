// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
)

// Selection is what a mirror wants of the other side.
type Selection struct {
	// Wants says which instruments; nil: all.
	Wants func(instrument string) bool
	// ObservedFrom and ObservedTo bound the observation time, or the time of receipt if no observation time is known; the zero time is no
	// bound.
	ObservedFrom, ObservedTo time.Time
	// selectsNothing is set by ForInstrument.
	selectsNothing bool
}

// ForInstrument returns the selection of one instrument's objects. If the instrument is not selected, that is none: nothing more is fetched, and the
// objects that the mirror holds are removed as those of the others are.
func (s Selection) ForInstrument(instrument string) Selection {
	s.selectsNothing = !s.wants(instrument)
	return s
}

// SelectsAll says whether all objects of an instrument are wanted.
func (s Selection) SelectsAll() bool {
	return !s.selectsNothing && s.ObservedFrom.IsZero() && s.ObservedTo.IsZero()
}

// Known is what a mirror has seen of one instrument and acted upon in full.
type Known struct {
	// Selects is the digest of the selection and policy under which the tags were noted.
	Selects string `json:"selects,omitempty"`
	// Months are their tags, by name (yyyy-mm).
	Months map[string]string     `json:"months,omitempty"`
	Days   map[wire.Day]KnownDay `json:"days,omitempty"`
}

// KnownDay is a day of a Known. If it has no tag, something is left to do.
type KnownDay struct {
	Tag string `json:"tag,omitempty"`
	// Objects that the mirror holds of the day, and their bytes.
	Objects int   `json:"objects,omitempty"`
	Bytes   int64 `json:"bytes,omitempty"`
}

// Forget forgets the tags, so that all days are looked at again.
func (k Known) Forget() {
	clear(k.Months)
	for day, was := range k.Days {
		was.Tag = ""
		k.Days[day] = was
	}
}

// ForgetDay forgets the tags of one day, so that it is looked at again.
func (k Known) ForgetDay(day wire.Day) {
	delete(k.Months, mirrorindex.MonthOf(day))
	known := k.Days[day]
	known.Tag = ""
	k.Days[day] = known
}

// Held adds up what a mirror holds.
func (k Known) Held() (objects int, bytes int64) {
	for _, d := range k.Days {
		objects += d.Objects
		bytes += d.Bytes
	}
	return objects, bytes
}

// Instruments returns those of a root that changed since their tags were known: such as are selected, and such as a mirror holds objects of.
func (s Selection) Instruments(root mirrorindex.Root, holds func(instrument string) bool, known func(instrument string) string) (changed []mirrorindex.RootLine) {
	for _, line := range root.Instruments {
		if (s.wants(line.Instrument) || holds(line.Instrument)) && known(line.Instrument) != line.Tag {
			changed = append(changed, line)
		}
	}
	return changed
}

// UnlistedDays are the days with objects in the mirror that an answer does not list. Month is the month that was asked for; empty: all.
func UnlistedDays(lines []mirrorindex.DaysLine, known Known, month string) map[wire.Day]KnownDay {
	listed := make(map[string]bool, len(lines))
	for _, line := range lines {
		listed[line.Month+string(line.Day)] = true
	}
	unlisted := map[wire.Day]KnownDay{}
	for day, entry := range known.Days {
		of := mirrorindex.MonthOf(day)
		if entry.Objects > 0 && !listed[string(day)] && (month == of || month == "" && !listed[of]) {
			unlisted[day] = entry
		}
	}
	return unlisted
}

func (s Selection) wants(instrument string) bool {
	return s.Wants == nil || s.Wants(instrument)
}

// Changed returns the months or days among lines that a mirror must look at. Those where it holds objects that are not selected any more
// are included, since these may have been retracted or purged.
func (s Selection) Changed(lines []mirrorindex.DaysLine, known Known) (changed []mirrorindex.DaysLine) {
	holds := map[string]bool{}
	if !s.SelectsAll() {
		for day, entry := range known.Days {
			if entry.Objects > 0 {
				holds[string(day)], holds[mirrorindex.MonthOf(day)] = true, true
			}
		}
	}
	for _, line := range lines {
		knownTag := known.Days[line.Day].Tag
		if line.Month != "" {
			knownTag = known.Months[line.Month]
		}
		if knownTag != line.Tag && (holds[line.Month+string(line.Day)] || s.may(line)) {
			changed = append(changed, line)
		}
	}
	return changed
}

// may says whether a month or day may hold anything that is wanted.
func (s Selection) may(line mirrorindex.DaysLine) bool {
	if s.selectsNothing {
		return false
	}
	from, to, err := bounds(line)
	if err != nil {
		return true // the other side knows
	}
	if line.ObservedFrom != nil && line.ObservedFrom.Before(from) {
		from = *line.ObservedFrom
	}
	if line.ObservedTo != nil && line.ObservedTo.After(to) {
		to = *line.ObservedTo
	}
	return (s.ObservedTo.IsZero() || from.Before(s.ObservedTo)) && !to.Before(s.ObservedFrom)
}

func bounds(line mirrorindex.DaysLine) (from, to time.Time, err error) {
	if line.Month != "" {
		from, err = time.Parse("2006-01", line.Month)
		return from, from.AddDate(0, 1, 0), err
	}
	from, err = line.Day.Start()
	return from, from.AddDate(0, 0, 1), err
}

// Selects says whether an object is wanted.
func (s Selection) Selects(e *mirrorindex.Entry) bool {
	from, to := e.Observed()
	return !s.selectsNothing && (s.ObservedTo.IsZero() || from.Before(s.ObservedTo)) && !to.Before(s.ObservedFrom)
}
