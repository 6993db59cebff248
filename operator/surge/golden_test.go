// SPDX-License-Identifier: Apache-2.0

package surge_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/surge"
	"github.com/substorm/substorm/operator/surge/surgetest"
)

// story is a test's .in.yaml: levels, samples of sources, and when the operator looks.
type story struct {
	Levels  []level  `json:"levels"`
	Sources []source `json:"sources"`
	// From and To are when the operator looks, and Every is how often, unless it asks to look earlier.
	From  time.Time       `json:"from"`
	To    time.Time       `json:"to"`
	Every metav1.Duration `json:"every"`
	// Later levels hold from a time on: the Site was changed.
	LaterAt *time.Time `json:"laterAt"`
	Later   []level    `json:"later"`
	// Away is when no operator looks.
	Away *span `json:"away"`
}

type span struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

type level struct {
	Name         string          `json:"name"`
	AnyOf        [][]threshold   `json:"anyOf"`
	Floors       []surge.Floor   `json:"floors"`
	Hold         metav1.Duration `json:"hold"`
	ReleaseEvery metav1.Duration `json:"releaseEvery"`
}

type threshold struct {
	Quantity surge.Quantity  `json:"quantity"`
	AtLeast  *float64        `json:"atLeast"`
	AtMost   *float64        `json:"atMost"`
	For      metav1.Duration `json:"for"`
}

// source publishes samples that each last Each: the first begins at From, and each is published Late after its end.
type source struct {
	Quantity   surge.Quantity  `json:"quantity"`
	Source     string          `json:"source"`
	StaleAfter metav1.Duration `json:"staleAfter"`
	From       time.Time       `json:"from"`
	Each       metav1.Duration `json:"each"`
	Late       metav1.Duration `json:"late"`
	Runs       []run           `json:"runs"`
}

// run is Times equal samples; without a value they are missing. NaN is a value that is not a number.
type run struct {
	Value      *float64 `json:"value"`
	NaN        bool     `json:"nan"`
	Times      int      `json:"times"`
	Spacecraft string   `json:"spacecraft"`
}

// look is one of a test's .out.yaml, which has those that differ from the one before.
type look struct {
	At       time.Time      `json:"at"`
	Decision surge.Decision `json:"decision"`
	State    surge.State    `json:"state"`
}

func TestGolden(t *testing.T) {
	surgetest.Golden(t, func(t *testing.T, s *story) any { return s.tell(t) })
}

// tell looks as the operator does: regularly, and when the last decision says so. Each time the state comes from its JSON, as from a
// status.
func (s *story) tell(t *testing.T) []look {
	var told []look
	var state surge.State
	levels := convert(s.Levels)
	var next time.Time
	for now := s.From; !now.After(s.To); now = next {
		next = now.Add(s.Every.Duration)
		if s.Away != nil && now.After(s.Away.From) && now.Before(s.Away.To) {
			continue
		}
		if s.LaterAt != nil && !now.Before(*s.LaterAt) {
			levels = convert(s.Later)
		}
		var signals surge.Signals
		for _, source := range s.Sources {
			signals = append(signals, source.signal(now))
		}
		was := again(t, state)
		var decision surge.Decision
		state, decision = surge.Next(levels, signals, was, now)
		if diff := cmp.Diff(state, again(t, state)); diff != "" {
			t.Fatalf("the state is another one after a restart:\n%s", diff)
		}
		if at := now.Add(decision.LookAgain); decision.LookAgain > 0 && at.Before(next) {
			next = at
		}
		one := look{now, decision, state}
		if len(told) == 0 || differs(told[len(told)-1], one) {
			told = append(told, one)
		}
	}
	return told
}

func again(t *testing.T, s surge.State) (same surge.State) {
	t.Helper()
	text, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(text, &same)
	}
	if err != nil {
		t.Fatal(err)
	}
	return same
}

// differs ignores the words: they have ages.
func differs(a, b look) bool {
	return !cmp.Equal(a.State, b.State) || (a.Decision.Unknown == "") != (b.Decision.Unknown == "")
}

func (s *source) signal(now time.Time) *surge.Signal {
	signal := &surge.Signal{Quantity: s.Quantity, Source: s.Source, StaleAfter: s.StaleAfter.Duration}
	at := s.From
	for _, r := range s.Runs {
		for range max(1, r.Times) {
			one := surge.Sample{From: at, To: at.Add(s.Each.Duration), Spacecraft: r.Spacecraft}
			at = one.To
			switch {
			case one.To.Add(s.Late.Duration).After(now):
				return signal
			case r.NaN:
				one.Value = math.NaN()
			case r.Value == nil:
				continue
			default:
				one.Value = *r.Value
			}
			signal.Samples = append(signal.Samples, one)
		}
	}
	return signal
}

func convert(levels []level) []surge.Level {
	var all []surge.Level
	for _, l := range levels {
		one := surge.Level{Name: l.Name, Floors: l.Floors, Hold: l.Hold.Duration, ReleaseEvery: l.ReleaseEvery.Duration}
		for _, r := range l.AnyOf {
			var rule surge.Rule
			for _, t := range r {
				rule = append(rule, surge.Threshold{Quantity: t.Quantity, AtLeast: t.AtLeast, AtMost: t.AtMost, For: t.For.Duration})
			}
			one.AnyOf = append(one.AnyOf, rule)
		}
		all = append(all, one)
	}
	return all
}
