// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Bounds are those of the time of observation that a run moves: what is selected, and of that what lies between from and to. The zero
// time is no bound.
func Bounds(s wire.MirrorSelection, from, to, now time.Time) (least, greatest time.Time) {
	least, greatest = later(s.ObservedFrom, from), earlier(s.ObservedTo, to)
	if s.ObservedWithinMillis > 0 {
		least = later(least, now.Add(-time.Duration(s.ObservedWithinMillis)*time.Millisecond))
	}
	return least, greatest
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
