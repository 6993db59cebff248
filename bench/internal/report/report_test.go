// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"strings"
	"testing"
)

func TestRatios(t *testing.T) {
	r := New("x", 3)
	for round, ours := range []float64{2, 8, 4} {
		r.Add("small", "ours", "MB/s", ours)
		r.Add("small", "peer", "MB/s", 2)
		r.Add("large", "ours", "MB/s", 10)
		r.Add("large", "peer", "MB/s", []float64{10, 5, 10}[round])
	}
	both := []Pair{{"small", "ours", "small", "peer"}, {"large", "ours", "large", "peer"}}
	// Rounds: √(1·1), √(4·2), √(2·1); the middle one is √2.
	if got := r.Compare("all", both, ">=", 1.5); math.Abs(got.Value-math.Sqrt2) > 1e-9 || got.Met || math.Abs(got.Most-math.Sqrt(8)) > 1e-9 {
		t.Errorf("ratio %+v, want √2, missed", got)
	}
	if got := r.Compare("small", both[:1], "<=", 2); got.Value != 2 || !got.Met {
		t.Errorf("ratio %+v, want 2, met", got)
	}
	if got := r.Compare("nothing", nil, ">=", 0); got.Met {
		t.Errorf("a ratio of nothing is met: %+v", got)
	}
	var out strings.Builder
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ratio all 1.41 goal >= 1.5  (missed)\n", "ratio small 2.00 goal <= 2\n", "ours, MB/s", "4.00"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}
