// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"time"
)

// Result is the outcome of a policy in a scenario.
type Result struct {
	// Offered and Refused work, in hours of a full pod.
	Offered, Refused float64
	// PodHours of all pods, from when they were asked for.
	PodHours float64
	// ScaleUps are how many times there were more pods than before, and Needless those of them after which the earlier number would have
	// been enough for the next hour.
	ScaleUps, Needless int
	// Raised is how many times a level of space weather began.
	Raised int
	// Points of a run that was traced, one a minute.
	Points []Point
}

// RefusedShare of the work.
func (r *Result) RefusedShare() float64 { return r.Refused / max(r.Offered, 1e-9) }

// Point is how it was in a minute: its load, the fewest pods that were ready, and the level.
type Point struct {
	At    time.Time
	Load  float64
	Ready int32
	Level string
	// Refused share of the minute's work.
	Refused float64
}

// needlessWindow is how long pods have to be enough for their number not to be worth raising.
const needlessWindow = time.Hour

// podSet is the pods of the pool.
type podSet struct {
	ready    int32
	starting []time.Time // when they will be ready, in order
}

func (p *podSet) all() int32 { return p.ready + int32(len(p.starting)) }

func (p *podSet) advance(now time.Time) {
	for len(p.starting) > 0 && !p.starting[0].After(now) {
		p.starting = p.starting[1:]
		p.ready++
	}
}

// scale starts pods, or removes them: those first that are not ready.
func (p *podSet) scale(to int32, readyAt time.Time) {
	for p.all() < to {
		p.starting = append(p.starting, readyAt)
	}
	if surplus := p.all() - to; surplus > 0 {
		young := min(surplus, int32(len(p.starting)))
		p.starting = p.starting[:int32(len(p.starting))-young]
		p.ready -= surplus - young
	}
}

// Run runs one policy through a scenario.
func Run(s *Scenario, kind Kind, trace bool) Result {
	s.prepare()
	policy := kind.New(s)
	var r Result
	set := podSet{ready: pods(s.Load(s.From))}
	for now := s.From; now.Before(s.To); {
		step := s.step(now)
		set.advance(now)
		load := s.Load(now)
		used := min(load, float64(set.ready))
		hours := step.Hours()
		r.Offered += load * hours
		r.Refused += (load - used) * hours
		r.PodHours += float64(set.all()) * hours
		if trace {
			r.trace(now, load, set.ready, (load-used)/max(load, 1e-9), policy)
		}
		now = now.Add(step)
		before := set.all()
		to := min(max(MinPods, policy.Decide(now, Seen{Load: load, Used: used, Ready: set.ready, Replicas: before, For: step})), MaxPods)
		if to > before {
			r.ScaleUps++
			if s.enough(before, now) {
				r.Needless++
			}
		}
		set.scale(to, now.Add(s.Start))
	}
	if o, is := policy.(*ours); is {
		r.Raised = o.raised
	}
	return r
}

// enough says whether so many pods are for the next while.
func (s *Scenario) enough(n int32, now time.Time) bool {
	return pods(s.most(now, now.Add(needlessWindow))) <= n
}

// trace notes the worst of each minute.
func (r *Result) trace(now time.Time, load float64, ready int32, refused float64, p Policy) {
	minute := now.Truncate(time.Minute)
	if n := len(r.Points); n == 0 || r.Points[n-1].At != minute {
		r.Points = append(r.Points, Point{At: minute, Ready: ready})
	}
	one := &r.Points[len(r.Points)-1]
	one.Load, one.Ready, one.Refused = max(one.Load, load), min(one.Ready, ready), max(one.Refused, refused)
	if o, is := p.(*ours); is {
		one.Level = o.state.Level
	}
}
