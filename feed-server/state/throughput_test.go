// SPDX-License-Identifier: Apache-2.0

package state

import (
	"testing"
	"time"
)

// TestThroughput: the mean of the last minute, and of less at first.
func TestThroughput(t *testing.T) {
	var rate throughput
	begin := time.Date(2026, 11, 25, 18, 0, 0, 0, time.UTC)
	total := uint64(0)
	for _, step := range []struct {
		after time.Duration
		bytes uint64
		want  int64
	}{
		{0, 5000, 0},
		{10 * time.Second, 1000, 100},
		{20 * time.Second, 3000, 200},
		{60 * time.Second, 2000, 100},
		{80 * time.Second, 0, 33}, // 2000 since 20 s
		{200 * time.Second, 0, 0},
	} {
		total += step.bytes
		if got := rate.at(begin.Add(step.after), total); got != step.want {
			t.Errorf("after %s: %d bytes a second, not %d", step.after, got, step.want)
		}
	}
	if len(rate.marks) > 3 {
		t.Errorf("%d marks are kept", len(rate.marks))
	}
}
