// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/mirror-jobs/plan"
)

// What was removed counts on seven days, and is forgotten then.
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
