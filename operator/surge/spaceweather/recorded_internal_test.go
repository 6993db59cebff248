// SPDX-License-Identifier: Apache-2.0

package spaceweather

import (
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/operator/surge"
)

const stPatrick = `# Planetary K index of the storm of St. Patrick's Day.
time,kp
2015-03-17T00:00:00Z,2.0
2015-03-17T03:00:00Z,4.7
2015-03-17T06:00:00Z,5.7
2015-03-17T09:00:00Z,5.0
`

// A file is replayed as if its intervals were just over.
func TestRecorded(t *testing.T) {
	// Three hours are played in 18 s.
	r, err := NewRecorded(strings.NewReader(stPatrick), RecordedConfig{Start: storm, SpeedUp: 600, Delay: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if from, to := r.Span(); !from.Equal(storm) || !to.Equal(storm.Add(73*time.Second)) {
		t.Errorf("played from %v to %v", from, to)
	}
	p, err := NewPoller(Config{Name: "replay", Source: r, Interval: time.Second, Now: func() time.Time { return storm }})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		after time.Duration
		want  string
	}{
		{0, ""},
		{18 * time.Second, ""}, // over, and known only 10 minutes later, which are played in 1 s
		{19 * time.Second, "0s+18s=2"},
		{20 * time.Second, "0s+18s=2"},
		{55 * time.Second, "0s+18s=2, 18s+18s=4.7, 36s+18s=5.7"},
		{time.Hour, "0s+18s=2, 18s+18s=4.7, 36s+18s=5.7, 54s+18s=5"},
	} {
		p.cfg.Now = func() time.Time { return storm.Add(c.after) }
		p.ask(t.Context())
		var got []string
		for _, s := range p.Signals()[0].Samples {
			got = append(got, s.From.Sub(storm).String()+"+"+told([]surge.Sample{s})[6:])
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("after %v: %v, want %s", c.after, got, c.want)
		}
	}
	if p.state.Requests[resultAnswered] != 3 || p.state.Requests[resultUnchanged] != 3 {
		t.Errorf("results %v", p.state.Requests)
	}
}

// Without a start a file is played in its own times, for those that have a clock of their own.
func TestRecordedInItsTimes(t *testing.T) {
	r, err := NewRecorded(strings.NewReader("speed, bz ,time\n,-5,2015-03-17T04:00:00Z\n500,-12,2015-03-17T04:05:00Z\n\n# a gap\n520,,2015-03-17T04:20:00Z\n530,-999.9,2015-03-17T04:25:00Z\n"), RecordedConfig{})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := r.Ask(t.Context(), time.Date(2015, 3, 17, 4, 25, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := told(answer.Samples[surge.Bz]), "04:00+5m0s=-5, 04:05+5m0s=-12"; got != want {
		t.Errorf("Bz %s, want %s", got, want)
	}
	if got, want := told(answer.Samples[surge.Speed]), "04:05+5m0s=500, 04:20+5m0s=520"; got != want {
		t.Errorf("Speed %s, want %s", got, want)
	}
}

func TestRecordedErrors(t *testing.T) {
	for file, want := range map[string]string{
		"":                                    "no row of names",
		"# nothing\n":                         "no row of names",
		"time\n2015-03-17T00:00:00Z\n":        "there must be time, and kp, bz or speed",
		"kp\n5\n":                             "there must be time",
		"time,dst\n":                          `column "dst"`,
		"time,kp,kp\n":                        "each once",
		"time,kp\n":                           "the file has no value",
		"time,kp\n2015-03-17T00:00:00Z,":      "the file has no value",
		"time,kp\n2015-03-17T00:00:00Z,12\n":  "line 2: Kp 12 is out of range",
		"# a comment\ntime,kp\nyesterday,1\n": "line 3: \"yesterday\" is not a time",
		"time,kp\n2015-03-17T00:00:00Z,1\n2015-03-17T03:00:00Z\n":                           "line 3: wrong number of fields",
		"time,kp\n2015-03-17T00:00:00Z,four\n":                                              "line 2: \"four\" is not a number",
		"time,kp\n\"2015-03-17T00:00:00Z,1\n":                                               "line",
		"time,kp\n2015-03-17T00:00:00Z,5\n2015-03-17T01:00:00Z,5\n2015-03-17T02:00:00Z,1\n": "line 4: Kp 1 and the 5 of line 2 are of the same time: Kp has one value for each three hours, here from 2015-03-17T00:00:00Z on",
		"time,kp,bz\n2015-03-17T00:00:00Z,,5\n2015-03-17T01:00:00+01:00,,-5\n":              "line 3: Bz -5 and the 5 of line 2 are of the same time: remove one",
	} {
		if _, err := NewRecorded(strings.NewReader(file), RecordedConfig{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", file, err, want)
		}
	}
	if _, err := NewRecorded(zeros{}, RecordedConfig{}); err == nil || err.Error() != "more than 64 MiB: cut the file" {
		t.Errorf("of a file without end: %.100v", err)
	}
	for _, cfg := range []RecordedConfig{{SpeedUp: -1}, {SpeedUp: 1e9}, {Delay: -time.Second}} {
		if _, err := NewRecorded(strings.NewReader(stPatrick), cfg); err == nil {
			t.Errorf("%+v is played", cfg)
		}
	}
}

// zeros is a file without end and without rows, as /dev/zero is.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// FuzzRecorded: what is played can be, and is in order.
func FuzzRecorded(f *testing.F) {
	f.Add(stPatrick)
	f.Add("time,bz,speed\n2015-03-17T00:00:00Z,-1,400\n0001-01-01T00:00:00Z,,300\n9999-01-01T00:00:00Z,-3,\n")
	f.Fuzz(func(t *testing.T, file string) {
		r, err := NewRecorded(strings.NewReader(file), RecordedConfig{})
		if err != nil {
			return
		}
		for q, samples := range r.samples {
			inOrder(t, samples)
			for _, s := range samples {
				if possible(q, s.Value) != nil {
					t.Fatalf("%s has %+v", q, s)
				}
			}
		}
		if _, err := r.Ask(t.Context(), storm); err != nil {
			t.Fatal(err)
		}
	})
}

func TestStatic(t *testing.T) {
	source, err := NewStatic(map[surge.Quantity]float64{surge.Speed: 600, surge.Kp: 7})
	if err != nil {
		t.Fatal(err)
	}
	now := storm
	p, err := NewPoller(Config{Name: "drill", Source: source, Interval: time.Minute, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		p.ask(t.Context())
		signals := p.Signals()
		if len(signals) != 2 || signals[0].Quantity != surge.Kp || signals[1].Quantity != surge.Speed {
			t.Fatalf("signals %+v", signals)
		}
		for _, s := range signals {
			newest, _ := s.Newest()
			if len(s.Samples) != 1 || !s.Fresh(now) || now.Sub(newest.From) < 48*time.Hour {
				t.Errorf("%s has %+v", s.Quantity, s.Samples)
			}
		}
		now = now.Add(time.Minute)
	}
	for _, values := range []map[surge.Quantity]float64{nil, {surge.Kp: 99}, {"Dst": -100}} {
		if _, err := NewStatic(values); err == nil {
			t.Errorf("%v is told", values)
		}
	}
}
