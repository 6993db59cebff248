// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// If a late object of a day has a time, objects of that day without one count as observed at any time of the day; all segments have one.
func TestBounds(t *testing.T) {
	late := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	midnight := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	d := wire.RootDay{Day: "2026-11-20", Entries: 4, ObservedFrom: &late, ObservedTo: &late}
	for told, want := range map[bool][2]time.Time{false: {late, midnight.AddDate(0, 0, 1)}, true: {late, late}} {
		if from, to, err := bounds(d, told); err != nil || !from.Equal(want[0]) || !to.Equal(want[1]) {
			t.Errorf("told %v: %v to %v, want %v: %v", told, from, to, want, err)
		}
	}
}
