// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"iter"
	"testing"
	"time"
)

// The shortest and the longest pause between two attempts.
const shortPause, longPause = 2 * time.Millisecond, 200 * time.Millisecond

// Attempts counts tries to find what must come, until Patience is over. The pauses between them grow to a tenth of the time
// that went by: asking costs processor time, which the server that is asked needs.
func Attempts() iter.Seq[int] { return AttemptsFor(Patience) }

// AttemptsFor is Attempts with another patience.
func AttemptsFor(patience time.Duration) iter.Seq[int] {
	return func(yield func(int) bool) {
		began := time.Now()
		for i := 0; time.Since(began) < patience; i++ {
			if !yield(i) {
				return
			}
			time.Sleep(min(max(time.Since(began)/10, shortPause), longPause))
		}
	}
}

// Await asks until holds returns true. Once Patience is over or the test has ended, it fails the test and names what does not hold.
func Await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for range Attempts() {
		if holds() {
			return
		}
		if t.Context().Err() != nil {
			break
		}
	}
	t.Fatalf("not within %v: %s", Patience, what)
}
