// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

var update = flag.Bool("update", false, "write testdata/*.out.yaml anew")

// object is a line of a golden file: the rest of its entry follows from that.
type object struct {
	Path       string     `json:"path"`
	ID         string     `json:"id,omitempty"`
	Content    string     `json:"content,omitempty"`
	Version    int        `json:"version,omitempty"`
	Became     []became   `json:"became,omitempty"`
	Observed   *time.Time `json:"observed,omitempty"`
	Held, Gone bool       `json:",omitempty"`
	// NoCause: it is listed by an older Substorm, whose index has no Cause.
	NoCause bool `json:"noCause,omitempty"`
}

// became is one of the changes that an archivist makes to a listed object.
type became string

func (b became) apply(r *wire.Record, at time.Time) {
	switch b {
	case "Superseded":
		r.Supersede()
	case "Retracted":
		r.Retract("a lamp", "anna", at)
	case "Restored":
		r.Restore("it was none", "anna", at, false)
	case "Purged":
		r.Purge("a face", "anna", at)
	case "Expired":
		r.Expire("expired: kept for 720h0m0s", at)
	default:
		panic(b)
	}
}

// record is the object as the archivist lists it.
func (o object) record() wire.Record {
	content := cmp.Or(o.Content, o.Path)
	r := wire.Record{Path: o.Path, State: wire.StateCurrent, Version: o.Version, Size: int64(len(content)), Digest: sha256.Sum256([]byte(content)),
		ID: cmp.Or(o.ID, fmt.Sprintf("%s#%d-%.8s", o.Path, o.Version, content)), ObservedFrom: o.Observed, ReceivedAt: time.Date(2015, 3, 17, 12, 0, 0, 0, time.UTC)}
	for i, b := range o.Became {
		b.apply(&r, r.ReceivedAt.Add(time.Duration(i+1)*time.Hour))
	}
	return r
}

func (o object) entry() mirrorindex.Entry {
	r := o.record()
	e := mirrorindex.EntryOf(o.Path, &r)
	if o.NoCause {
		e.State, e.Cause, e.Retracted = r.State, "", false
	}
	return e
}

// given is what a golden file plans for: what the mirror knew of a day, and what the other
// side answers.
type given struct {
	Ours     []object `json:"ours,omitempty"`
	Theirs   []object `json:"theirs,omitempty"`
	More     bool     `json:"more,omitempty"`
	Policy   plan.Policy
	From, To time.Time
}

// planned is what a run must do.
type planned struct {
	Lines  []string `json:"lines,omitempty"`
	Fetch  []string `json:"fetch,omitempty"`
	Remove []string `json:"remove,omitempty"`
	// Kept are retractions and purges that are not listed any more.
	Kept int `json:"kept,omitempty"`
	// After are the lines once all that is done.
	After []string `json:"after,omitempty"`
}

func TestGolden(t *testing.T) {
	golden(t, "testdata/*.in.yaml", func(_ *testing.T, g given) any { return planOf(g) })
}

// golden compares what is planned for each file with what stands beside it.
func golden[G any](t *testing.T, pattern string, planned func(*testing.T, G) any) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".in.yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var g G
			if err := yaml.UnmarshalStrict(text, &g); err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(planned(t, g))
			if err != nil {
				t.Fatal(err)
			}
			out := strings.Replace(file, ".in.", ".out.", 1)
			if *update {
				if err := os.WriteFile(out, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("(-want +got; -update writes it)\n%s", diff)
			}
		})
	}
}

func planOf(g given) (p planned) {
	var ours []plan.Line
	for _, o := range g.Ours {
		ours = append(ours, plan.Line{Entry: o.entry(), Held: o.Held, Gone: o.Gone})
	}
	var theirs []mirrorindex.Entry
	for _, o := range g.Theirs {
		theirs = append(theirs, o.entry())
	}
	lines, kept := g.Policy.Merge(ours, theirs, g.More)
	p.Lines, p.Kept = show(lines), kept
	for _, i := range (plan.Selection{ObservedFrom: g.From, ObservedTo: g.To}).Missing(lines) {
		p.Fetch = append(p.Fetch, lines[i].Path)
		lines[i].Held = true
	}
	for _, i := range g.Policy.Surplus(lines) {
		p.Remove = append(p.Remove, lines[i].Path)
	}
	p.After = show(g.Policy.Removed(lines))
	return p
}

func show(lines []plan.Line) (all []string) {
	for _, l := range lines {
		text := fmt.Sprintf("%s %s", l.Path, l.Is())
		if l.Version > 0 {
			text += fmt.Sprintf(" v%d", l.Version)
		}
		if l.Held {
			text += " held"
		}
		if l.Gone {
			text += " gone"
		}
		all = append(all, text)
	}
	return all
}

