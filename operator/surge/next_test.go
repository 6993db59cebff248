// SPDX-License-Identifier: Apache-2.0

package surge_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/substorm/substorm/operator/surge"
)

// TestNextHolds checks what must hold for any samples and at any time of looking: nothing is lowered while the signal is unknown, floors
// fall by one pod and not too often, the floors of a fulfilled level stay, and looking twice changes nothing.
func TestNextHolds(t *testing.T) {
	public := surge.Pool{Kind: surge.KindFeedServer, Name: "public"}
	rapid.Check(t, func(t *rapid.T) {
		storm, severe := 5., 7.
		levels := []surge.Level{
			{Name: "storm", AnyOf: []surge.Rule{{{Quantity: surge.Kp, AtLeast: &storm}}}, Floors: []surge.Floor{{Kind: surge.KindFeedServer, Replicas: rapid.Int32Range(0, 6).Draw(t, "floor")}}},
			{Name: "severe", AnyOf: []surge.Rule{{{Quantity: surge.Kp, AtLeast: &severe}}}, Floors: []surge.Floor{{Kind: surge.KindFeedServer, Replicas: rapid.Int32Range(0, 9).Draw(t, "floor")}}},
		}
		for i := range levels {
			levels[i].Hold = time.Duration(rapid.IntRange(0, 300).Draw(t, "hold")) * time.Minute
			levels[i].ReleaseEvery = time.Duration(rapid.IntRange(0, 30).Draw(t, "release")) * time.Minute
		}
		rank := map[string]int{"": 0, "storm": 1, "severe": 2}
		least := max(surge.LeastReleaseEvery, min(levels[0].ReleaseEvery, levels[1].ReleaseEvery))

		now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
		signal := &surge.Signal{Quantity: surge.Kp, Source: "test", StaleAfter: 90 * time.Minute}
		var was surge.State
		var fell time.Time
		for range rapid.IntRange(1, 60).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(1, 7200).Draw(t, "seconds")) * time.Second)
			if rapid.Bool().Draw(t, "tells") {
				signal.Samples = []surge.Sample{{From: now.Add(-time.Minute), To: now, Value: rapid.Float64Range(0, 9).Draw(t, "kp")}}
			}
			is, decision := surge.Next(levels, surge.Signals{signal}, was, now)
			if again, _ := surge.Next(levels, surge.Signals{signal}, is, now); !cmp.Equal(is, again) {
				t.Fatalf("another look changes the state:\n%s", cmp.Diff(is, again))
			}
			before, after := was.Floor(public).Replicas, is.Floor(public).Replicas
			switch lower := after < before; {
			case !signal.Fresh(now) && (lower || rank[is.Level] < rank[was.Level]):
				t.Fatalf("lowered from %s, %d to %s, %d while the signal is unknown", was.Level, before, is.Level, after)
			case lower && after != before-1:
				t.Fatalf("the floor falls from %d to %d", before, after)
			case lower && !fell.IsZero() && now.Sub(fell) < least:
				t.Fatalf("the floor falls again after %s", now.Sub(fell))
			case lower:
				fell = now
			case after > before:
				fell = time.Time{}
			}
			if newest, told := signal.Newest(); told && signal.Fresh(now) {
				for i, bound := range []float64{storm, severe} {
					if newest.Value >= bound && (rank[is.Level] < i+1 || after < levels[i].Floors[0].Replicas) {
						t.Fatalf("Kp %.1f, and the level is %s, the floor %d", newest.Value, is.Level, after)
					}
				}
			}
			if decision.LookAgain < 0 {
				t.Fatalf("to look again in %s", decision.LookAgain)
			}
			was = is
		}
	})
}
