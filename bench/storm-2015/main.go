// SPDX-License-Identifier: Apache-2.0

// Command storm-2015 replays the Kp of March 2015 in virtual time: what HPA, KEDA, Knative, ours and an oracle refuse, and how many pods they take.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/operator/surge/simulate"
)

const (
	file = "operator/surge/simulate/testdata/kp-2015-03.csv"
	seed = 1
)

// The figures.
const (
	refused  = "refused"
	podHours = "pod-hours"
	scaleUps = "scale-ups"
	needless = "needless"
)

func main() { lab.Run(run) }

func run(*lab.Lab) error {
	checkout, err := testenv.Checkout()
	if err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(checkout, file))
	if err != nil {
		return err
	}
	defer f.Close()
	recorded, err := simulate.Read(file, f)
	if err != nil {
		return err
	}
	draws := report.Rounds(200)
	r := report.New("storm-2015", draws)
	kinds := simulate.Kinds(simulate.DefaultLevels())
	all, err := simulate.Compare(context.Background(), kinds, draws, func(n int) *simulate.Scenario { return simulate.Draw(recorded, seed, n) }, func(done int) {
		if done%20 == 0 {
			fmt.Fprintf(os.Stderr, "%d of %d draws are done\n", done, draws)
		}
	})
	if err != nil {
		return err
	}
	results := map[string][]simulate.Result{}
	for i, kind := range kinds {
		results[kind.Name] = all[i]
		add(r, kind, all[i])
	}
	tell(r, results)
	return r.Finish()
}

// add adds what a policy came to in each draw.
func add(r *report.Report, kind simulate.Kind, results []simulate.Result) {
	for i := range results {
		one := &results[i]
		r.Add(kind.Name, refused, "pod-minutes", work(one))
		r.Add(kind.Name, podHours, "h", one.PodHours)
		r.Add(kind.Name, scaleUps, "times", float64(one.ScaleUps))
		r.Add(kind.Name, needless, "times", float64(one.Needless))
	}
	d := simulate.Of(results, work)
	r.Note("%s (%s): refused pod-minutes of work, mean %.2f, p95 %.2f, most %.2f.", kind.Name, kind.Short, d.Mean, d.P95, d.Most)
}

// work that was refused, in minutes of a full pod.
func work(r *simulate.Result) float64 { return 60 * r.Refused }

// tell compares the policies.
func tell(r *report.Report, results map[string][]simulate.Result) {
	ours, without := results[simulate.NameOurs], results[simulate.NameWithoutSignal]
	p95 := func(name string) float64 { return simulate.Of(results[name], work).P95 }
	worse, better, most := 0., 0, 0.
	for i := range ours {
		switch more := work(&ours[i]) - work(&without[i]); {
		case more > 0:
			worse++
			most = max(most, more)
		case more < 0:
			better++
		}
	}
	r.Note("Beside ours without the signal, ours refused less in %d of %d draws, and more in %.0f, by %.2f pod-minutes at most.", better, len(ours), worse, most)
	r.Bound("refused work p95, ours to HPA's", []float64{p95(simulate.NameOurs) / p95(simulate.NameHPA)}, "<=", 0.2)
	r.Bound("draws in which ours refuses more than without the signal", []float64{worse}, "<=", 0)
	r.Compare("pod-hours, ours to the oracle's", against(simulate.NameOracle), "<=", 1.5)
	r.Compare("pod-hours, ours to those of an oracle that fills pods to the last", against(simulate.NamePackedOracle), "", 0)
	for _, name := range []string{simulate.NameKEDA, simulate.NameKnative, simulate.NameWithoutSignal} {
		r.Bound(fmt.Sprintf("refused work p95, that of %s to HPA's", name), []float64{p95(name) / p95(simulate.NameHPA)}, "", 0)
	}
}

func against(oracle string) []report.Pair {
	return []report.Pair{{Case: simulate.NameOurs, Candidate: podHours, OfCase: oracle, OfCandidate: podHours}}
}
