// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/surge"
)

// ForecastSurge returns what status.surge of a Site would be if these signals arrived in calm.
func ForecastSurge(site *v1alpha1.Site, signals surge.Signals, now time.Time) *v1alpha1.SurgeStatus {
	return forecast(site, signals, surge.State{}, now)
}

// ForecastLevel is what status.surge of a Site would be at a level, including the levels declared before it; false: it declares no such
// level.
func ForecastLevel(site *v1alpha1.Site, name string, now time.Time) (*v1alpha1.SurgeStatus, bool) {
	state := surge.State{Level: name}
	for _, l := range SurgeLevels(site) {
		state.Levels = append(state.Levels, surge.LevelState{Name: l.Name, Because: "somebody asked what it would need"})
		if l.Name == name {
			// Without a signal nothing is known, and the level stays.
			return forecast(site, nil, state, now), true
		}
	}
	return nil, false
}

func forecast(site *v1alpha1.Site, signals surge.Signals, was surge.State, now time.Time) *v1alpha1.SurgeStatus {
	state, decision := surge.Next(SurgeLevels(site), signals, was, now)
	status := surgeStatus(&state)
	status.Message = bounded(decision.Why, maxSurgeMessage)
	return status
}
