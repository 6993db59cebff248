// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"testing"
	"time"
)

// The mean of at least ten seconds and two datagrams; where no more come, how long
// ago the last one was.
func TestDatagramRate(t *testing.T) {
	var r datagramRate
	now := time.Unix(1_763_726_400, 0)
	for i, step := range []struct {
		after time.Duration
		count uint64
		want  time.Duration
	}{
		{0, 1000, 0},
		{5 * time.Second, 1050, 0},
		{5 * time.Second, 1100, 100 * time.Millisecond},
		{2 * time.Second, 1300, 100 * time.Millisecond},
		{8 * time.Second, 2100, 10 * time.Millisecond},
		{time.Minute, 2101, 10 * time.Millisecond},
		{time.Minute, 2102, time.Minute},
		{3*time.Minute + 4*time.Second, 2102, time.Minute},
		{time.Second, 2102, 3*time.Minute + 5*time.Second},
		{55 * time.Second, 2106, time.Minute},
		{10 * time.Second, 2116, time.Second},
		{7 * time.Second, 2116, time.Second},
		{time.Second, 2116, 8 * time.Second},
	} {
		now = now.Add(step.after)
		if got := r.note(step.count, now); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
}
