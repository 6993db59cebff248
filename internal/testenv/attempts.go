// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"iter"
	"time"
)

// The shortest and the longest pause between two attempts.
const shortPause, longPause = 10 * time.Millisecond, 200 * time.Millisecond

// Attempts counts tries to find what must come, until Patience is over. The pauses between them grow to a tenth of the time
// that went by: asking costs processor time, which the one who is asked needs.
func Attempts() iter.Seq[int] {
	return func(yield func(int) bool) {
		began := time.Now()
		for i := 0; time.Since(began) < Patience; i++ {
			if !yield(i) {
				return
			}
			time.Sleep(min(max(time.Since(began)/10, shortPause), longPause))
		}
	}
}
