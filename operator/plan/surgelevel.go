// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// SurgeLevel is the level of a Site as programs and consumers get it: as SiteStatus plans it, in words that stay the same while no new data
// arrives; nil if the Site declares no levels.
func SurgeLevel(v SiteView) *wire.SurgeLevel {
	levels := SurgeLevels(v.Site)
	if len(levels) == 0 {
		return nil
	}
	state, decision := v.nextSurge(levels)
	is := &wire.SurgeLevel{Site: v.Site.Spec.Code, Level: state.Level, Why: bounded(decision.Lasting, maxSurgeMessage)}
	if !state.Since.IsZero() {
		is.Since = new(state.Since.UTC())
	}
	for _, s := range v.weather().Signals {
		if newest, known := s.Newest(); known {
			is.Values = append(is.Values, wire.SpaceWeatherValue{
				Quantity: string(s.Quantity), Value: newest.Value, Source: s.Source, Spacecraft: newest.Spacecraft,
				ValidTo: newest.To.UTC().Truncate(time.Second), StaleAfterMillis: s.StaleAfter.Milliseconds(),
			})
		}
	}
	if finding.IsStandalone(v.Site) { // each pool is one
		return is
	}
	for _, f := range state.Floors {
		is.Floors = append(is.Floors, wire.SurgeFloor{Kind: f.Kind, Name: f.Name, Replicas: f.Replicas, Level: f.Level})
	}
	return is
}

// SurgeChange is what is published when the level of the Site of a code changed; nil if it did not. Level belongs to the current status;
// both are nil if the Site declares no levels any more.
func SurgeChange(code string, was, is *v1alpha1.SurgeStatus, level *wire.SurgeLevel, now time.Time) *wire.SurgeLevel {
	before, after := levelOf(was), levelOf(is)
	if before == after || code == "" {
		return nil
	}
	change := wire.SurgeLevel{Site: code, Why: "the Site declares no levels"}
	if level != nil {
		change = *level
	}
	if change.Since == nil {
		change.Since = new(now.UTC().Truncate(time.Second))
	}
	change.Was = before
	return &change
}

func levelOf(s *v1alpha1.SurgeStatus) string {
	if s == nil {
		return ""
	}
	return s.Level
}
