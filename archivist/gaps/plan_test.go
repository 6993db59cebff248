// SPDX-License-Identifier: Apache-2.0

package gaps

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/internal/wire"
)

var update = flag.Bool("update", false, "write golden files anew")

// TestPlan: testdata/<name>.in.yaml holds inputs that follow one another, each of which continues
// from the plan of the one before; <name>.out.yaml holds the plan of each.
func TestPlan(t *testing.T) {
	files, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".in.yaml")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var passes []Input
			if err := yaml.UnmarshalStrict(data, &passes); err != nil {
				t.Fatal(err)
			}
			var all []wire.DayGaps
			var was *wire.DayGaps
			for _, in := range passes {
				in.Was = was
				day, err := Plan(in)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, day)
				was = &day
			}
			got, err := yaml.Marshal(all)
			if err != nil {
				t.Fatal(err)
			}
			output := "testdata/" + name + ".out.yaml"
			if *update {
				if err := os.WriteFile(output, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(output)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s (-want +got; -update writes it anew):\n%s", output, diff)
			}
		})
	}
}

// TestMany: of too many gaps the longest are listed, and the others counted.
func TestMany(t *testing.T) {
	start := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	in := Input{Now: start.AddDate(0, 0, 2), Day: "2026-11-21", Entry: &wire.InstrumentEntry{CadenceMillis: 1000}, Since: start.AddDate(0, 0, -1)}
	var seen []wire.TimeSpan
	for at := start; at.Before(start.AddDate(0, 0, 1)); at = at.Add(time.Minute) { // 60 s, and each tenth 300 s apart
		if at.Minute()%10 >= 5 && at.Minute()%10 < 9 {
			continue
		}
		seen = append(seen, wire.TimeSpan{From: at, To: at})
	}
	in.Channels = map[string]Archived{"": {Observed: seen}}
	day, err := Plan(in)
	if err != nil {
		t.Fatal(err)
	}
	long := 0
	for _, g := range day.Gaps {
		if g.Missing > 60 {
			long++
		}
	}
	if len(day.Gaps) != wire.MaxDayGaps || day.More != len(seen)-wire.MaxDayGaps || long != 24*6 {
		t.Errorf("%d gaps, %d of them long, %d more", len(day.Gaps), long, day.More)
	}
}
