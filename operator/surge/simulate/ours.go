// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"time"

	"github.com/substorm/substorm/operator/surge"
	"github.com/substorm/substorm/operator/surge/autoscale"
)

// knative is its loop, without space weather.
type knative struct {
	loop *autoscale.Loop
	tick timer
}

// knativeTick is how often Knative's autoscaler decides.
const knativeTick = 2 * time.Second

func newKnative(s *Scenario) Policy {
	cfg := autoscale.Defaults
	cfg.GrowthLasts, cfg.PanicUtilization, cfg.Tolerance, cfg.ScaleUpDelay, cfg.ScaleDownDelay, cfg.StartTime = 0, 0, 0, 0, 0, 0
	return &knative{autoscale.New(cfg, pods(s.Load(s.From)), s.From), s.timer("tick", knativeTick)}
}

// Decide implements Policy.
func (k *knative) Decide(now time.Time, seen Seen) int32 {
	k.loop.Add(autoscale.Load{At: now, Total: seen.Load, Because: autoscale.Throughput})
	if !k.tick.due(now) {
		return seen.Replicas
	}
	return k.loop.Decide(now, seen.Ready).Replicas
}

// pool is the one that is simulated, as levels name it.
var pool = surge.Pool{Kind: surge.KindFeedServer, Name: "simulated"}

// ours is the operator's policy.
type ours struct {
	loop    *autoscale.Loop
	levels  []surge.Level
	sources []Source

	told  []int // samples of each source
	again time.Time
	state surge.State
	// scaled are the last inputs to replicas.
	scaled   [2]int32
	replicas int32
	raised   int
}

func newOurs(s *Scenario, levels []surge.Level) *ours {
	o := &ours{loop: autoscale.New(autoscale.Defaults, pods(s.Load(s.From)), s.From), levels: levels, sources: s.Sources, told: make([]int, len(s.Sources))}
	for i := range o.told {
		o.told[i] = -1
	}
	return o
}

// Decide implements Policy.
func (o *ours) Decide(now time.Time, seen Seen) int32 {
	o.loop.Add(autoscale.Load{At: now, Total: seen.Load, Because: autoscale.Throughput})
	asked := o.loop.Decide(now, seen.Ready)
	o.decideLevel(now)
	least := max(MinPods, o.state.Floor(pool).Replicas)
	if from := [2]int32{asked.Replicas, least}; from != o.scaled {
		scale := autoscale.Scale{Asked: autoscale.Count{Replicas: from[0]}, Floor: autoscale.Count{Replicas: from[1]}, Ceiling: autoscale.Count{Replicas: MaxPods}}
		o.scaled, o.replicas = from, scale.Replicas().Replicas
	}
	return o.replicas
}

// decideLevel decides the level when the operator does: when a source has news, and when the last decision said so.
func (o *ours) decideLevel(now time.Time) {
	if o.levels == nil {
		return
	}
	changed := !o.again.IsZero() && !now.Before(o.again)
	for i := range o.sources {
		if n := o.sources[i].visibleCount(now); n != o.told[i] {
			o.told[i], changed = n, true
		}
	}
	if !changed {
		return
	}
	signals := make(surge.Signals, len(o.sources))
	for i := range o.sources {
		signals[i] = o.sources[i].signal(o.told[i])
	}
	before := o.rank(o.state.Level)
	var decision surge.Decision
	o.state, decision = surge.Next(o.levels, signals, o.state, now)
	if o.rank(o.state.Level) > before {
		o.raised++
	}
	o.again = time.Time{}
	if decision.LookAgain > 0 {
		o.again = now.Add(decision.LookAgain)
	}
}

// rank of a level; -1: none.
func (o *ours) rank(level string) int {
	return slices.IndexFunc(o.levels, func(l surge.Level) bool { return l.Name == level })
}
