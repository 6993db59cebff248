// SPDX-License-Identifier: Apache-2.0

package state

import (
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

func TestState(t *testing.T) {
	start := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	type look struct {
		at    float64
		facts Facts
		want  string
	}
	caught := Facts{Connected: true}
	behind := func(since float64) Facts { return Facts{Connected: true, Since: at(since)} }
	sampling := func(since float64) Facts {
		return Facts{Connected: true, Since: at(since), Interval: 200 * time.Millisecond}
	}
	gap := Facts{Connected: true, LastGap: at(0)}
	for name, looks := range map[string][]look{
		"nobody":                      {{0, Facts{}, wire.StateIdle}, {1, Facts{Since: at(-100), LastGap: at(0)}, wire.StateIdle}},
		"caught up":                   {{0, caught, wire.StateFlowing}, {3600, caught, wire.StateFlowing}},
		"five seconds are no lag":     {{5, behind(0), wire.StateFlowing}, {105, behind(100), wire.StateFlowing}},
		"behind for ten seconds":      {{6, behind(0), wire.StateFlowing}, {15.9, behind(8), wire.StateFlowing}, {16, behind(9), wire.StateSlow}, {17, caught, wire.StateFlowing}},
		"a moment between":            {{6, behind(0), wire.StateFlowing}, {12, behind(8), wire.StateFlowing}, {17, behind(9), wire.StateFlowing}, {27, behind(9), wire.StateSlow}},
		"went away meanwhile":         {{6, behind(0), wire.StateFlowing}, {10, Facts{}, wire.StateIdle}, {17, behind(0), wire.StateFlowing}},
		"sampled, two intervals":      {{0.4, sampling(0), wire.StateFlowing}, {0.5, sampling(0), wire.StateFlowing}, {10.5, sampling(10), wire.StateSlow}},
		"overrun":                     {{1, gap, wire.StateOverrun}, {599, gap, wire.StateOverrun}, {600, gap, wire.StateFlowing}},
		"overrun is said before slow": {{6, Facts{Connected: true, Since: at(0), LastGap: at(5)}, wire.StateOverrun}, {20, Facts{Connected: true, Since: at(0), LastGap: at(5)}, wire.StateOverrun}, {700, behind(0), wire.StateSlow}},
	} {
		var tracker Tracker
		for _, l := range looks {
			if got := tracker.State(l.facts, at(l.at)); got != l.want {
				t.Errorf("%s, after %v s: %s, want %s", name, l.at, got, l.want)
			}
		}
	}
}
