// SPDX-License-Identifier: Apache-2.0

package simulate_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/operator/surge"
	"github.com/substorm/substorm/operator/surge/simulate"
)

func march(t *testing.T) simulate.Recording {
	t.Helper()
	f, err := os.Open("testdata/kp-2015-03.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	recorded, err := simulate.Read("kp-2015-03.csv", f)
	if err != nil {
		t.Fatal(err)
	}
	return recorded
}

func at(text string) time.Time {
	t, err := time.Parse("2006-01-02T15:04", text)
	if err != nil {
		panic(err)
	}
	return t
}

func kind(name string, levels []surge.Level) simulate.Kind {
	for _, k := range simulate.Kinds(levels) {
		if k.Name == name {
			return k
		}
	}
	panic(name)
}

func TestRead(t *testing.T) {
	kp := march(t)[surge.Kp]
	if len(kp) != 31*8 || kp[0].From != at("2015-03-01T00:00") || kp[0].Value != 5 || kp[247].To != at("2015-04-01T00:00") {
		t.Errorf("%d values, from %v to %v", len(kp), kp[0], kp[len(kp)-1])
	}
	for name, c := range map[string]struct{ text, want string }{
		"empty":          {"# nothing\n", "kp.csv: the file has no row of names"},
		"no header":      {"# x\n2015-03-17T12:00:00Z,7.7\n", "kp.csv: column \"2015-03-17t12:00:00z\""},
		"no values":      {"time,kp\n", "kp.csv: the file has no value"},
		"no time":        {"time,kp\nyesterday,3\n", "kp.csv: line 2: "},
		"no number":      {"time,kp\n2015-03-17T12:00:00Z,7+\n", "kp.csv: line 2: "},
		"more than nine": {"time,kp\n2015-03-17T12:00:00Z,12\n", "kp.csv: line 2: "},
		"thirty years":   {"time,kp\n1995-03-17T12:00:00Z,3\n2025-03-17T12:00:00Z,3\n", "kp.csv has Kp from 1995-03-17 to 2025-03-17: cut it to two years at most"},
		"each hour":      {"time,kp\n2015-03-17T12:00:00Z,5\n2015-03-17T13:00:00Z,3\n2015-03-17T14:00:00Z,1\n", "kp.csv: line 3: Kp 3 and the 5 of line 2 are of the same time: "},
		"no Kp":          {"time,bz\n2015-03-17T12:00:00Z,-3\n", "kp.csv has no Kp: "},
	} {
		if _, err := simulate.Read("kp.csv", strings.NewReader(c.text)); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReadWind: a file with the solar wind makes the level begin before Kp is known.
func TestReadWind(t *testing.T) {
	var file strings.Builder
	file.WriteString("time,kp,bz,speed\n")
	for i := range 12 * 60 {
		now := at("2015-03-17T00:00").Add(time.Duration(i) * time.Minute)
		kp, bz := "", 3
		if i%180 == 0 {
			kp = "2"
		}
		if i >= 180 {
			bz = -15
		}
		fmt.Fprintf(&file, "%s,%s,%d,600\n", now.Format(time.RFC3339), kp, bz)
	}
	recorded, err := simulate.Read("wind.csv", strings.NewReader(file.String()))
	if err != nil {
		t.Fatal(err)
	}
	s := simulate.Draw(recorded, 1, 0)
	r := simulate.Run(s, kind(simulate.NameOurs, recorded.Levels()), true)
	if len(s.Sources) != 3 || r.Raised != 1 {
		t.Errorf("%d sources, %d levels began", len(s.Sources), r.Raised)
	}
	for _, p := range r.Points {
		if p.Level != "" {
			if want := at("2015-03-17T03:12"); p.At != want {
				t.Errorf("the level begins at %s, not %s", p.At, want)
			}
			break
		}
	}
}

func TestStorms(t *testing.T) {
	want := []simulate.Span{
		{From: at("2015-03-01T00:00"), To: at("2015-03-02T09:00")},
		{From: at("2015-03-17T06:00"), To: at("2015-03-19T12:00")},
		{From: at("2015-03-22T06:00"), To: at("2015-03-22T09:00")},
	}
	if diff := cmp.Diff(want, simulate.Storms(march(t)[surge.Kp])); diff != "" {
		t.Errorf("storms of March 2015 (-want +got):\n%s", diff)
	}
}

// step is a load that grows to so many times as much within a second.
func step(seed uint64, factor float64) *simulate.Scenario {
	begins := at("2015-03-10T12:00")
	return &simulate.Scenario{
		Span:   simulate.Span{From: begins.Add(-time.Hour), To: begins.Add(time.Hour)},
		Crowds: []simulate.Crowd{{Begins: begins, Grows: time.Second, Stays: 2 * time.Hour, Factor: factor}},
		Start:  20 * time.Second, Seed: seed,
	}
}

// TestHPAReacts: the model begins to react to a step when HorizontalPodAutoscaler was measured to: after 27 s on average, 55 at worst.
func TestHPAReacts(t *testing.T) {
	var sum, most time.Duration
	const seeds = 300
	for seed := range uint64(seeds) {
		s := step(seed, 4)
		begins := s.Crowds[0].Begins
		took := reaction(t, s, kind(simulate.NameHPA, nil), begins)
		sum, most = sum+took, max(most, took)
	}
	t.Logf("%s on average, %s at worst", sum/seeds, most)
	if average := sum / seeds; average < 22*time.Second || average > 32*time.Second || most < 40*time.Second || most > 60*time.Second {
		t.Errorf("%s on average, %s at worst", average, most)
	}
}

// spy notes when a policy first asks for more.
type spy struct {
	simulate.Policy
	after time.Time
	took  time.Duration
}

func (s *spy) Decide(now time.Time, seen simulate.Seen) int32 {
	n := s.Policy.Decide(now, seen)
	if s.took == 0 && now.After(s.after) && n > seen.Replicas {
		s.took = now.Sub(s.after)
	}
	return n
}

func reaction(t *testing.T, s *simulate.Scenario, k simulate.Kind, begins time.Time) time.Duration {
	t.Helper()
	var is *spy
	simulate.Run(s, simulate.Kind{New: func(s *simulate.Scenario) simulate.Policy {
		is = &spy{Policy: k.New(s), after: begins}
		return is
	}}, false)
	if is.took == 0 {
		t.Fatalf("%s never reacted", k.Name)
	}
	return is.took
}

// TestOursReacts: within five seconds, with and without space weather.
func TestOursReacts(t *testing.T) {
	for _, factor := range []float64{3, 4, 8} {
		s := step(1, factor)
		if took := reaction(t, s, kind(simulate.NameOurs, simulate.DefaultLevels()), s.Crowds[0].Begins); took > 5*time.Second {
			t.Errorf("%.0f times the load: after %s", factor, took)
		}
	}
}

// TestDraws checks what must hold in each draw, for any policy.
func TestDraws(t *testing.T) {
	kp := march(t)
	kinds := simulate.Kinds(simulate.DefaultLevels())
	draw := func(n int) *simulate.Scenario { return simulate.Draw(kp, 1, n) }
	const draws = 2
	first, err := simulate.Compare(context.Background(), kinds, draws, draw, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := simulate.Compare(context.Background(), kinds, 1, draw, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range kinds {
		if diff := cmp.Diff(first[i][0], again[i][0]); diff != "" {
			t.Errorf("the same draw came to something else:\n%s", diff)
		}
		for n := range draws {
			r, oracle := first[i][n], first[len(kinds)-1][n]
			if r.Offered != oracle.Offered {
				t.Errorf("draw %d, %s: %f were offered, %f to the oracle", n, k.Name, r.Offered, oracle.Offered)
			}
			if r.PodHours < oracle.PodHours && r.Refused == 0 {
				t.Errorf("draw %d, %s: nothing was refused with %f pod-hours, and the oracle needs %f", n, k.Name, r.PodHours, oracle.PodHours)
			}
			if isOracle := k.Name == simulate.NameOracle || k.Name == simulate.NamePackedOracle; isOracle && (r.Refused > 1e-9 || r.Needless > 0) {
				t.Errorf("draw %d: an oracle refuses %f, and is needless %d times", n, r.Refused, r.Needless)
			}
		}
	}
}

// TestCancelled: a comparison ends when it is cancelled.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	kp := march(t)
	_, err := simulate.Compare(ctx, simulate.Kinds(nil)[:1], 100000, func(n int) *simulate.Scenario {
		cancel()
		return simulate.Draw(kp, 1, n)
	}, nil)
	if err == nil {
		t.Error("it went on")
	}
}

// TestOutage: nothing is published during an outage, and what was missed is published after it.
func TestOutage(t *testing.T) {
	kp := march(t)
	// Every sample is published late, while the storm of the 17th grows: the level begins after the outage.
	quiet := &simulate.Scenario{Span: simulate.Span{From: at("2015-03-16T00:00"), To: at("2015-03-18T00:00")}, Start: 20 * time.Second}
	for name, c := range map[string]struct {
		outages []simulate.Span
		want    time.Time
	}{
		"none": {nil, at("2015-03-17T09:15")},
		"one":  {[]simulate.Span{{From: at("2015-03-17T08:00"), To: at("2015-03-17T13:00")}}, at("2015-03-17T13:00")},
	} {
		s := *quiet
		s.Sources = []simulate.Source{simulate.KpSource(kp[surge.Kp], c.outages...)}
		r := simulate.Run(&s, kind(simulate.NameOurs, simulate.DefaultLevels()), true)
		for _, p := range r.Points {
			if p.Level != "" {
				if p.At != c.want {
					t.Errorf("%s: level %s begins at %s, not %s", name, p.Level, p.At, c.want)
				}
				break
			}
		}
		if r.Raised != 2 {
			t.Errorf("%s: %d levels began", name, r.Raised)
		}
	}
}

// TestQuiet: a month without storms raises no floor.
func TestQuiet(t *testing.T) {
	s, err := simulate.Quiet(march(t), 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := simulate.Run(s, kind(simulate.NameOurs, simulate.WindLevels()), false)
	if r.Refused > 0 || s.To.Sub(s.From) != 31*24*time.Hour {
		t.Errorf("%+v", r)
	}
	t.Logf("levels began %d times; %d scale-ups, %d of them needless", r.Raised, r.ScaleUps, r.Needless)
	storms := []surge.Sample{{From: at("2015-03-17T12:00"), To: at("2015-03-17T15:00"), Value: 7}}
	if _, err := simulate.Quiet(simulate.Recording{surge.Kp: storms}, 1, 0); err == nil {
		t.Error("a month of storms is quiet")
	}
}
