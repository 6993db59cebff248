// SPDX-License-Identifier: Apache-2.0

// Package observing says when an instrument observes: data is due then, and at no other
// time.
package observing

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Schedule says when data is due. The zero value means always.
type Schedule struct {
	mode      string
	elevation float64
	lat, lon  float64 // degrees
	from, to  time.Duration
}

// Of returns the schedule of an instrument; entry may be nil. Errors: wire.ErrMalformed.
func Of(entry *wire.ObservesEntry) (Schedule, error) {
	if entry == nil {
		return Schedule{}, nil
	}
	s := Schedule{mode: entry.Mode}
	var err error
	read := func(name, text string) float64 {
		n, wrong := strconv.ParseFloat(text, 64)
		if wrong != nil || math.IsNaN(n) || math.Abs(n) > 180 {
			err = fmt.Errorf("observes: %s %q is not a number of degrees: %w", name, text, wire.ErrMalformed)
		}
		return n
	}
	clock := func(text string) time.Duration {
		t, wrong := time.Parse("15:04", text)
		if wrong != nil {
			err = fmt.Errorf("observes: %q is not a time of day: %w", text, wire.ErrMalformed)
		}
		return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute
	}
	switch entry.Mode {
	case wire.ObservesSunBelow:
		s.elevation = read("elevation", entry.SunElevationDegrees)
		s.lat, s.lon = read("latitude", entry.Latitude), read("longitude", entry.Longitude)
	case wire.ObservesDaily:
		s.from, s.to = clock(entry.From), clock(entry.To)
	default:
		err = fmt.Errorf("observes: mode %q: %w", entry.Mode, wire.ErrMalformed)
	}
	if err != nil {
		return Schedule{}, err
	}
	return s, nil
}

// Always says whether data is due at any time.
func (s Schedule) Always() bool { return s.mode == "" }

// At says whether data is due at an instant.
func (s Schedule) At(t time.Time) bool {
	switch s.mode {
	case wire.ObservesSunBelow:
		return SunElevation(t, s.lat, s.lon) < s.elevation
	case wire.ObservesDaily:
		t = t.UTC()
		at := t.Sub(time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC))
		if s.from < s.to {
			return s.from <= at && at < s.to
		}
		return s.from <= at || at < s.to
	default:
		return true
	}
}

// step is how finely a time is looked through for a beginning or an end. The sun goes
// four minutes of arc in it at most; one that stays near the elevation for less than
// that is not seen.
const step = time.Minute

// Due returns the times, ascending, in which data is due from an instant on and before
// another. Grace is what is taken off at the beginning and the end of each, where the
// schedule begins or ends it: an instrument needs a moment.
func (s Schedule) Due(from, to time.Time, grace time.Duration) []wire.TimeSpan {
	if s.Always() {
		if !from.Before(to) {
			return nil
		}
		return []wire.TimeSpan{{From: from, To: to}}
	}
	var spans []wire.TimeSpan
	begin := time.Time{}
	// It is looked at from so long before that a beginning's grace is known.
	start := from.Add(-grace - step).Truncate(step)
	end := to.Add(grace + step)
	for t := start; ; t = t.Add(step) {
		due := t.Before(end) && s.At(t)
		switch {
		case due && begin.IsZero():
			if begin = t; t.After(start) {
				begin = t.Add(grace)
			}
		case !due && !begin.IsZero():
			ends := t
			if t.Before(end) {
				ends = t.Add(-grace)
			}
			spans = appendWithin(spans, wire.TimeSpan{From: begin, To: ends}, from, to)
			begin = time.Time{}
		}
		if !t.Before(end) {
			return spans
		}
	}
}

// appendWithin appends what of a span lies within two instants.
func appendWithin(spans []wire.TimeSpan, s wire.TimeSpan, from, to time.Time) []wire.TimeSpan {
	if s.From.Before(from) {
		s.From = from
	}
	if s.To.After(to) {
		s.To = to
	}
	if !s.From.Before(s.To) {
		return spans
	}
	return append(spans, s)
}
