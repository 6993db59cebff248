// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"time"

	"github.com/substorm/substorm/operator/surge"
)

// Seen is the visible state of the pool in a step.
type Seen struct {
	// Load that was requested, in pods. Used is the part that the pods carried.
	Load, Used float64
	// Ready pods, and Replicas that were decided.
	Ready, Replicas int32
	// For is how long the step took.
	For time.Duration
}

// Policy decides how many pods there are to be. It belongs to one run.
type Policy interface {
	// Decide is called at the end of each step. Its result is limited to the pool's min and max.
	Decide(now time.Time, seen Seen) int32
}

// Kind is a policy that can be compared.
type Kind struct {
	Name string
	// Short says what it is.
	Short string
	New   func(*Scenario) Policy
}

// The names of the kinds.
const (
	NameHPA           = "hpa"
	NameKEDA          = "keda"
	NameKnative       = "knative"
	NameWithoutSignal = "ours, no signal"
	NameOurs          = "ours"
	NameOracle        = "oracle"
	NamePackedOracle  = "packed oracle"
)

// Kinds are all policies, ours with these levels.
func Kinds(levels []surge.Level) []Kind {
	return []Kind{
		{NameHPA, "HorizontalPodAutoscaler on CPU, as it is by default", newHPA},
		{NameKEDA, "KEDA, polling the load each 30 s", newKEDA},
		{NameKnative, "Knative's autoscaler", newKnative},
		{NameWithoutSignal, "the operator's loop, without space weather", func(s *Scenario) Policy { return newOurs(s, nil) }},
		{NameOurs, "the operator's loop, with floors by space weather", func(s *Scenario) Policy { return newOurs(s, levels) }},
		{NameOracle, "knows the load, and keeps pods as full as the others do", func(s *Scenario) Policy { return &oracle{s, target} }},
		{NamePackedOracle, "knows the load, and fills pods to the last", func(s *Scenario) Policy { return &oracle{s, 1} }},
	}
}

// oracle has a pod begin to start just in time.
type oracle struct {
	*Scenario
	utilization float64
}

// Decide looks ahead for as long as a pod needs to start, and the step.
func (o *oracle) Decide(now time.Time, _ Seen) int32 {
	return podsAt(o.most(now, now.Add(o.Start+o.step(now))), o.utilization)
}

// timer is due each so often, beginning anywhere in the first interval.
type timer struct {
	every time.Duration
	next  time.Time
}

func (s *Scenario) timer(name string, every time.Duration) timer {
	return timer{every, s.From.Add(time.Duration(s.random(name).Int64N(int64(every))))}
}

// due says whether the timer was due since it last was.
func (t *timer) due(now time.Time) bool {
	if now.Before(t.next) {
		return false
	}
	for !t.next.After(now) {
		t.next = t.next.Add(t.every)
	}
	return true
}
