// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Bounds are those of the time of observation that a run moves: what is selected, and of that what lies between from and to. The zero
// time is no bound.
func Bounds(s wire.MirrorSelection, from, to, now time.Time) (least, greatest time.Time) {
	least, greatest = s.Observed(now)
	if from.After(least) {
		least = from
	}
	if greatest.IsZero() || !to.IsZero() && to.Before(greatest) {
		greatest = to
	}
	return least, greatest
}
