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
	// leastPods and ceiling bound the pool for every policy.
	leastPods, ceiling = 2, 64
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

// at is the factor at a time.
func (c *Crowd) at(now time.Time) float64 {
	switch t := now.Sub(c.Begins); {
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

func (c *Crowd) growth() Span {
	return Span{c.Begins.Add(-beforeGrowth), c.Begins.Add(c.Grows + afterGrowth)}
}

// Scenario is what happens. It is the same for each policy.
type Scenario struct {
	Span
	Crowds  []Crowd
	Sources []Source
	// Start is how long pods take to be ready.
	Start time.Duration
	// Seed of what is different in each run: noise, and when in their intervals the policies look.
	Seed uint64

	calm []float32 // of each minute
}

// prepare draws the noise.
func (s *Scenario) prepare() {
	if s.calm != nil {
		return
	}
	r := s.random("noise")
	s.calm = make([]float32, int(s.To.Sub(s.From)/time.Minute)+2)
	for i := range s.calm {
		hour := s.From.Add(time.Duration(i) * time.Minute).Sub(s.From.Truncate(24 * time.Hour)).Hours()
		day := 1 - dayAndNight*math.Cos(2*math.Pi*hour/24) // the fewest at midnight, UTC
		s.calm[i] = float32(calmMean * day * max(0, 1+calmNoise*r.NormFloat64()))
	}
}

// random begins a series of draws that is the same whichever others there are.
func (s *Scenario) random(of string) *rand.Rand {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(of) {
		h = (h ^ uint64(of[i])) * 1099511628211
	}
	return rand.New(rand.NewPCG(s.Seed, h))
}

// Load that is asked for at a time, in pods.
func (s *Scenario) Load(now time.Time) float64 {
	minute := min(max(0, int(now.Sub(s.From)/time.Minute)), len(s.calm)-1)
	factor := 1.
	for i := range s.Crowds {
		factor = max(factor, s.Crowds[i].at(now))
	}
	return float64(s.calm[minute]) * factor
}

// step is how far to go from a time.
func (s *Scenario) step(now time.Time) time.Duration {
	for i := range s.Crowds {
		if s.Crowds[i].growth().has(now) {
			return fine * time.Second
		}
	}
	return coarse * time.Second
}

// pods that a load needs.
func pods(load float64) int32 { return podsAt(load, target) }

func podsAt(load, utilization float64) int32 {
	return min(max(leastPods, int32(math.Ceil(load/utilization-1e-9))), ceiling)
}
