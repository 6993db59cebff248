// SPDX-License-Identifier: Apache-2.0

package wire

import "time"

// SurgeSubject is where a change of the Site's level of space weather is published: one of HealthSubjects, which the operator alone
// publishes on, and the only one of them that the stream of notices takes.
func SurgeSubject(site string) string { return "health." + site + ".surge" }

// SurgeStatusKey is where the operator keeps the current SurgeLevel, in StatusBucket. No other program writes it.
const SurgeStatusKey = "surge"

// SurgeLevel is the level of space weather that a Site is at. It is published on SurgeSubject (ce-type TypeSurge) when the level is
// another than before, and kept under SurgeStatusKey with the newest values.
type SurgeLevel struct {
	Site string `json:"site"`
	// Level that holds; empty: none does.
	Level string `json:"level"`
	// Was is the level before, in what is published; empty: none held.
	Was string `json:"was,omitempty"`
	// Since when it holds, or none does; nil: from the beginning.
	Since *time.Time `json:"since,omitempty"`
	// Why, in a sentence for people.
	Why string `json:"why"`
	// Values that are known of space weather, one of each quantity.
	Values []SpaceWeatherValue `json:"values,omitempty"`
	// Floors below which pools are not scaled.
	Floors []SurgeFloor `json:"floors,omitempty"`
}

// SpaceWeatherValue is the newest value of a quantity.
type SpaceWeatherValue struct {
	// Quantity is Kp, Bz (nT) or Speed (km/s).
	Quantity string  `json:"quantity"`
	Value    float64 `json:"value"`
	// Source is the one of the Site's sources that reported it, and Spacecraft what measured it.
	Source     string `json:"source"`
	Spacecraft string `json:"spacecraft,omitempty"`
	// ValidTo is the end of the time that the value is of.
	ValidTo time.Time `json:"validTo"`
	// StaleAfterMillis after ValidTo the value is stale: it no longer describes the present.
	StaleAfterMillis int64 `json:"staleAfterMillis"`
}

// Stale says whether the value no longer describes the present.
func (v *SpaceWeatherValue) Stale(now time.Time) bool {
	return now.After(v.ValidTo.Add(time.Duration(v.StaleAfterMillis) * time.Millisecond))
}

// SurgeFloor is how many pods pools have at least.
type SurgeFloor struct {
	// Kind of the pools, and the name of one; without a name it is of each of the kind that has no floor of its own.
	Kind     string `json:"kind"`
	Name     string `json:"name,omitempty"`
	Replicas int32  `json:"replicas"`
	// Level that raised it, which may be over: floors fall slowly.
	Level string `json:"level,omitempty"`
}
