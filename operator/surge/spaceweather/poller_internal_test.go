// SPDX-License-Identifier: Apache-2.0

package spaceweather

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/substorm/substorm/operator/surge"
)

// scripted is a source that answers as a test has it.
type scripted struct {
	quantities []surge.Quantity
	answer     func(now time.Time) (Answer, error)
	asked      []time.Time
}

func (s *scripted) Quantities() []surge.Quantity { return s.quantities }

func (s *scripted) Ask(_ context.Context, now time.Time) (Answer, error) {
	s.asked = append(s.asked, now)
	return s.answer(now)
}

// asked are the pauses between the questions of a poller that runs for some time.
func asked(t *testing.T, s *scripted, interval, run time.Duration) (pauses []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p, err := NewPoller(Config{Name: "scripted", Source: s, Interval: interval})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), run)
		defer cancel()
		p.Run(ctx)
	})
	for i := range s.asked[1:] {
		pauses = append(pauses, s.asked[i+1].Sub(s.asked[i]))
	}
	return pauses
}

// within says whether a pause is one of a length, and up to a tenth more.
func within(pause, least time.Duration) bool { return pause >= least && pause <= least+least/10+1 }

// A source is asked once in an interval, and at another moment of it each time.
func TestInterval(t *testing.T) {
	s := &scripted{answer: func(time.Time) (Answer, error) { return Answer{Unchanged: true}, nil }}
	pauses := asked(t, s, time.Minute, time.Hour)
	different := map[time.Duration]bool{}
	for _, pause := range pauses {
		if different[pause] = true; !within(pause, time.Minute) {
			t.Errorf("a pause of %v", pause)
		}
	}
	if len(pauses) < 50 || len(different) < 10 {
		t.Errorf("%d pauses of %d lengths", len(pauses), len(different))
	}
}

// A source that fails is asked less and less often, up to a bound, and as often as before once it answers.
func TestPauseAfterFailures(t *testing.T) {
	var n int
	s := &scripted{answer: func(time.Time) (Answer, error) {
		if n++; n <= 7 {
			return Answer{}, errors.New("no answer")
		}
		return Answer{Unchanged: true}, nil
	}}
	pauses := asked(t, s, time.Minute, time.Hour)
	for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, longestPause, longestPause, longestPause, time.Minute} {
		if !within(pauses[i], want) {
			t.Errorf("pause %d is %v, want %v", i, pauses[i], want)
		}
	}
}

// A source that says when it may be asked again is not asked before, not even if it is asked less often than that.
func TestLater(t *testing.T) {
	s := &scripted{answer: func(time.Time) (Answer, error) {
		return Answer{}, &LaterError{After: 30 * time.Minute, Err: errors.New("too many")}
	}}
	for _, pause := range asked(t, s, time.Minute, 3*time.Hour) {
		if !within(pause, 30*time.Minute) {
			t.Errorf("a pause of %v", pause)
		}
	}
}

// Samples that are refused beside good ones are no error of the source: the log says what the first of them was, once.
func TestRefusedIsLogged(t *testing.T) {
	refused := []int{0, 2, 3, 0, 1}
	n := -1
	s := &scripted{answer: func(now time.Time) (Answer, error) {
		r := newReadings(now)
		r.add(surge.Kp, now.Add(-3*time.Hour), 3*time.Hour, 5, "")
		n = min(n+1, len(refused)-1)
		for range refused[n] {
			r.add(surge.Kp, now, 3*time.Hour, 99, "")
		}
		return r.done()
	}}
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		p, err := NewPoller(Config{Name: "kp", Source: s, Interval: time.Minute, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		for range refused {
			p.ask(t.Context())
		}
		if said := log.String(); strings.Count(said, "\n") != 2 || !strings.Contains(said, "samples=2") || !strings.Contains(said, "samples=1") || !strings.Contains(said, "Kp 99 is out of range") {
			t.Errorf("the log says:\n%s", said)
		}
	})
}

