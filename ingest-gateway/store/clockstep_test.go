// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"
	"time"
)

// A clock that is set forward and back again: receive times follow it, and those in between bear by
// how much it had been set.
func TestClockIsSetForward(t *testing.T) {
	var c clock
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, moment := range []struct {
		after, step, want time.Duration
	}{
		{0, 0, 0}, {10 * time.Second, 0, 0},
		{20 * time.Second, 5 * time.Minute, 5 * time.Minute}, // the clock is set forward
		{25 * time.Second, 5 * time.Minute, 5 * time.Minute},
		{30 * time.Second, 0, 0}, // and right
		{40 * time.Second, 0, 0},
		{50 * time.Second, 500 * time.Millisecond, 0}, // kept right
		{24 * time.Hour, 30 * time.Second, 0},         // and so by the day
		{24*time.Hour + time.Second, time.Hour, time.Hour - 30*time.Second},
		{24*time.Hour + time.Minute, time.Hour, time.Hour - 30*time.Second},
		{26 * time.Hour, time.Hour, 0}, // it stays: the clock was wrong before
	} {
		wall := noon.Add(moment.after + moment.step)
		if got := c.after(wall.UnixNano()); got.Sub(wall).Abs() > clockTrust {
			t.Errorf("after %v at %v the clock says %v", moment.after, wall, got)
		}
		if got := c.steps.see(time.Duration(wall.UnixNano()), moment.after); got != moment.want {
			t.Errorf("after %v: set by %v, want %v", moment.after, got, moment.want)
		}
	}
}
