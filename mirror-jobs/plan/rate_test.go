// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// Windows are of a time zone, may go over midnight, and follow its clocks.
func TestTimetable(t *testing.T) {
	t.Parallel()
	l := wire.MirrorLimits{
		BytesPerSecond: 1, TimeZone: "Europe/Oslo",
		Rates: []wire.MirrorRate{
			{MirrorWindow: wire.MirrorWindow{Days: []string{"Saturday", "Sunday"}, From: "00:00", To: "00:00"}, BytesPerSecond: 100},
			{MirrorWindow: wire.MirrorWindow{From: "18:00", To: "06:00"}, BytesPerSecond: 10},
		},
		Maintenance: []wire.MirrorWindow{{Days: []string{"Monday"}, From: "23:30", To: "00:30"}},
	}
	for _, c := range []struct {
		at    string
		rate  int64
		until string
	}{
		{"2026-11-25T12:00:00Z", 1, ""},   // a Wednesday
		{"2026-11-25T16:59:00Z", 1, ""},   // 17:59 in Oslo
		{"2026-11-25T17:00:00Z", 10, ""},  // 18:00
		{"2026-11-26T04:59:00Z", 10, ""},  // 05:59
		{"2026-11-26T05:00:00Z", 1, ""},   // 06:00
		{"2026-11-28T12:00:00Z", 100, ""}, // a Saturday
		{"2026-07-01T16:00:00Z", 10, ""},  // 18:00 in summer
		{"2026-11-30T22:29:00Z", 10, ""},
		{"2026-11-30T22:30:00Z", 10, "2026-11-30T23:30:00Z"}, // Monday, 23:30
		{"2026-11-30T23:29:00Z", 10, "2026-11-30T23:30:00Z"}, // Tuesday, 00:29
		{"2026-12-01T22:45:00Z", 10, ""},                     // Tuesday
	} {
		now, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		if got := plan.Rate(l, now); got != c.rate {
			t.Errorf("%s: %d B/s, want %d", c.at, got, c.rate)
		}
		until, is := plan.Maintained(l, now)
		if is != (c.until != "") || is && until.UTC().Format(time.RFC3339) != c.until {
			t.Errorf("%s: maintenance %v until %v, want %q", c.at, is, until, c.until)
		}
	}
	if got := plan.Rate(wire.MirrorLimits{BytesPerSecond: 7, TimeZone: "Nowhere/None"}, time.Now()); got != 7 {
		t.Errorf("an unknown time zone: %d", got)
	}
}

func TestRates(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var all []plan.Sample
	for i := range 100 {
		all = plan.Recent(append(all, plan.Sample{At: begin.Add(time.Duration(i) * 5 * time.Second), Bytes: int64(i) * 50}))
	}
	if got := plan.BytesPerSecond(all); got != 10 || len(all) != 13 {
		t.Errorf("%d B/s of %d samples", got, len(all))
	}
	if got := plan.BytesPerSecond(all[:1]); got != 0 {
		t.Errorf("%d B/s of one sample", got)
	}
}

// The end of a run that moves next to nothing is unknown.
func TestEnds(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		bytes, perSecond int64
		want             time.Time
	}{
		{100, 10, now.Add(10 * time.Second)}, {0, 10, now}, {100, 0, time.Time{}}, {1 << 40, 17, time.Time{}},
	} {
		if got := plan.Ends(now, c.bytes, c.perSecond); !got.Equal(c.want) {
			t.Errorf("%d bytes at %d: %v", c.bytes, c.perSecond, got)
		}
	}
}