func TestAllow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		percent, remove, takenBack, before, held int
		stops                                    bool
	}{
		{10, 10, 10, 0, 100, false}, {10, 11, 0, 0, 100, true}, {0, 100, 100, 0, 100, false}, {10, 1, 1, 0, 3, false}, {10, 2, 2, 0, 3, true}, {10, 2, 2, 0, 19, true},
		{100, 5, 5, 0, 5, false}, {10, 10, 5, 5, 100, false}, {10, 10, 5, 6, 100, true}, {10, 10, 0, 10, 100, false}, {10, 1, 1, 1, 3, true}, {0, 1, 1, 100, 3, false},
	} {
		err := plan.Policy{SafetyStop: c.percent}.Allow(c.remove, c.takenBack, c.before, c.held)
		var stop *plan.SafetyStopError
		if errors.As(err, &stop) != c.stops {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Days come in bundles that are small enough, each object once.
func TestBatches(t *testing.T) {
	t.Parallel()
	var all []plan.Wanted
	for d := range 40 {
		w := plan.Wanted{Instrument: "camera", Day: wire.Day(fmt.Sprintf("2015-03-%02d", d+1))}
		for i := range 100 * (d + 1) {
			e := object{Path: fmt.Sprintf("%d/%d", d, i)}.entry()
			e.Size = int64(i%50) * 1000
			if i == 7 {
				e.Size = plan.LargeFrom
			}
			l := plan.Line{Entry: e, Held: d%3 == 0 && i%2 == 0}
			if w.Lines = append(w.Lines, l); !l.Held {
				w.Missing = append(w.Missing, i)
			}
		}
		all = append(all, w)
	}
	batches, large := plan.Batches(all)
	seen := map[[2]int]int{}
	for _, p := range large {
		seen[[2]int{p.Of, p.Missing[0]}]++
		if all[p.Of].Lines[p.Missing[0]].Size < plan.LargeFrom {
			t.Error("a small object is fetched by itself")
		}
	}
	for _, b := range batches {
		question, bytes := 0, int64(0)
		for i, q := range b.Questions {
			text, err := json.Marshal(q)
			if err != nil {
				t.Fatal(err)
			}
			question += len(text) + 1
			if len(q.IDs) > 0 && len(q.IDs) != len(b.Parts[i].Missing) {
				t.Errorf("%d IDs for %d objects", len(q.IDs), len(b.Parts[i].Missing))
			}
			for n, at := range b.Parts[i].Missing {
				l := &all[b.Parts[i].Of].Lines[at]
				bytes += l.Size
				seen[[2]int{b.Parts[i].Of, at}]++
				if len(q.IDs) > 0 && q.IDs[n] != l.ID {
					t.Error("the IDs are those of others")
				}
			}
		}
		if question > mirrorindex.MaxQuestionBytes || bytes != b.Bytes || bytes > 17<<20 {
			t.Errorf("a batch of %d bytes (%d) asks with %d", bytes, b.Bytes, question)
		}
	}
	for of, w := range all {
		for _, i := range w.Missing {
			if n := seen[[2]int{of, i}]; n != 1 {
				t.Fatalf("object %d of day %d is in %d batches", i, of, n)
			}
		}
	}
	if len(batches) > 300 {
		t.Errorf("%d bundles", len(batches))
	}
}

func TestChanged(t *testing.T) {
	t.Parallel()
	at := func(text string) *time.Time {
		d, err := time.Parse(time.DateOnly, text)
		if err != nil {
			t.Fatal(err)
		}
		return &d
	}
	lines := []mirrorindex.DaysLine{
		{Month: "2026-08", Tag: "1"}, {Month: "2026-09", Tag: "2", ObservedFrom: at("2015-03-17")}, {Day: "2026-10-01", Tag: "3"}, {Day: "2026-10-02", Tag: "4"},
	}
	known := plan.Known{Months: map[string]string{"2026-08": "1"}, Days: map[wire.Day]plan.KnownDay{"2026-10-01": {Tag: "3"}, "2026-09-09": {}, "2026-07-01": {}, "2026-10-05": {}}}
	names := func(all []mirrorindex.DaysLine) (names []string) {
		for _, l := range all {
			names = append(names, l.Month+string(l.Day))
		}
		return names
	}
	if got := names(plan.Selection{}.Changed(lines, known)); !gocmp.Equal(got, []string{"2026-09", "2026-10-02"}) {
		t.Errorf("changed: %q", got)
	}
	if got := names(plan.Selection{ObservedTo: *at("2020-01-01")}.Changed(lines, known)); !gocmp.Equal(got, []string{"2026-09"}) {
		t.Errorf("observed before: %q", got)
	}
}

// All of a day is asked for without names only where all that is current in it is missing, and nothing else.
func TestWholeDay(t *testing.T) {
	t.Parallel()
	lines := func(objects ...object) (all []plan.Line) {
		for _, o := range objects {
			all = append(all, plan.Line{Entry: o.entry(), Held: o.Held})
		}
		return all
	}
	a, b, old := object{Path: "a"}, object{Path: "b"}, object{Path: "c", Became: []became{"Superseded"}}
	held := b
	held.Held = true
	for name, c := range map[string]struct {
		wanted plan.Wanted
		named  bool
	}{
		"all":              {plan.Wanted{Lines: lines(a, b, old), Missing: []int{0, 1}}, false},
		"some":             {plan.Wanted{Lines: lines(a, held), Missing: []int{0}}, true},
		"superseded, too":  {plan.Wanted{Lines: lines(a, held, old), Missing: []int{0, 2}}, true},
		"not all is known": {plan.Wanted{Lines: lines(a, b), Missing: []int{0, 1}, Partial: true}, true},
	} {
		batches, large := plan.Batches([]plan.Wanted{c.wanted})
		if len(batches) != 1 || len(large) != 0 || len(batches[0].Questions[0].IDs) > 0 != c.named {
			t.Errorf("%s: %+v", name, batches)
		}
	}
}
