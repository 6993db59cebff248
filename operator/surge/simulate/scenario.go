// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math"
	"math/rand/v2"
	"time"
)

// The pool (see the package's documentation).
const (
	// calmMean is the load of a calm day, in pods, and dayAndNight how far it goes up and down, as a share.
	calmMean, dayAndNight = 2., 0.5
	// calmNoise is the deviation of each minute, as a share.
	calmNoise = 0.05
	// target is how full pods are to be.
	target = 0.7
	// MinPods and MaxPods bound the pool for every policy.
	MinPods = 2
	MaxPods = 64
)

// Steps of virtual time.
const (
	fine, coarse = 1, 15 // seconds
	// before and after the growth of a crowd, time goes in fine steps.
	beforeGrowth, afterGrowth = time.Minute, 10 * time.Minute
)

// Crowd multiplies the load.
type Crowd struct {
	Begins             time.Time
	Grows, Stays, Goes time.Duration
	Factor             float64
}

// at is the factor so long after it begins.
func (c *Crowd) at(t time.Duration) float64 {
	switch {
	case t <= 0 || t >= c.Grows+c.Stays+c.Goes:
		return 1
	case t < c.Grows:
		return 1 + (c.Factor-1)*float64(t)/float64(c.Grows)
	case t <= c.Grows+c.Stays:
		return c.Factor
	default:
		return c.Factor - (c.Factor-1)*float64(t-c.Grows-c.Stays)/float64(c.Goes)
	}
}

// growing says whether time goes in fine steps.
func (c *Crowd) growing(t time.Duration) bool {
	return t >= -beforeGrowth && t < c.Grows+afterGrowth
}

// Scenario is the course of events. It is the same for each policy.
type Scenario struct {
	Span
	Crowds  []Crowd
	Sources []Source
	// Start is how long pods take to be ready.
	Start time.Duration
	// Seed of the differences between runs: noise, and when in their intervals the policies look.
	Seed uint64

	calm   []float32       // of each minute
	begins []time.Duration // of each crowd, after From
}

// prepare draws the noise.
func (s *Scenario) prepare() {
	if s.calm != nil {
		return
	}
	for i := range s.Crowds {
		s.begins = append(s.begins, s.Crowds[i].Begins.Sub(s.From))
	}
	r := s.random("noise")
	s.calm = make([]float32, int(s.To.Sub(s.From)/time.Minute)+2)
	for i := range s.calm {
		hour := s.From.Add(time.Duration(i) * time.Minute).Sub(s.From.Truncate(24 * time.Hour)).Hours()
		day := 1 - dayAndNight*math.Cos(2*math.Pi*hour/24) // the fewest at midnight, UTC
		s.calm[i] = float32(calmMean * day * max(0, 1+calmNoise*r.NormFloat64()))
	}
}

// random begins a series of draws that does not depend on other series.
func (s *Scenario) random(of string) *rand.Rand {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(of) {
		h = (h ^ uint64(of[i])) * 1099511628211
	}
	return rand.New(rand.NewPCG(s.Seed, h))
}

// Load that is asked for at a time, in pods.
func (s *Scenario) Load(now time.Time) float64 {
	t, factor := now.Sub(s.From), 1.
	minute := min(max(0, int(t/time.Minute)), len(s.calm)-1)
	for i, begins := range s.begins {
		factor = max(factor, s.Crowds[i].at(t-begins))
	}
	return float64(s.calm[minute]) * factor
}

// most is the greatest load in a time. Within a minute it grows, stays or falls, so it is at the ends of one.
func (s *Scenario) most(from, until time.Time) float64 {
	most := max(s.Load(from), s.Load(until))
	for at := from.Truncate(time.Minute).Add(time.Minute); !at.After(until); at = at.Add(time.Minute) {
		most = max(most, s.Load(at), s.Load(at.Add(-time.Nanosecond)))
	}
	return most
}

// step is how far to go from a time.
func (s *Scenario) step(now time.Time) time.Duration {
	t := now.Sub(s.From)
	for i, begins := range s.begins {
		if s.Crowds[i].growing(t - begins) {
			return fine * time.Second
		}
	}
	return coarse * time.Second
}

// pods that a load needs.
func pods(load float64) int32 { return podsAt(load, target) }

func podsAt(load, utilization float64) int32 {
	return min(max(MinPods, int32(math.Ceil(load/utilization-1e-9))), MaxPods)
}