// A lasting error is reported once, with the time of its beginning, though times, ports and counts in its text differ with each question.
func TestErrorThatLasts(t *testing.T) {
	for name, c := range map[string]struct{ same, other error }{
		"a connection is reset": {errors.New("read tcp 10.0.0.7:N->192.0.2.1:443: read: connection reset by peer"), errors.New("dial tcp 192.0.2.1:443: connect: connection refused")},
		"several addresses":     {errors.New("dial tcp [2001:db8::aN]:443: connect: no route to host"), errors.New("lookup example.org on 10.0.0.10:53: no such host")},
		"a clock is wrong":      {errors.New("has no usable sample; the first of N that were refused: a time to come: this clock says 2026-11-27T13:4N:00Z"), errors.New("is an array without records")},
		"a certificate":         {errors.New("certificate has expired or is not yet valid: current time 2026-11-27T13:46:0N+01:00 is after 2026-11-01T00:00:00Z"), errors.New("certificate signed by unknown authority")},
		"another status":        {errors.New("answers 500 Internal Server Error"), errors.New("answers 503 Service Unavailable")},
		"later":                 {&LaterError{time.Minute, errors.New("answers 429 Too Many Requests after 1mNs")}, errors.New("answers 429 Too Many Requests")},
	} {
		t.Run(name, func(t *testing.T) {
			var n int
			fails := c.same
			s := &scripted{answer: func(time.Time) (Answer, error) {
				n++
				if later := (*LaterError)(nil); errors.As(fails, &later) {
					return Answer{}, &LaterError{time.Duration(n) * time.Second, errors.New(strings.ReplaceAll(later.Err.Error(), "N", fmt.Sprint(n)))}
				}
				if fails != nil {
					return Answer{}, errors.New(strings.ReplaceAll(fails.Error(), "N", fmt.Sprint(n)))
				}
				return Answer{Unchanged: true}, nil
			}}
			var log strings.Builder
			now := storm
			p, err := NewPoller(Config{Name: "kp", Source: s, Interval: time.Minute, Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			ask := func() State {
				now = now.Add(time.Minute)
				p.ask(t.Context())
				return p.State()
			}
			first, since := ask(), now
			for range 3 {
				if is := ask(); is.Error != first.Error || !is.FailingSince.Equal(since) {
					t.Errorf("%q since %v is told as %q since %v", first.Error, since, is.Error, is.FailingSince)
				}
			}
			if lines := strings.Count(log.String(), "\n"); lines != 1 || first.Error == "" {
				t.Errorf("%d lines:\n%s", lines, log.String())
			}
			fails = c.other
			if is := ask(); is.Error == first.Error || !is.FailingSince.Equal(since) || strings.Count(log.String(), "\n") != 2 {
				t.Errorf("after another error: %q since %v:\n%s", is.Error, is.FailingSince, log.String())
			}
			fails = nil
			if is := ask(); is.Error != "" || !is.FailingSince.IsZero() {
				t.Errorf("once it answers: %q since %v", is.Error, is.FailingSince)
			}
			fails = c.same
			if is := ask(); is.Error == "" || !is.FailingSince.Equal(now) {
				t.Errorf("once it fails again: %q since %v, and it is %v", is.Error, is.FailingSince, now)
			}
		})
	}
}

// A poller ends with its context, also while its source is silent.
func TestRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &silent{}
		p, err := NewPoller(Config{Name: "silent", Source: server, Interval: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { p.Run(ctx); close(ended) }()
		synctest.Wait()
		cancel()
		<-ended
		if state := p.State(); state.Error != "" {
			t.Errorf("the end is taken for an error: %s", state.Error)
		}
	})
}

type silent struct{}

func (*silent) Quantities() []surge.Quantity { return []surge.Quantity{surge.Kp} }
func (*silent) Ask(ctx context.Context, _ time.Time) (Answer, error) {
	<-ctx.Done()
	return Answer{}, ctx.Err()
}

// minutes are samples of the solar wind; the first begins from minutes after a time.
func minutes(after time.Time, from int, spacecraft string, values ...float64) (samples []surge.Sample) {
	for i, v := range values {
		at := after.Add(time.Duration(from+i) * time.Minute)
		samples = append(samples, surge.Sample{From: at, To: at.Add(time.Minute), Value: v, Spacecraft: spacecraft})
	}
	return samples
}

func TestMerged(t *testing.T) {
	at := storm
	for _, c := range []struct {
		name            string
		known, answered []surge.Sample
		want            string
	}{
		{name: "nothing"},
		{name: "first", answered: minutes(at, 0, "", 1, 2), want: "22:30+1m0s=1, 22:31+1m0s=2"},
		{name: "newer", known: minutes(at, 0, "", 1, 2), answered: minutes(at, 2, "", 3), want: "22:30+1m0s=1, 22:31+1m0s=2, 22:32+1m0s=3"},
		{name: "corrected", known: minutes(at, 0, "", 1, 2, 3), answered: minutes(at, 1, "", 9, 4), want: "22:30+1m0s=1, 22:31+1m0s=9, 22:32+1m0s=4"},
		{name: "older", known: minutes(at, 2, "", 3), answered: minutes(at, 0, "", 1), want: "22:30+1m0s=1, 22:32+1m0s=3"},
		{name: "no order", answered: append(minutes(at, 2, "", 3), minutes(at, 0, "", 1, 2)...), want: "22:30+1m0s=1, 22:31+1m0s=2, 22:32+1m0s=3"},
		{name: "another grid: what begins within is replaced, what is cut ends earlier", want: "22:30+30s=1, 22:30+1m0s=7, 22:32+1m0s=3",
			known: minutes(at, 0, "", 1, 2, 3), answered: minutes(at.Add(30*time.Second), 0, "", 7)},
	} {
		t.Run(c.name, func(t *testing.T) {
			known := told(c.known)
			got := merged(c.known, c.answered)
			inOrder(t, got)
			if told(got) != c.want {
				t.Errorf("merged %s\nwant   %s", told(got), c.want)
			}
			if told(c.known) != known {
				t.Errorf("the known ones were changed to %s", told(c.known))
			}
		})
	}
}

// Samples are kept for some hours, and the newest for ever.
func TestKept(t *testing.T) {
	now := storm
	s := &scripted{quantities: []surge.Quantity{surge.Bz}, answer: func(now time.Time) (Answer, error) {
		return Answer{Samples: map[surge.Quantity][]surge.Sample{surge.Bz: minutes(now, -1, "ACE", -5)}}, nil
	}}
	p, err := NewPoller(Config{Name: "wind", Source: s, Interval: time.Minute, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	for range 600 {
		p.ask(t.Context())
		now = now.Add(time.Minute)
	}
	signal := p.Signals()[0]
	inOrder(t, signal.Samples)
	if n := len(signal.Samples); n < 120 || n > 181 {
		t.Errorf("%d minutes are kept", n)
	}
	now = now.Add(24 * time.Hour)
	s.answer = func(time.Time) (Answer, error) {
		return Answer{Samples: map[surge.Quantity][]surge.Sample{surge.Bz: minutes(storm, 0, "ACE", -5)}}, nil
	}
	p.ask(t.Context())
	signal = p.Signals()[0]
	if age, is := signal.Age(now); len(signal.Samples) != 1 || !is || age < 24*time.Hour || signal.Fresh(now) {
		t.Errorf("a day later it has %d samples, of age %v", len(signal.Samples), age)
	}
	if state := p.State(); state.Spacecraft != "ACE" || state.Newest[surge.Bz].Value != -5 {
		t.Errorf("state %+v", state)
	}
	if got := recent(minutes(now, -9000, "", make([]float64, 9000)...), now, 1000*time.Hour); len(got) != maxKept || !got[maxKept-1].To.Equal(now) {
		t.Errorf("%d samples are kept", len(got))
	}
}

// twoSources returns a set of two sources of Bz; the second one also has the speed.
func twoSources(t *testing.T, now *time.Time) (set *Set, first, second *scripted) {
	t.Helper()
	clock := func() time.Time { return *now }
	first, second = &scripted{quantities: []surge.Quantity{surge.Bz}}, &scripted{quantities: []surge.Quantity{surge.Bz, surge.Speed}}
	var pollers []*Poller
	for name, source := range map[string]Source{"first": first, "second": second} {
		p, err := NewPoller(Config{Name: name, Source: source, Interval: time.Minute, Now: clock})
		if err != nil {
			t.Fatal(err)
		}
		pollers = append(pollers, p)
	}
	slices.SortFunc(pollers, func(a, b *Poller) int { return strings.Compare(a.cfg.Name, b.cfg.Name) })
	return NewSet(pollers...), first, second
}

// The first source that is fresh counts, and of stale ones the newest.
func TestSet(t *testing.T) {
	now := storm
	set, first, second := twoSources(t, &now)
	source := func() string { return set.Signals(now).Of(surge.Bz).Source }
	if signals := set.Signals(now); len(signals) != 2 || source() != "first" || signals[1].Quantity != surge.Speed {
		t.Errorf("before any answer: %+v", signals)
	}
	tell := func(s *scripted, ago int) {
		s.answer = func(now time.Time) (Answer, error) {
			return Answer{Samples: map[surge.Quantity][]surge.Sample{surge.Bz: minutes(now, -ago, "", -5)}}, nil
		}
	}
	for _, c := range []struct {
		first, second int
		want          string
	}{{60, 5, "second"}, {5, 1, "first"}} {
		tell(first, c.first)
		tell(second, c.second)
		for _, p := range set.pollers {
			p.ask(t.Context())
		}
		if got := source(); got != c.want {
			t.Errorf("%d and %d minutes old: %s", c.first, c.second, got)
		}
	}
	now = now.Add(time.Hour)
	if got := source(); got != "second" {
		t.Errorf("both are stale: %s", got)
	}
	if _, err := NewPoller(Config{Name: "a", Source: first, Interval: time.Millisecond}); err == nil {
		t.Error("a source is asked each millisecond")
	}
}

// All sources of a set are asked, and its goroutines end with it.
func TestSetRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		set, first, second := twoSources(t, &now)
		first.answer = func(time.Time) (Answer, error) { return Answer{Unchanged: true}, nil }
		second.answer = func(time.Time) (Answer, error) { return Answer{}, errors.New("no answer") }
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var all sync.WaitGroup
		for _, p := range set.pollers {
			all.Go(func() { p.Run(ctx) })
		}
		all.Wait()
		if len(first.asked) < 9 || len(second.asked) < 3 {
			t.Errorf("asked %d and %d times", len(first.asked), len(second.asked))
		}
		states := set.States()
		if n := states[1].Requests[resultFailed]; n != len(second.asked) || states[0].Requests[resultUnchanged] != len(first.asked) {
			t.Errorf("requests %v and %v", states[0].Requests, states[1].Requests)
		}
		if states[0].Error != "" || states[1].Error != "source second: no answer" || states[1].LastAsked.IsZero() || !states[1].LastAnswered.IsZero() {
			t.Errorf("states %+v", states)
		}
	})
}
