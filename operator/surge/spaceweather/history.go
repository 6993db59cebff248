// SPDX-License-Identifier: Apache-2.0

package spaceweather

import (
	"slices"
	"time"

	"github.com/substorm/substorm/operator/surge"
)

// maxKept bounds the samples of a signal: two days of Kp are 16 and three hours of minutes 180, but a recorded file may be played a
// thousand times as fast as it was recorded.
const maxKept = 5000

// merged are known samples and answered ones as a new slice in the order of time, without overlaps. Answered ones replace known ones
// that begin within them, because sources correct what they said. If several answered ones begin at the same time, the last one
// remains. Otherwise a sample ends where the next one begins.
func merged(known, answered []surge.Sample) []surge.Sample {
	byTime := func(a, b surge.Sample) int { return a.From.Compare(b.From) }
	fresh := make([]surge.Sample, 0, len(known)+len(answered))
	for _, s := range slices.SortedStableFunc(slices.Values(answered), byTime) {
		if n := len(fresh); n > 0 && fresh[n-1].From.Equal(s.From) {
			fresh[n-1] = s
			continue
		}
		fresh = append(fresh, s)
	}
	n := len(fresh)
	for _, s := range known {
		i, at := slices.BinarySearchFunc(fresh[:n], s, byTime)
		if at || i > 0 && fresh[i-1].To.After(s.From) {
			continue
		}
		fresh = append(fresh, s)
	}
	slices.SortFunc(fresh, byTime)
	for i := range fresh[:max(0, len(fresh)-1)] {
		if next := fresh[i+1].From; fresh[i].To.After(next) {
			fresh[i].To = next
		}
	}
	return fresh
}

// recent are the samples that ended less than kept ago, and the newest one however old it is: its age is reported. Samples from the future
// were taken while this clock was wrong: if they stayed, no later sample would be the newest until their time has come.
func recent(samples []surge.Sample, now time.Time, kept time.Duration) []surge.Sample {
	samples = slices.DeleteFunc(samples, func(s surge.Sample) bool { return surge.Ahead(s.From, now) })
	from := slices.IndexFunc(samples, func(s surge.Sample) bool { return s.To.After(now.Add(-kept)) })
	if from < 0 {
		from = len(samples) - 1
	}
	return samples[max(0, from, len(samples)-maxKept):]
}
