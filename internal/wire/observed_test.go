// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"testing"
	"time"
)

// A time of observation is believed within bounds around the receipt; outside of them, the receipt counts.
func TestObservedIsBelieved(t *testing.T) {
	t.Parallel()
	received := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) *time.Time { t := received.Add(d); return &t }
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		from, to *time.Time
		writer   string
		told     bool
	}{
		"nothing is told":             {nil, nil, "north-0", false},
		"a minute before":             {at(-2 * time.Minute), at(-time.Minute), "north-0", true},
		"366 days before":             {at(-366 * day), at(-365 * day), "north-0", true},
		"longer before":               {at(-366*day - 1), at(-365 * day), "north-0", false},
		"1024 weeks before":           {at(-7168 * day), at(-7168 * day), "north-0", false},
		"from the epoch until now":    {new(time.Unix(0, 0)), at(0), "north-0", false},
		"24 hours after":              {at(0), at(day), "north-0", true},
		"longer after":                {at(0), at(day + 1), "north-0", false},
		"the end alone":               {nil, at(-time.Hour), "north-0", true},
		"the end alone, too long":     {nil, at(-400 * day), "north-0", false},
		"the begin alone, too long":   {at(-400 * day), nil, "north-0", false},
		"of a tree that was imported": {at(-7168 * day), at(-7168 * day), ImportWriter, true},
		"imported, of 1857":           {new(time.Date(1857, 1, 1, 0, 0, 0, 0, time.UTC)), nil, ImportWriter, true},
		"imported, of 1601":           {new(time.Date(1601, 1, 1, 0, 0, 0, 0, time.UTC)), nil, ImportWriter, false},
		"imported, of 9999":           {nil, new(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)), ImportWriter, false},
	} {
		r := Record{ObservedFrom: c.from, ObservedTo: c.to, ReceivedAt: received, Gateway: c.writer}
		from, to, told := r.ObservedSpan()
		if told != c.told {
			t.Errorf("%s: told is %v", name, told)
		}
		if !told && (!from.Equal(received) || !to.Equal(received) || !r.ObservedEnd().Equal(received) || !r.When().Equal(received)) {
			t.Errorf("%s: %v to %v, ends at %v, is of %v", name, from, to, r.ObservedEnd(), r.When())
		}
		first, _, doubted := r.Told()
		if (first != nil) != told || (doubted != nil) != (!told && (c.from != nil || c.to != nil)) {
			t.Errorf("%s: told %v, doubted %v", name, first, doubted)
		}
	}
}

// A name that tells a time which is not believed is marked, and its time is kept.
func TestSetObservedDoubts(t *testing.T) {
	t.Parallel()
	received := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	r := Record{ReceivedAt: received, TimeSource: TimeSourceReceived}
	r.SetObserved(time.Unix(0, 0).UTC(), time.Minute)
	if r.ObservedFrom != nil || r.TimeSource != TimeSourceReceived || r.Doubted == nil || r.Doubted.From.Year() != 1970 {
		t.Errorf("%+v", r)
	}
	// The name of a day that begins within a day from now, as in local time east of Greenwich.
	r = Record{ReceivedAt: received, TimeSource: TimeSourceReceived}
	r.SetObserved(received.Add(12*time.Hour), 24*time.Hour)
	if from, to, told := r.ObservedSpan(); !told || r.Doubted != nil || !from.Equal(received.Add(12*time.Hour)) || !to.Equal(received.Add(24*time.Hour)) {
		t.Errorf("%+v", r)
	}
}

// Imported names are believed of all years up to now but those of zeros and limits of date types.
func TestSetImported(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for year, want := range map[int]bool{1: false, 1601: false, 1857: true, 1970: true, 2026: true, 2027: false, 9999: false} {
		r := Record{ReceivedAt: time.Unix(0, 0).UTC(), TimeSource: TimeSourceReceived, Gateway: ImportWriter}
		from := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		r.SetImported(from, 24*time.Hour, now)
		if (r.ObservedFrom != nil) != want || (r.Doubted == nil) != want || (r.TimeSource == TimeSourceName) != want {
			t.Errorf("%d: %+v", year, r)
		}
		if !want && !r.Doubted.From.Equal(from) {
			t.Errorf("%d: doubted is %+v", year, r.Doubted)
		}
	}
}
