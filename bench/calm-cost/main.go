// SPDX-License-Identifier: Apache-2.0

// Command calm-cost runs quiet months in virtual time, with noise in Kp and in the solar wind: pods that are added needlessly.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/operator/surge/simulate"
)

const (
	file = "operator/surge/simulate/testdata/kp-2015-03.csv"
	seed = 1
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
	months := report.Rounds(20)
	scenarios := make([]*simulate.Scenario, months)
	for n := range scenarios {
		if scenarios[n], err = simulate.Quiet(recorded, seed, n); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	r := report.New("calm-cost", months)
	kinds := simulate.Kinds(simulate.WindLevels())
	all, err := simulate.Compare(context.Background(), kinds, months, func(n int) *simulate.Scenario { return scenarios[n] }, nil)
	if err != nil {
		return err
	}
	for i, kind := range kinds {
		var needless, raised []float64
		total := 0.
		for n := range all[i] {
			one := &all[i][n]
			r.Add(kind.Name, "scale-ups", "times", float64(one.ScaleUps))
			r.Add(kind.Name, "needless", "times", float64(one.Needless))
			r.Add(kind.Name, "pod-hours", "h", one.PodHours)
			r.Add(kind.Name, "refused", "%", 100*one.RefusedShare())
			needless, raised, total = append(needless, float64(one.Needless)), append(raised, float64(one.Raised)), total+float64(one.Needless)
		}
		r.Note("%s (%s): %.0f needless scale-ups in all %d months.", kind.Name, kind.Short, total, months)
		if kind.Name == simulate.NameOurs {
			r.Bound("levels that began in the worst of the months", []float64{slices.Max(raised)}, "<=", 0)
			r.Bound("needless scale-ups in the worst of the months", []float64{slices.Max(needless)}, "<=", 0)
		}
	}
	return r.Finish()
}
