// SPDX-License-Identifier: Apache-2.0

package autoscale_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/surge/autoscale"
)

var at = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

func TestReplicas(t *testing.T) {
	for _, c := range []struct {
		asked, floor, ceiling, held, want int32
		why                               string
	}{
		{3, 2, 10, 0, 3, "asked for: load"},
		{3, 5, 10, 0, 5, "the floor: storm (3 are asked for)"},
		{3, 5, 4, 0, 4, "the ceiling, of 5 that there should be: quota"},
		{12, 5, 10, 0, 10, "the ceiling, of 12 that there should be: quota"},
		{2, 2, 10, 4, 4, "held, though 2 are enough: spools"},
		{2, 2, 1, 4, 4, "held, though there may be 1: spools"},
		{-3, 0, 10, 0, 0, "asked for: load"},
		{3, 0, -1, 0, 0, "the ceiling, of 3 that there should be: quota"},
	} {
		got := autoscale.Scale{Asked: autoscale.Count{Replicas: c.asked, Why: "load"}, Floor: autoscale.Count{Replicas: c.floor, Why: "storm"},
			Ceiling: autoscale.Count{Replicas: c.ceiling, Why: "quota"}, Held: autoscale.Count{Replicas: c.held, Why: "spools"}}.Replicas()
		if got.Replicas != c.want || got.Why != c.why {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// TestSum: a pod that does not report counts as the average of those that do.
func TestSum(t *testing.T) {
	fill := func(v float64) map[autoscale.Budget]float64 {
		return map[autoscale.Budget]float64{autoscale.Budget(wire.BudgetConnections): v}
	}
	for name, c := range map[string]struct {
		ready   []string
		reports []autoscale.Report
		want    float64
		missing int
		because autoscale.Budget
	}{
		"all":               {[]string{"a", "b"}, []autoscale.Report{{Pod: "a", At: at, Fill: fill(0.2)}, {Pod: "b", At: at, Fill: fill(0.4)}}, 0.6, 0, autoscale.Budget(wire.BudgetConnections)},
		"one is new":        {[]string{"a", "b", "c"}, []autoscale.Report{{Pod: "a", At: at, Fill: fill(0.2)}, {Pod: "b", At: at, Fill: fill(0.4)}}, 0.6, 1, autoscale.Budget(wire.BudgetConnections)},
		"one is old":        {[]string{"a", "b"}, []autoscale.Report{{Pod: "a", At: at.Add(-4 * time.Second), Fill: fill(1)}, {Pod: "b", At: at, Fill: fill(0.4)}}, 0.8, 1, autoscale.Budget(wire.BudgetConnections)},
		"the newest counts": {[]string{"a"}, []autoscale.Report{{Pod: "a", At: at, Fill: fill(0.2)}, {Pod: "a", At: at.Add(-time.Second), Fill: fill(1)}}, 0.2, 0, autoscale.Budget(wire.BudgetConnections)},
		"one is going":      {[]string{"a"}, []autoscale.Report{{Pod: "a", At: at, Fill: fill(0.2)}, {Pod: "b", At: at, Fill: fill(1)}}, 0.2, 0, autoscale.Budget(wire.BudgetConnections)},
		"bytes":             {[]string{"a"}, []autoscale.Report{{Pod: "a", At: at, Fill: fill(0.2), BytesPerSecond: 50, BytesPerSecondLimit: 100}}, 0.5, 0, autoscale.Throughput},
		"refusals":          {[]string{"a"}, []autoscale.Report{{Pod: "a", At: at, Fill: fill(0.9), Answered: 100, Refused: 300}}, 4, 0, autoscale.Budget(wire.BudgetConnections)},
		"only refusals":     {[]string{"a"}, []autoscale.Report{{Pod: "a", At: at, Refused: 30000}}, 10, 0, autoscale.Throughput},
		"no numbers":        {[]string{"a"}, []autoscale.Report{{Pod: "a", At: at, Fill: fill(math.NaN()), BytesPerSecond: math.Inf(1), BytesPerSecondLimit: 5}}, 1, 0, autoscale.Throughput},
		"more than full":    {[]string{"a"}, []autoscale.Report{{Pod: "a", At: at, Fill: fill(1e9)}}, 1, 0, autoscale.Budget(wire.BudgetConnections)},
	} {
		got, known := autoscale.Sum(c.ready, c.reports, at)
		if !known || math.Abs(got.Total-c.want) > 1e-9 || got.Missing != c.missing || got.Because != c.because {
			t.Errorf("%s: %+v, %t", name, got, known)
		}
	}
	if got, known := autoscale.Sum([]string{"a"}, nil, at); known {
		t.Errorf("of no report: %+v", got)
	}
}

// TestDecidesWithinFiveSeconds: from growth of any size that needs more pods than there are at once, to a decision.
func TestDecidesWithinFiveSeconds(t *testing.T) {
	for _, times := range []float64{2.2, 3, 4, 8, 40} {
		now := at
		loop := autoscale.New(autoscale.Defaults, 4, now)
		for range 600 {
			now = now.Add(time.Second)
			loop.Add(autoscale.Load{At: now, Total: 2, Because: autoscale.Budget(wire.BudgetConnections)})
			loop.Decide(now, 4)
		}
		took := 0
		for before := int32(4); before <= 4; {
			took++
			now = now.Add(time.Second)
			loop.Add(autoscale.Load{At: now, Total: 2 * times, Because: autoscale.Budget(wire.BudgetConnections)})
			before = loop.Decide(now, 4).Replicas
			if took > 60 {
				break
			}
		}
		t.Logf("%.1f times the load: decided after %d s", times, took)
		if took > 5 {
			t.Errorf("%.1f times the load: decided after %d s", times, took)
		}
	}
}

// TestAHoleInTheReports: while nothing is known, what was asked for stays.
func TestAHoleInTheReports(t *testing.T) {
	now := at
	loop := autoscale.New(autoscale.Defaults, 2, now)
	for range 400 {
		now = now.Add(time.Second)
		loop.Add(autoscale.Load{At: now, Total: 5, Because: autoscale.Budget(wire.BudgetMemory)})
		loop.Decide(now, 8)
	}
	for range 3600 {
		now = now.Add(time.Second)
		if got := loop.Decide(now, 8); got.Replicas != 8 {
			t.Fatalf("%d are asked for without a report", got.Replicas)
		}
	}
	if got := loop.Decide(now, 8); !strings.Contains(got.Why(), "no pod reports") {
		t.Errorf("why: %s", got.Why())
	}
}

// TestReportsComeBack: a load that is known again, and lower than before, removes no pod until ScaleDownDelay after that.
func TestReportsComeBack(t *testing.T) {
	now := at
	loop := autoscale.New(autoscale.Defaults, 2, now)
	pass := func(seconds int, load float64) (asked autoscale.Asked) {
		for range seconds {
			now = now.Add(time.Second)
			if load >= 0 {
				loop.Add(autoscale.Load{At: now, Total: load, Because: autoscale.Throughput})
			}
			asked = loop.Decide(now, 8)
		}
		return asked
	}
	pass(400, 5)
	pass(3600, -1)
	delay := int(autoscale.Defaults.ScaleDownDelay / time.Second)
	if got := pass(delay-1, 1); got.Replicas != 8 {
		t.Errorf("before the delay was over, %d were asked for: %s", got.Replicas, got.Why())
	}
	if got := pass(10, 1); got.Replicas >= 8 {
		t.Errorf("after the delay, %d are asked for: %s", got.Replicas, got.Why())
	}
}

// TestFloorsDoNotDelay: pods that are there because of a floor do not make the loop ask later or for less.
func TestFloorsDoNotDelay(t *testing.T) {
	for _, grows := range []int{1, 30, 120, 600} {
		now := at
		alone, beside := autoscale.New(autoscale.Defaults, 3, now), autoscale.New(autoscale.Defaults, 3, now)
		ready := int32(3)
		for second := range 2000 {
			now = now.Add(time.Second)
			load := autoscale.Load{At: now, Total: 2 + 14*min(1, max(0, float64(second-600)/float64(grows))), Because: autoscale.Throughput}
			alone.Add(load)
			beside.Add(load)
			a, b := alone.Decide(now, ready), beside.Decide(now, max(ready, 8))
			if b.Replicas < a.Replicas {
				t.Fatalf("growth in %d s, after %d s: %d are asked for beside a floor, and %d without one", grows, second-600, b.Replicas, a.Replicas)
			}
			ready = a.Replicas // all start at once
		}
	}
}
