// SPDX-License-Identifier: Apache-2.0

package surge_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/substorm/substorm/operator/surge"
)

// calm are levels with one that holds from Kp 5 on, and a signal that knows of no storm at any time.
func calm(floors ...surge.Floor) ([]surge.Level, func(now time.Time) surge.Signals) {
	five := 5.
	levels := []surge.Level{{Name: "storm", AnyOf: []surge.Rule{{{Quantity: surge.Kp, AtLeast: &five}}}, Floors: floors, Hold: time.Hour, ReleaseEvery: 10 * time.Minute}}
	return levels, func(now time.Time) surge.Signals {
		return surge.Signals{{Quantity: surge.Kp, Source: "test", StaleAfter: time.Hour, Samples: []surge.Sample{{From: now.Add(-time.Minute), To: now, Value: 2}}}}
	}
}

// TestClockWasAhead: what began to run while a clock was a year ahead does not last until that year is over.
func TestClockWasAhead(t *testing.T) {
	now := time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)
	levels, signals := calm(surge.Floor{Kind: surge.KindFeedServer, Replicas: 4})
	ahead := &surge.Countdown{From: now.AddDate(1, 0, 0)}
	state := surge.State{Level: "storm", Levels: []surge.LevelState{{Name: "storm", Because: "Kp 6", Hold: ahead}},
		Floors: []surge.FloorState{{Pool: surge.Pool{Kind: surge.KindFeedServer}, Replicas: 6, Level: "storm", Release: ahead}}}
	state, is := surge.Next(levels, signals(now), state, now)
	if state.Level != "storm" || is.LookAgain > time.Hour {
		t.Fatalf("at first level %q, look again in %s", state.Level, is.LookAgain)
	}
	now = now.Add(10 * time.Minute)
	if state, _ = surge.Next(levels, signals(now), state, now); state.Floors[0].Replicas != 5 {
		t.Errorf("the floor is %+v", state.Floors)
	}
	now = now.Add(50 * time.Minute)
	if state, is = surge.Next(levels, signals(now), state, now); state.Level != "" {
		t.Errorf("level %s holds: %s", state.Level, is.Why)
	}
}

// TestMostFloors: the API server takes a status with 64 floors. Some of the released floors are dropped, so that the status can be written.
func TestMostFloors(t *testing.T) {
	now := time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)
	levels, signals := calm(surge.Floor{Kind: surge.KindFeedServer, Name: "public", Replicas: 4})
	state := surge.State{Level: "storm", Levels: []surge.LevelState{{Name: "storm", Because: "Kp 6"}}}
	for i := range 64 {
		state.Floors = append(state.Floors, surge.FloorState{Pool: surge.Pool{Kind: surge.KindFeedServer, Name: fmt.Sprintf("before-%d", i)}, Replicas: 9, Level: "gone"})
	}
	state, _ = surge.Next(levels, signals(now), state, now)
	if len(state.Floors) != 64 || state.Floor(surge.Pool{Kind: surge.KindFeedServer, Name: "public"}).Replicas != 4 {
		t.Errorf("%d floors, of which %+v", len(state.Floors), state.Floor(surge.Pool{Kind: surge.KindFeedServer, Name: "public"}))
	}
}
