// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import "github.com/substorm/substorm/internal/wire"

// maxUntold bounds the gaps that are still to be reported to a consumer. Adjacent gaps are merged,
// so there are few.
const maxUntold = 16

// addGap adds a gap, the newest, to the waiting ones.
func addGap(untold []wire.Gap, g wire.Gap) []wire.Gap {
	if n := len(untold); n > 0 && follows(untold[n-1], g) {
		untold[n-1] = joined(untold[n-1], g)
		return untold
	}
	return bounded(append(untold, g))
}

// retell puts a gap, whose record left its stream unread, before the waiting ones.
func retell(untold []wire.Gap, g wire.Gap) []wire.Gap {
	if len(untold) > 0 && follows(g, untold[0]) {
		untold[0] = joined(g, untold[0])
		return untold
	}
	return bounded(append([]wire.Gap{g}, untold...))
}

// bounded merges the first two gaps of a stream if there are too many.
func bounded(untold []wire.Gap) []wire.Gap {
	if len(untold) <= maxUntold {
		return untold
	}
	for i := range untold {
		for j := i + 1; j < len(untold); j++ {
			if untold[i].Stream == untold[j].Stream {
				untold[j] = joined(untold[i], untold[j])
				return append(untold[:i], untold[i+1:]...)
			}
		}
	}
	return untold // a stream for each: they are two or three
}

// follows reports whether b is more of what a is.
func follows(a, b wire.Gap) bool {
	return a.Stream == b.Stream && a.Reason == b.Reason && epochOf(a) == epochOf(b)
}

func epochOf(g wire.Gap) string {
	t, _ := wire.ParseResumeToken(g.To) // we wrote it
	return t.Epoch
}

// joined is one gap for two, a being the earlier.
func joined(a, b wire.Gap) wire.Gap {
	if a.From != "" {
		b.From = a.From
	}
	b.Count += a.Count
	return b
}
