// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func load(t *testing.T, name string) Model {
	t.Helper()
	m, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// drawn returns at most n events of a plan.
func drawn(m Model, seed uint64, d time.Duration, n int) []event {
	var all []event
	for e := range plan(m, seed, d) {
		if len(all) == n {
			break
		}
		all = append(all, e)
	}
	return all
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const mixture = `
sources:
- {name: camera, count: 5, sizes: [200k, 1Mi], deviationPercent: 20, every: 30s, poisson: true}
- {name: probe, protocol: UDP, sizes: [140], rate: 20, bursts: {lasting: 500ms, silence: 1500ms}}
`

// TestSeedDecides: one seed is one plan, another seed another one; time goes forward.
func TestSeedDecides(t *testing.T) {
	same := cmp.AllowUnexported(event{})
	for _, name := range []string{"rtemp", "uarc", "oasis", "evlbi", file(t, mixture)} {
		m := load(t, name)
		a, b, other := drawn(m, 7, 10*time.Minute, 3000), drawn(m, 7, 10*time.Minute, 3000), drawn(m, 8, 10*time.Minute, 3000)
		if diff := cmp.Diff(a, b, same); diff != "" {
			t.Errorf("%s: two plans of one seed differ:\n%s", m.Name, diff)
		}
		if cmp.Equal(a, other, same) {
			t.Errorf("%s: two seeds, one plan", m.Name)
		}
		for i := 1; i < len(a); i++ {
			if a[i].at < a[i-1].at {
				t.Fatalf("%s: event %d is due at %v, the one before it at %v", m.Name, i, a[i].at, a[i-1].at)
			}
		}
	}
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance*want {
		t.Errorf("%s: %g, want %g within %g %%", what, got, want, 100*tolerance)
	}
}

// count returns events and bytes by source.
func count(m Model, d time.Duration) (events, bytes map[string]float64) {
	events, bytes = map[string]float64{}, map[string]float64{}
	for e := range plan(m, 1, d) {
		name := m.Sources[e.source].Name
		events[name]++
		bytes[name] += float64(e.size)
	}
	return events, bytes
}

func TestUARCIsTheStudys(t *testing.T) {
	events, bytes := count(load(t, "uarc"), time.Hour)
	for name, want := range map[string][2]float64{ // an hour's objects, and bytes each
		"fabry-perot": {20, 250}, "magnetometer": {60, 1500}, "radar": {720, 5300}, "all-sky": {60, 20_000},
	} {
		if events[name] != want[0] || bytes[name] != want[0]*want[1] {
			t.Errorf("%s: %g objects of %g bytes in an hour, want %g of %g", name, events[name], bytes[name], want[0], want[0]*want[1])
		}
	}
}

func TestOASISIsTheStudys(t *testing.T) {
	events, bytes := count(load(t, "oasis"), time.Minute)
	if math.Abs(events["processor"]-94_294) > 1 || math.Abs(events["memory"]-67_344) > 1 {
		t.Errorf("a minute has %v, want 94294 and 67344", events)
	}
	if bytes["processor"] != 140*events["processor"] || bytes["memory"] != 236*events["memory"] {
		t.Errorf("a minute has %v of %v", bytes, events)
	}
}

func TestRTEMPIsTheStudys(t *testing.T) {
	m := load(t, "rtemp")
	sizes := map[int64]float64{}
	all := drawn(m, 1, time.Second, 9000)
	for _, e := range all {
		sizes[e.size]++
	}
	for kib := int64(32); kib <= 8192; kib *= 2 {
		near(t, "share of a size", sizes[kib<<10]/float64(len(all)), 1.0/9, 0.15)
	}
	if len(sizes) != 9 {
		t.Errorf("%d sizes, want 9", len(sizes))
	}
}

// TestEVLBIIsTheStudys: mean flow, mean burst and mean silence.
func TestEVLBIIsTheStudys(t *testing.T) {
	const d = time.Hour
	m := load(t, "evlbi")
	_, bytes := count(m, d)
	near(t, "Mb/s", bytes["vlbi"]*8/1e6/d.Seconds(), 374.5, 0.03)

	interval := m.Sources[0].interval()
	var bursts, silence, last time.Duration
	n, begun := 0, time.Duration(-1)
	for e := range plan(m, 1, d) {
		if begun >= 0 && e.at-last > 2*interval {
			bursts, silence, n = bursts+last-begun+interval, silence+e.at-last-interval, n+1
			begun = e.at
		}
		if begun < 0 {
			begun = e.at
		}
		last = e.at
	}
	// Silences shorter than an interval or two, and bursts between them, cannot be distinguished: 2 %.
	near(t, "mean burst", (bursts / time.Duration(n)).Seconds(), 0.5, 0.1)
	near(t, "mean silence", (silence / time.Duration(n)).Seconds(), 0.5, 0.1)

	m.scale(59.6)
	if rate := m.Sources[0].Rate * 8 * (1 << 20) / 1e9; math.Abs(rate-1) > 0.001 {
		t.Errorf("--rate 59.6 makes bursts of %g Gb/s, want 1", rate)
	}
}

func TestScaledToARate(t *testing.T) {
	for _, name := range []string{"rtemp", "uarc", "oasis", "evlbi", file(t, mixture)} {
		m := load(t, name)
		m.scale(50)
		near(t, m.Name+"'s objects", float64(len(drawn(m, 3, 10*time.Minute, 1e6))), 50*600, 0.1)
	}
}

// TestPayloads: an event's bytes are the same each time, as many as it says, and different from any other event's.
func TestPayloads(t *testing.T) {
	p := newPayloads(7)
	seen := map[string]event{}
	for _, e := range []event{
		{size: minSize}, {size: 140}, {number: 1, size: 140}, {instrument: 1, size: 140}, {source: 1, size: 140},
		{size: 3 << 20}, {number: 1 << 20, size: 3 << 20},
	} {
		a, err := io.ReadAll(p.open(e))
		if err != nil || int64(len(a)) != e.size {
			t.Fatalf("%+v: %d bytes, %v", e, len(a), err)
		}
		b, _ := io.ReadAll(newPayloads(7).open(e))
		c, _ := io.ReadAll(newPayloads(8).open(e))
		if string(a) != string(b) || string(a) == string(c) {
			t.Errorf("%+v: not decided by the seed", e)
		}
		if other, ok := seen[string(a)]; ok {
			t.Errorf("%+v and %+v have the same bytes", e, other)
		}
		seen[string(a)] = e
	}
}

func TestBadModels(t *testing.T) {
	for says, text := range map[string]string{
		"unknown field":       "sources: [{name: a, sizes: [100], evry: 1s}]",
		"0 sources":           "sources: []",
		"name of its own":     "sources: [{name: a, sizes: [100]}, {name: a, sizes: [100]}]",
		"name sizes":          "sources: [{name: a}]",
		"size 1 ":             "sources: [{name: a, sizes: [1]}]",
		"size 70k":            "sources: [{name: a, protocol: UDP, rate: 1, sizes: [70k]}]",
		"neither TCP nor":     "sources: [{name: a, protocol: SCTP, sizes: [100]}]",
		"not both":            "sources: [{name: a, sizes: [100], every: 1s, rate: 1}]",
		"must be positive":    "sources: [{name: a, sizes: [100], every: -1s}]",
		"need every or rate":  "sources: [{name: a, sizes: [100], poisson: true}]",
		"lasting and silence": "sources: [{name: a, sizes: [100], rate: 1, bursts: {lasting: 1s}}]",
		"no receipt to wait":  "sources: [{name: a, protocol: UDP, sizes: [100]}]",
		"either all sources":  "sources: [{name: a, sizes: [100]}, {name: b, sizes: [100], rate: 1}]",
		"deviationPercent":    "sources: [{name: a, sizes: [100], deviationPercent: 101}]",
		"count is a number":   "sources: [{name: a, sizes: [100], count: -1}]",
	} {
		if _, err := Load(file(t, text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q in it", text, err, says)
		}
	}
	if _, err := Load("rtmep"); err == nil || !strings.Contains(err.Error(), "oasis, rtemp, uarc") {
		t.Errorf("of a name that is none: %v", err)
	}
}

func TestTargets(t *testing.T) {
	m := load(t, "uarc")
	got, err := targets(m, []string{"a:1,b:2", "radar=c:3-4", "radar=d:5"})
	want := [][]string{{"a:1", "b:2"}, {"a:1", "b:2"}, {"c:3", "c:4", "d:5"}, {"a:1", "b:2"}}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	for says, to := range map[string][]string{"nowhere to send fabry-perot": {"radar=a:1"}, "no such source": {"a:1", "rader=b:2"}, "host:port": {"a"}} {
		if _, err := targets(m, to); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want %q in it", to, err, says)
		}
	}
}
