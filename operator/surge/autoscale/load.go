// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Budget is something that a pod has so much of, and no more.
type Budget string

// Throughput is bytes a second in relation to what a pod can carry. The other budgets are those of wire.Load.
const Throughput Budget = "throughput"

// Report is a pod's report of the last second.
type Report struct {
	Pod string
	At  time.Time
	// Fill of each budget, 0 to 1.
	Fill map[Budget]float64
	// BytesPerSecond is the present throughput, and BytesPerSecondLimit the throughput that a pod can carry; 0: not known.
	BytesPerSecond, BytesPerSecondLimit float64
	// Answered requests, and those that were refused for lack of capacity. Refusals of a client that asks more often than it may are not
	// among them: more pods would not change them.
	Answered, Refused int64
}

// freshFor is how old a report may be. Pods report each second: one report may be lost, and another one on its way.
const freshFor = 3 * time.Second

// maxHidden bounds the demand that refusals represent, in times of what was answered: a pod that answers hardly anything is a poor measure
// of the demand.
const maxHidden = 10

// Load is the load of all pods of a pool in one second, in pods: 3 is the load that fills three pods.
type Load struct {
	At    time.Time
	Total float64
	// Missing is how many pods did not report. In place of those that had reported before, Total has the average of the others. A pod
	// that never reported has just started, and carries hardly anything: with an average in its place each pod that a floor starts
	// would look like growth.
	Missing int
	// Because is the budget that pods use most.
	Because Budget
}

// Sum adds up the newest report of each of the pods that are ready. It returns false if none of them reported: then nothing is known.
func Sum(ready []string, reports []Report, now time.Time) (Load, bool) {
	load := Load{At: now}
	reported, silent, most := 0, 0, map[Budget]float64{}
	for _, pod := range ready {
		r := newest(pod, reports)
		if r == nil || now.Sub(r.At) > freshFor {
			load.Missing++
			if r != nil {
				silent++
			}
			continue
		}
		fill, of := r.load()
		reported++
		load.Total += fill
		most[of] += fill
	}
	if reported == 0 {
		return load, false
	}
	load.Total *= float64(reported+silent) / float64(reported)
	for budget, fill := range most {
		if fill > most[load.Because] || fill == most[load.Because] && (load.Because == "" || budget < load.Because) {
			load.Because = budget
		}
	}
	return load, true
}

func newest(pod string, reports []Report) (found *Report) {
	for i := range reports {
		if r := &reports[i]; r.Pod == pod && (found == nil || r.At.After(found.At)) {
			found = r
		}
	}
	return found
}

// load is how full the pod is: the fullest budget decides. Refused requests count as if they had been answered, so that a pod at
// its limit says how far beyond it the demand is.
func (r *Report) load() (float64, Budget) {
	most, of := 0., Throughput
	if r.BytesPerSecondLimit > 0 {
		most = number(r.BytesPerSecond/r.BytesPerSecondLimit, 1)
	}
	for budget, fill := range r.Fill {
		if fill = number(fill, 1); fill > most || fill == most && budget < of {
			most, of = fill, budget
		}
	}
	if r.Refused > 0 {
		most = max(most, 1) * min(maxHidden, 1+float64(r.Refused)/float64(max(1, r.Answered)))
	}
	return most, of
}

// number keeps a value of a broken report from being more than a full pod, or no number.
func number(v, most float64) float64 {
	if math.IsNaN(v) || v < 0 {
		return 0
	}
	return min(v, most)
}

// missing reports how many pods did not report.
func (l Load) missing() string {
	if l.Missing == 1 {
		return "1 pod does not report"
	}
	return fmt.Sprintf("%d pods do not report", l.Missing)
}

// window is the loads of the last so long, the oldest first.
type window []Load

func (w window) since(from time.Time) window {
	i, _ := slices.BinarySearchFunc(w, from, func(l Load, at time.Time) int {
		if l.At.After(at) {
			return 1
		}
		return -1
	})
	return w[i:]
}

// lasting is the least load of the last seconds, so many of them; 0 if fewer are known. One second that is fuller by chance does not raise
// it.
func (w window) lasting(seconds int) float64 {
	if seconds <= 0 || len(w) < seconds {
		return 0
	}
	least := math.Inf(1)
	for _, load := range w[len(w)-seconds:] {
		least = min(least, load.Total)
	}
	return least
}

func (w window) mean() float64 {
	if len(w) == 0 {
		return 0
	}
	sum := 0.
	for i := range w {
		sum += w[i].Total
	}
	return sum / float64(len(w))
}
