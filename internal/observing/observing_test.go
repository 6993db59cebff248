// SPDX-License-Identifier: Apache-2.0

package observing

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
)

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err.Error())
	}
	return t
}

// TestSunElevation: by what is true by definition. At an equinox the sun stands at the
// zenith of the equator at noon of true solar time; at a solstice it stands at noon as
// high as 90 degrees less latitude plus or minus the obliquity; on the pole its elevation
// is its declination all day.
func TestSunElevation(t *testing.T) {
	highest := func(day string, lat, lon float64) (elevation float64) {
		elevation = -90
		for m := range 24 * 60 {
			elevation = math.Max(elevation, SunElevation(at(day+"T00:00:00Z").Add(time.Duration(m)*time.Minute), lat, lon))
		}
		return elevation
	}
	for name, c := range map[string]struct{ got, want, within float64 }{
		"equinox at the equator": {highest("2026-03-20", 0, 0), 90, 0.4},
		"summer at 69.58 north":  {highest("2026-06-21", 69.58, 19.23), 90 - 69.58 + 23.436, 0.05},
		"winter at 69.58 north":  {highest("2026-12-21", 69.58, 19.23), 90 - 69.58 - 23.436, 0.05},
		"summer at the pole":     {SunElevation(at("2026-06-21T08:25:00Z"), 90, 0), 23.436, 0.02},
		"equinox at the pole":    {SunElevation(at("2026-03-20T14:46:00Z"), 90, 0), 0, 0.02},
		"winter at the pole":     {SunElevation(at("2026-12-21T20:50:00Z"), -90, 0), 23.436, 0.02},
	} {
		if math.Abs(c.got-c.want) > c.within {
			t.Errorf("%s: %.3f degrees, want %.3f", name, c.got, c.want)
		}
	}
	// The equation of time: on 3 November the sun is highest some 16.4 minutes before noon.
	noon := time.Time{}
	for m, best := 0, -90.0; m < 24*60; m++ {
		t := at("2026-11-03T00:00:00Z").Add(time.Duration(m) * time.Minute)
		if e := SunElevation(t, 51.48, 0); e > best {
			noon, best = t, e
		}
	}
	if early := at("2026-11-03T12:00:00Z").Sub(noon); early < 15*time.Minute || early > 18*time.Minute {
		t.Errorf("noon at Greenwich was at %s", noon)
	}
}

func TestDue(t *testing.T) {
	day, next := at("2026-11-21T00:00:00Z"), at("2026-11-22T00:00:00Z")
	span := func(from, to string) wire.TimeSpan {
		return wire.TimeSpan{From: at("2026-11-" + from + ":00Z"), To: at("2026-11-" + to + ":00Z")}
	}
	for name, c := range map[string]struct {
		entry *wire.ObservesEntry
		grace time.Duration
		want  []wire.TimeSpan
	}{
		"always":            {nil, time.Minute, []wire.TimeSpan{{From: day, To: next}}},
		"by day":            {&wire.ObservesEntry{Mode: "Daily", From: "06:00", To: "18:30"}, 0, []wire.TimeSpan{span("21T06:00", "21T18:30")}},
		"by night":          {&wire.ObservesEntry{Mode: "Daily", From: "18:00", To: "06:00"}, 2 * time.Minute, []wire.TimeSpan{span("21T00:00", "21T05:58"), span("21T18:02", "22T00:00")}},
		"up to midnight":    {&wire.ObservesEntry{Mode: "Daily", From: "20:00", To: "00:00"}, 2 * time.Minute, []wire.TimeSpan{span("21T20:02", "21T23:58")}},
		"in polar night":    {&wire.ObservesEntry{Mode: "SunBelow", SunElevationDegrees: "5", Latitude: "78.15", Longitude: "16.04"}, time.Minute, []wire.TimeSpan{{From: day, To: next}}},
		"never that dark":   {&wire.ObservesEntry{Mode: "SunBelow", SunElevationDegrees: "-89", Latitude: "78.15", Longitude: "16.04"}, time.Minute, nil},
		"grace is too long": {&wire.ObservesEntry{Mode: "Daily", From: "12:00", To: "12:10"}, 5 * time.Minute, nil},
	} {
		s, err := Of(c.entry)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, s.Due(day, next, c.grace)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	// A camera at Gillam: dark from afternoon to morning, local time.
	s, err := Of(&wire.ObservesEntry{Mode: "SunBelow", SunElevationDegrees: "-10", Latitude: "56.38", Longitude: "-94.64"})
	if err != nil {
		t.Fatal(err)
	}
	due := s.Due(day, next, 0)
	if len(due) != 2 || !due[0].From.Equal(day) || due[0].To.Hour() != 12 || due[1].From.Hour() != 23 {
		t.Errorf("at Gillam: %v", due)
	}
	for _, d := range due {
		if !s.At(d.From.Add(time.Minute)) || !s.At(d.To.Add(-time.Minute)) {
			t.Errorf("it does not observe within %v", d)
		}
	}
}

// An instrument that begins to observe has as long for its first data as for any other.
func TestRests(t *testing.T) {
	s, err := Of(&wire.ObservesEntry{Mode: "Daily", From: "06:00", To: "18:00"})
	if err != nil {
		t.Fatal(err)
	}
	due := Due(time.Minute)
	if due != 122*time.Second {
		t.Errorf("data of a minute's cadence is overdue after %v", due)
	}
	yesterday, today := at("2026-11-20T18:00:00Z").Add(due), at("2026-11-21T06:01:00Z").Add(due)
	for now, c := range map[string]struct {
		overdueFrom time.Time
		want        bool
	}{
		"2026-11-21T05:59:00Z": {yesterday, true}, "2026-11-21T06:02:01Z": {yesterday, true}, "2026-11-21T06:02:03Z": {yesterday, false},
		"2026-11-21T06:02:00Z": {today, false}, "2026-11-21T17:59:00Z": {yesterday, false}, "2026-11-21T18:00:00Z": {today, true},
	} {
		if got := s.Rests(at(now), c.overdueFrom, due); got != c.want {
			t.Errorf("at %s, overdue from %s: rests %v", now, c.overdueFrom, got)
		}
	}
	if (Schedule{}).Rests(today, yesterday, due) {
		t.Error("an instrument that always observes rests")
	}
}

func TestMalformedSchedules(t *testing.T) {
	for _, e := range []wire.ObservesEntry{{}, {Mode: "Weekly"}, {Mode: "Daily", From: "6", To: "18:00"}, {Mode: "SunBelow"},
		{Mode: "SunBelow", SunElevationDegrees: "NaN", Latitude: "1", Longitude: "2"}, {Mode: "SunBelow", SunElevationDegrees: "-10", Latitude: "x", Longitude: "2"}} {
		if _, err := Of(&e); err == nil {
			t.Errorf("%+v is taken", e)
		}
	}
}
