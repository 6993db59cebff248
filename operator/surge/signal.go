// SPDX-License-Identifier: Apache-2.0

// Package surge grows a Site before a geomagnetic storm brings the crowd: space weather is turned into a level, and a level into
// floors, below which pools are not scaled.
//
//	spaceweather ─► Signals ─► Levels ─► floors ─┐
//	load of gateways and feed servers ─► asked ──┴─► min(ceiling, max(floor, asked)) ─► workload
//
// Everything but the sources (package spaceweather) is pure, and takes the time as an input: the operator, `substorm storm replay`
// and the benchmarks run the same code.
package surge

import (
	"slices"
	"time"
)

// Quantity is one of space weather.
type Quantity string

// The quantities.
const (
	// Kp is the planetary K index, 0 to 9 in thirds, without a unit: of each three hours of UTC (Bartels, 1949).
	Kp Quantity = "Kp"
	// Bz is the component of the interplanetary magnetic field along the z axis of GSM coordinates, in nT. Southward is below 0.
	Bz Quantity = "Bz"
	// Speed is the speed of the solar wind, in km/s.
	Speed Quantity = "Speed"
)

// Quantities are all quantities, in the order in which they are reported.
var Quantities = []Quantity{Kp, Bz, Speed}

// Sample is a value over a time, To being excluded: three hours of Kp, a minute of the solar wind.
type Sample struct {
	From, To time.Time
	Value    float64
	// Spacecraft that measured it, as its source names it; empty for quantities that none measures.
	Spacecraft string
}

// Signal is the known data of a quantity.
type Signal struct {
	Quantity Quantity
	// Source is the name of its source, as spec.spaceWeather.sources has it.
	Source string
	// Samples in the order of time. None overlap, and there may be gaps.
	Samples []Sample
	// StaleAfter is how old the newest sample may be before the signal is no longer used.
	StaleAfter time.Duration
}

// Newest returns the newest sample; false: there is none.
func (s *Signal) Newest() (Sample, bool) {
	if s == nil || len(s.Samples) == 0 {
		return Sample{}, false
	}
	return s.Samples[len(s.Samples)-1], true
}

// Age is how long ago the newest sample ended, 0 if it has not ended; false: there is none.
func (s *Signal) Age(now time.Time) (time.Duration, bool) {
	newest, is := s.Newest()
	return max(0, now.Sub(newest.To)), is
}

// Fresh returns whether the newest sample describes the present. A sample from the future does not: a clock is wrong.
func (s *Signal) Fresh(now time.Time) bool {
	newest, is := s.Newest()
	age, _ := s.Age(now)
	return is && age <= s.StaleAfter && !Ahead(newest.From, now)
}

// clockSkew is how far ahead a source's clock may be.
const clockSkew = 5 * time.Minute

// Ahead says whether a time is so far ahead of now that a clock is wrong.
func Ahead(at, now time.Time) bool { return at.After(now.Add(clockSkew)) }

// Signals are the signals of a Site, at most one of each quantity.
type Signals []*Signal

// Of returns the signal of a quantity; nil: none is declared.
func (all Signals) Of(q Quantity) *Signal {
	if i := slices.IndexFunc(all, func(s *Signal) bool { return s.Quantity == q }); i >= 0 {
		return all[i]
	}
	return nil
}
