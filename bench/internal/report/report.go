// SPDX-License-Identifier: Apache-2.0

// Package report keeps what a benchmark measured, round by round, and prints
// medians as a table, ratios with their goals, and all of it as JSON.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/substorm/substorm/internal/testenv"
)

// Report is one run of a benchmark.
type Report struct {
	Name    string    `json:"name"`
	At      time.Time `json:"at"`
	Commit  string    `json:"commit"`
	Machine Machine   `json:"machine"`
	// Rounds in which everything was measured, one after another.
	Rounds  int      `json:"rounds"`
	Figures []Figure `json:"figures"`
	Ratios  []Ratio  `json:"ratios"`
	Notes   []string `json:"notes,omitempty"`

	index map[[2]string]int
}

// Figure is what one candidate did in one case.
type Figure struct {
	Case      string `json:"case"`
	Candidate string `json:"candidate"`
	Unit      string `json:"unit"`
	// Values by round; Median of them.
	Values []float64 `json:"values"`
	Median float64   `json:"median"`
}

// Ratio is a figure by another, and the goal.
type Ratio struct {
	Name string `json:"name"`
	// Value is the median over rounds, Least and Most their range.
	Value float64 `json:"value"`
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
	// Goal is ">= 0.9", say; empty if there is none.
	Goal string `json:"goal,omitempty"`
	Met  bool   `json:"met"`
}

// roundsVariable says how many rounds to run, to try a benchmark out.
const roundsVariable = "SUBSTORM_BENCH_ROUNDS"

// Rounds returns how many rounds a benchmark runs: as many as it says itself, where the
// environment does not say otherwise.
func Rounds(of int) int {
	if n, err := strconv.Atoi(os.Getenv(roundsVariable)); err == nil && n > 0 {
		return n
	}
	return of
}

// New begins a report.
func New(name string, rounds int) *Report {
	return &Report{Name: name, At: time.Now().UTC(), Commit: commit(), Machine: describe(), Rounds: rounds, index: map[[2]string]int{}}
}

// Each yields the number of each round, from 0, and says on standard error when a round is done.
func (r *Report) Each() iter.Seq[int] {
	return func(yield func(int) bool) {
		for round := range r.Rounds {
			if !yield(round) {
				return
			}
			fmt.Fprintf(os.Stderr, "round %d of %d is done\n", round+1, r.Rounds)
		}
	}
}

// Note adds a line that belongs to the figures.
func (r *Report) Note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Add notes a value of a round.
func (r *Report) Add(name, candidate, unit string, value float64) {
	key := [2]string{name, candidate}
	i, ok := r.index[key]
	if !ok {
		i = len(r.Figures)
		r.index[key] = i
		r.Figures = append(r.Figures, Figure{Case: name, Candidate: candidate, Unit: unit})
	}
	f := &r.Figures[i]
	f.Values = append(f.Values, value)
	f.Median = Median(f.Values)
}

// Values returns what a candidate did in a case, by round; nil for nothing.
func (r *Report) Values(name, candidate string) []float64 {
	if i, ok := r.index[[2]string{name, candidate}]; ok {
		return r.Figures[i].Values
	}
	return nil
}

// Pair is a numerator and a denominator, each a case and a candidate.
type Pair struct{ Case, Candidate, OfCase, OfCandidate string }

// Compare adds the ratio of pairs: the median of their geometric means in each round. Op is ">=" or "<=", or empty without a goal.
func (r *Report) Compare(name string, pairs []Pair, op string, goal float64) Ratio {
	var rounds []float64
	for round := range r.Rounds {
		sum, n := 0.0, 0
		for _, p := range pairs {
			a, b := r.Values(p.Case, p.Candidate), r.Values(p.OfCase, p.OfCandidate)
			if round < len(a) && round < len(b) && a[round] > 0 && b[round] > 0 {
				sum, n = sum+math.Log(a[round]/b[round]), n+1
			}
		}
		if n > 0 {
			rounds = append(rounds, math.Exp(sum/float64(n)))
		}
	}
	return r.ratio(name, rounds, op, goal)
}

// Bound adds a figure that is to be compared with a number, not with a peer.
func (r *Report) Bound(name string, values []float64, op string, goal float64) Ratio {
	return r.ratio(name, values, op, goal)
}

func (r *Report) ratio(name string, rounds []float64, op string, goal float64) Ratio {
	ratio := Ratio{Name: name, Met: true}
	if len(rounds) > 0 {
		ratio.Value, ratio.Least, ratio.Most = Median(rounds), slices.Min(rounds), slices.Max(rounds)
	}
	if op != "" {
		ratio.Goal = fmt.Sprintf("%s %g", op, goal)
		ratio.Met = op == ">=" && ratio.Value >= goal || op == "<=" && ratio.Value <= goal
		ratio.Met = ratio.Met && len(rounds) > 0
	}
	r.Ratios = append(r.Ratios, ratio)
	return ratio
}

// Median of values; not a number if there are none.
func Median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	if n == 0 {
		return math.NaN()
	}
	return (s[(n-1)/2] + s[n/2]) / 2
}

// Print writes the table of medians, the notes, and the ratios last.
func (r *Report) Print(out io.Writer) error {
	fmt.Fprintf(out, "\n%s: medians of %d interleaved rounds; %s\n\n", r.Name, r.Rounds, r.Machine)
	var cases, candidates []string
	for _, f := range r.Figures {
		if !slices.Contains(cases, f.Case) {
			cases = append(cases, f.Case)
		}
		if head := f.Candidate + ", " + f.Unit; !slices.Contains(candidates, head) {
			candidates = append(candidates, head)
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "case\t%s\t\n", strings.Join(candidates, "\t"))
	for _, c := range cases {
		fmt.Fprintf(w, "%s\t", c)
		for _, head := range candidates {
			at := strings.LastIndex(head, ", ")
			i, ok := r.index[[2]string{c, head[:at]}]
			if !ok || r.Figures[i].Unit != head[at+2:] {
				fmt.Fprint(w, "-\t")
				continue
			}
			fmt.Fprintf(w, "%s\t", digits(r.Figures[i].Median))
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, n := range r.Notes {
		fmt.Fprintln(out, n)
	}
	for _, ratio := range r.Ratios {
		line := fmt.Sprintf("ratio %s %s", ratio.Name, digits(ratio.Value))
		if ratio.Goal != "" {
			line += " goal " + ratio.Goal
		}
		if !ratio.Met {
			line += "  (missed)"
		}
		fmt.Fprintln(out, line)
	}
	return nil
}

// digits shows three significant ones.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// Finish writes bench/results/<name>.json of the checkout, and prints the report.
func (r *Report) Finish() error {
	checkout, err := testenv.Checkout()
	if err != nil {
		return err
	}
	dir := filepath.Join(checkout, "bench", "results")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("keep the results: %w", err)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, r.Name+".json"), append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("keep the results: %w", err)
	}
	return r.Print(os.Stdout)
}
