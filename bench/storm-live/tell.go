// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/substorm/substorm/bench/internal/aurora"
	"github.com/substorm/substorm/bench/internal/report"
)

// generatorCores is what asking and sending may take, so that pods have the rest of two cores.
const generatorCores = 1.6

// decision is how long it took from the crowd's coming until more pods were asked for than before; +Inf for never.
func (r *result) decision(kind string) float64 {
	before := r.history.at(kind, r.crowd).Asked
	when, found := r.history.since(kind, r.crowd, func(s state) bool { return s.Asked > before })
	if !found {
		return math.Inf(1)
	}
	return when.Sub(r.crowd).Seconds()
}

// lead is by how much the floor's pods were ready before the crowd came; -Inf for never.
func (r *result) lead(kind string) float64 {
	raised, found := r.history.since(kind, r.began, func(s state) bool { return s.Floor >= floor })
	if !found {
		return math.Inf(-1)
	}
	ready, found := r.history.since(kind, raised, func(s state) bool { return s.Ready >= floor })
	if !found {
		return math.Inf(-1)
	}
	return r.crowd.Sub(ready).Seconds()
}

// generator is what asking and sending took while the crowd was there.
func (r *result) generator() float64 { return r.answered.Parts[1].Cores + r.sent.Parts[1].Cores }

// refused is the part of all requests, and of all objects, that was not served while the crowd was there.
func (r *result) refused() (requests, objects float64) {
	v, s := &r.answered.Parts[1], &r.sent.Parts[1].answers
	return float64(v.People.refused()+v.Robots.refused()) / float64(max(1, v.People.All+v.Robots.All)), float64(s.refused()) / float64(max(1, s.All))
}

// add adds a storm to the report.
func (b *bench) add(r result) {
	name := r.policy.name
	for i, p := range parts(b.storm) {
		for _, class := range []struct {
			name string
			seen *answers
		}{{"people", &r.answered.Parts[i].People}, {"robots", &r.answered.Parts[i].Robots}, {"objects", &r.sent.Parts[i].answers}} {
			b.addAnswers(name+", "+p.Name+", "+class.name, p.For, class.seen)
		}
	}
	for _, kind := range poolKinds {
		row := name + ", " + kind
		b.report.Add(row, "decided after", "s", finite(r.decision(kind), b.storm))
		if r.policy == policies[0] {
			b.report.Add(row, "floor ready before the crowd by", "s", finite(r.lead(kind), b.storm))
		}
		b.report.Add(row, "most pods", "ready", float64(r.history.most(kind)))
	}
	b.report.Add(name+", crowd, generator", "used", "cores", r.generator())
	b.report.Add(name+", crowd, readers", "late p99", "ms", r.answered.Parts[1].LateP99)
	b.report.Add(name+", crowd, machine", "used", "cores", r.busy)
}

func (b *bench) addAnswers(row string, during time.Duration, a *answers) {
	r := b.report
	r.Add(row, "asked", "/s", float64(a.All)/during.Seconds())
	r.Add(row, "MB", "/s", float64(a.Bytes)/during.Seconds()/1e6)
	r.Add(row, "p50", "ms", a.P50)
	r.Add(row, "p99", "ms", a.P99)
	r.Add(row, "429", "answers", float64(a.Limited))
	r.Add(row, "gave way", "answers", float64(a.GaveWay))
	r.Add(row, "failed", "answers", float64(a.errors()-a.GaveWay))
	if a.Unsent > 0 {
		r.Note("%s: %d times not sent, as too many were waiting.", row, a.Unsent)
	}
	for _, what := range slices.Sorted(maps.Keys(a.Failed)) {
		r.Note("%s: %d times %s.", row, a.Failed[what], what)
	}
}

// finite is a number that JSON can hold: what never happened counts as a whole storm.
func finite(v float64, storm time.Duration) float64 {
	return min(max(v, -storm.Seconds()), storm.Seconds())
}

// tell compares the policies.
func (b *bench) tell(all []result) {
	r := b.report
	var decisions, hpaDecisions, leads, errors, hpaErrors, cores []float64
	refused := map[string][2][]float64{}
	for i := range all {
		one := &all[i]
		decided, lead, mistakes := 0., math.Inf(1), 0
		for _, kind := range poolKinds {
			decided, lead = max(decided, one.decision(kind)), min(lead, one.lead(kind))
		}
		for j := range one.answered.Parts {
			mistakes += one.answered.Parts[j].People.errors()
		}
		requests, objects := one.refused()
		name := one.policy.name
		refused[name] = [2][]float64{append(refused[name][0], requests), append(refused[name][1], objects)}
		cores = append(cores, one.generator())
		if one.policy == policies[0] {
			decisions, leads, errors = append(decisions, finite(decided, b.storm)), append(leads, finite(lead, b.storm)), append(errors, float64(mistakes))
		} else {
			hpaDecisions, hpaErrors = append(hpaDecisions, finite(decided, b.storm)), append(hpaErrors, float64(mistakes))
		}
	}
	r.Note("Each pod has %d thousandths of a core; half of that are %.0f requests, or %.0f objects of %d KiB over TLS, a second. A storm lasts %v; its crowd, %d times as much of everything "+
		"from %d times as many addresses, comes after %v and goes after %v.", podLimit, float64(b.speed)*aurora.PerSecond, b.objects, objectSize>>10, b.storm, crowdTimes, aurora.StormAddresses,
		b.storm*crowdFrom/intervals, b.storm*crowdTo/intervals)
	r.Note("Failed are errors, wrong answers, and answers after %v. An object counts as failed if its first try brought no receipt. Decided: more pods are asked for than when the crowd came. "+
		"Between 1 and %d pods; the floor of ours is %d.", readerPatience, maxPods, floor)
	r.Bound("seconds-from-growth-to-decision,-the-slower-pool", []float64{slices.Max(decisions)}, "<=", 5)
	r.Bound("seconds-from-growth-to-decision-of-HPA", []float64{slices.Max(hpaDecisions)}, "", 0)
	r.Bound("seconds-by-which-the-floor-is-ready-before-the-crowd", []float64{slices.Min(leads)}, ">=", 0)
	r.Bound("receipts-lost", []float64{slices.Max(b.lost)}, "<=", 0)
	r.Bound("errors-to-people-other-than-429", []float64{slices.Max(errors)}, "<=", 0)
	r.Bound("errors-to-people-other-than-429-with-HPA", []float64{slices.Max(hpaErrors)}, "", 0)
	b.ratio("refused-requests,-ours-to-HPA's", refused[policies[0].name][0], refused[policies[1].name][0])
	b.ratio("refused-objects,-ours-to-HPA's", refused[policies[0].name][1], refused[policies[1].name][1])
	r.Bound("cores-of-the-generator", []float64{slices.Max(cores)}, "<=", generatorCores)
}

// ratio compares what was refused: where HPA refused nothing there is no ratio, and a note says so.
func (b *bench) ratio(name string, ours, theirs []float64) {
	b.report.Note("%s: %.4f of all, and %.4f.", name, report.Median(ours), report.Median(theirs))
	var ratios []float64
	for i := range min(len(ours), len(theirs)) {
		if theirs[i] > 0 {
			ratios = append(ratios, ours[i]/theirs[i])
		}
	}
	if len(ratios) == 0 {
		b.report.Note("%s: no ratio, as HPA refused nothing.", name)
		return
	}
	b.report.Bound(name, ratios, "", 0)
}
