// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// Removed objects count on seven days, and are forgotten then.
func TestRemoved(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 23, 0, 0, 0, time.UTC)
	var r plan.Removed
	for n := range 10 {
		r = r.Plus(now.AddDate(0, 0, n-9), 1+n)
	}
	r = r.Plus(now, 100)
	want := plan.Removed{"2026-11-15": 4, "2026-11-16": 5, "2026-11-17": 6, "2026-11-18": 7, "2026-11-19": 8, "2026-11-20": 9, "2026-11-21": 110}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for after, want := range map[int]int{0: 149, 1: 145, 6: 110, 7: 0, -1: 39} {
		if n := r.Since(now.AddDate(0, 0, after)); n != want {
			t.Errorf("%d days later %d count, want %d", after, n, want)
		}
	}
}

// A day that is not selected any more is looked at where the mirror has objects of it, which may have been retracted; so is its month.
func TestHeldOutsideOfTheWindow(t *testing.T) {
	t.Parallel()
	s := plan.Selection{ObservedFrom: time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)}
	known := plan.Known{Days: map[wire.Day]plan.KnownDay{"2026-11-20": {Tag: "before", Objects: 3}, "2026-11-19": {Tag: "before"}, "2026-10-31": {Objects: 1}}}
	lines := []mirrorindex.DaysLine{
		{Month: "2026-09", Tag: "purge"}, {Month: "2026-10", Tag: "purge"}, {Day: "2026-11-19", Tag: "purge"}, {Day: "2026-11-20", Tag: "purge"}, {Day: "2026-11-27", Tag: "new"},
	}
	var got []string
	for _, line := range s.Changed(lines, known) {
		got = append(got, line.Month+string(line.Day))
	}
	if want := "2026-10 2026-11-20 2026-11-27"; strings.Join(got, " ") != want {
		t.Errorf("looked at are %v, want %s", got, want)
	}
}
