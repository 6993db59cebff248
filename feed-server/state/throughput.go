// SPDX-License-Identifier: Apache-2.0

package state

import "time"

// throughputWindow is how long bytes are averaged.
const throughputWindow = time.Minute

// throughput makes a rate of a growing count.
type throughput struct{ marks []mark }

type mark struct {
	at    time.Time
	total uint64
}

// at notes the count at a time, and returns its mean growth per second in the window that
// ends then; 0 at first.
func (t *throughput) at(now time.Time, total uint64) int64 {
	t.marks = append(t.marks, mark{now, total})
	for len(t.marks) > 2 && now.Sub(t.marks[1].at) >= throughputWindow {
		t.marks = t.marks[1:]
	}
	first := t.marks[0]
	elapsed := now.Sub(first.at).Seconds()
	if elapsed <= 0 {
		return 0
	}
	return int64(float64(total-first.total) / elapsed)
}
