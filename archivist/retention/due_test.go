// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
)

func TestDue(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	day := (24 * time.Hour).Milliseconds()
	days := []wire.RootDay{{Day: "2015-03-17", Bytes: 5}, {Day: "2026-11-10", Bytes: 900, ForeignBytes: 800}, {Day: "2026-11-11"},
		{Day: "2026-11-12", Bytes: 9000, ForeignBytes: 9000}, {Day: "2026-11-18", Bytes: 100},
		{Day: "2026-11-19", Bytes: 100}, {Day: "2026-11-20", Bytes: 100}, {Day: "2026-11-21", Bytes: 100}}
	closed := func(d wire.Day) bool { return d <= "2026-11-19" }
	for name, c := range map[string]struct {
		keep   wire.RetentionEntry
		closed func(wire.Day) bool
		want   []wire.Day
	}{
		"nothing is said":                     {wire.RetentionEntry{}, closed, nil},
		"by age":                              {wire.RetentionEntry{MaxAgeMillis: 9 * day}, closed, []wire.Day{"2015-03-17", "2026-11-10"}},
		"a day goes when all of it is older":  {wire.RetentionEntry{MaxAgeMillis: 2*day + day/2}, closed, []wire.Day{"2015-03-17", "2026-11-10", "2026-11-18"}},
		"and an hour before it stays":         {wire.RetentionEntry{MaxAgeMillis: 2*day + day/2 + 1}, closed, []wire.Day{"2015-03-17", "2026-11-10"}},
		"no day that is not closed":           {wire.RetentionEntry{MaxAgeMillis: 1}, closed, []wire.Day{"2015-03-17", "2026-11-10", "2026-11-18", "2026-11-19"}},
		"none is closed":                      {wire.RetentionEntry{MaxAgeMillis: 1, MaxSize: 1}, func(wire.Day) bool { return false }, nil},
		"by size, the oldest first":           {wire.RetentionEntry{MaxSize: 400}, closed, []wire.Day{"2015-03-17", "2026-11-10"}},
		"exactly as much":                     {wire.RetentionEntry{MaxSize: 505}, closed, nil},
		"more than the closed days":           {wire.RetentionEntry{MaxSize: 1}, closed, []wire.Day{"2015-03-17", "2026-11-10", "2026-11-18", "2026-11-19"}},
		"what goes by age counts by size too": {wire.RetentionEntry{MaxAgeMillis: 9 * day, MaxSize: 400}, closed, []wire.Day{"2015-03-17", "2026-11-10"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []wire.Day
			for _, d := range Due(days, c.keep, now, c.closed) {
				got = append(got, d.Day)
				if d.Reason == "" {
					t.Errorf("%s goes for no reason", d.Day)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTooMuch(t *testing.T) {
	var days []wire.RootDay
	for i := range 20 {
		days = append(days, wire.RootDay{Day: wire.DayOf(time.Date(2026, 11, 1+i, 0, 0, 0, 0, time.UTC)), Bytes: 150, ForeignBytes: 50})
	}
	due := func(n int) (all []DueDay) {
		for _, d := range days[:n] {
			all = append(all, DueDay{Day: d.Day, Reason: "old"})
		}
		return all
	}
	for name, c := range map[string]struct {
		due   int
		share int
		want  bool
	}{
		"nothing":                           {0, 0, false},
		"one day, as each day":              {1, 1, false},
		"10 % beside it":                    {3, 0, false},
		"and a day more":                    {4, 0, true},
		"all":                               {20, 0, true},
		"all, where the person lets it go":  {20, 100, false},
		"half":                              {10, 45, false},
		"half, where a bit less is allowed": {10, 44, true},
	} {
		if share, got := TooMuch(days, due(c.due), wire.RetentionEntry{MaxShare: c.share}); got != c.want {
			t.Errorf("%s: %t (%.1f %%), want %t", name, got, share, c.want)
		}
	}
	if _, too := TooMuch(days[:1], due(1), wire.RetentionEntry{}); too {
		t.Error("the only day does not expire")
	}
}
