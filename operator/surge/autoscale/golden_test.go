// SPDX-License-Identifier: Apache-2.0

package autoscale_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/surge/autoscale"
	"github.com/substorm/substorm/operator/surge/surgetest"
)

// story is what a test's .in.yaml holds: a pool, whose pods report each second what they get.
type story struct {
	Replicas int32 `json:"replicas"`
	// Start is how long a pod takes until it is ready.
	Start  metav1.Duration `json:"start"`
	Phases []phase         `json:"phases"`
}

// phase is a time in which the same is asked of the pool.
type phase struct {
	For metav1.Duration `json:"for"`
	// Load in pods. Load that exceeds the pods that are ready is refused.
	Load float64 `json:"load"`
	// Fill of other budgets, in pods, too.
	Fill map[autoscale.Budget]float64 `json:"fill"`
	// Silent pods do not report, Late ones by so much.
	Silent []string        `json:"silent"`
	Late   metav1.Duration `json:"late"`
	// Restart replaces the loop by a new one.
	Restart bool `json:"restart"`
}

// change is one of a test's .out.yaml.
type change struct {
	After    string `json:"after"`
	Ready    int32  `json:"ready"`
	Replicas int32  `json:"replicas"`
	Panic    bool   `json:"panic,omitempty"`
	Why      string `json:"why"`
}

func TestGolden(t *testing.T) {
	surgetest.Golden(t, func(_ *testing.T, s *story) any { return s.tell() })
}

// tell runs the loop each second. Requested pods are ready after Start; pods that are no longer requested are gone at once.
func (s *story) tell() []change {
	begin := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	now := begin
	loop := autoscale.New(autoscale.Defaults, s.Replicas, now)
	ready := make([]time.Time, s.Replicas) // since when, or from when on
	var told []change
	for _, p := range s.Phases {
		if p.Restart {
			loop = autoscale.New(autoscale.Defaults, int32(len(ready)), now)
		}
		for end := now.Add(p.For.Duration); now.Before(end); {
			now = now.Add(time.Second)
			names := podsReady(ready, now)
			if load, known := autoscale.Sum(names, p.reports(names, now), now); known {
				loop.Add(load)
			}
			asked := loop.Decide(now, int32(len(names)))
			for int(asked.Replicas) > len(ready) {
				ready = append(ready, now.Add(s.Start.Duration))
			}
			ready = ready[:asked.Replicas]
			one := change{After: now.Sub(begin).String(), Ready: int32(len(names)), Replicas: asked.Replicas, Panic: asked.Panic, Why: asked.Why()}
			if n := len(told); n == 0 || told[n-1].Replicas != one.Replicas || told[n-1].Panic != one.Panic {
				told = append(told, one)
			}
		}
	}
	return told
}

func podsReady(from []time.Time, now time.Time) (names []string) {
	for i, at := range from {
		if !at.After(now) {
			names = append(names, fmt.Sprintf("pod-%d", i))
		}
	}
	return names
}

func (p *phase) reports(pods []string, now time.Time) (all []autoscale.Report) {
	each := p.Load / float64(len(pods))
	fill := map[autoscale.Budget]float64{}
	for budget, of := range p.Fill {
		fill[budget] = of / float64(len(pods))
	}
	for _, name := range pods {
		late := p.Late.Duration
		if slices.Contains(p.Silent, name) {
			late = time.Hour // its last report is old
		}
		r := autoscale.Report{Pod: name, At: now.Add(-late), Fill: fill, BytesPerSecond: 1e6 * min(each, 1), BytesPerSecondLimit: 1e6, Answered: int64(1000 * min(each, 1))}
		if each > 1 {
			r.Refused = int64(1000 * (each - 1))
		}
		all = append(all, r)
	}
	return all
}
