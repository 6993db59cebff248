// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/operator/surge"
)

// The parameters of the random draws for each storm, and beside it.
const (
	// stormKp begins a storm, and stormsApart is how long it has to be lower for the next one to be another.
	stormKp, stormsApart = 5., 24 * time.Hour
	// crowdProbability is how likely a storm brings a crowd, and outageProbability how likely the signal fails near the greatest one.
	crowdProbability, outageProbability = 0.75, 0.25
	// otherCrowds is how many come without a storm, on average in 30 days.
	otherCrowds = 1.
)

// Draw makes a scenario from recorded space weather: which storms bring a crowd, when and how large, crowds that come without one, and an outage of
// the signal. The same seed and number draw the same.
func Draw(recorded Recording, seed uint64, number int) *Scenario {
	kp := recorded[surge.Kp]
	s := &Scenario{Span: Span{kp[0].From, kp[len(kp)-1].To}, Seed: seed + uint64(number)<<32}
	r := s.random("draw")
	s.Start = between(r, 10*time.Second, 30*time.Second)
	storms := Storms(kp)
	for _, storm := range storms {
		crowd := drawCrowd(r, storm.From.Add(between(r, 30*time.Minute, 12*time.Hour)))
		if r.Float64() < crowdProbability {
			s.Crowds = append(s.Crowds, crowd)
		}
	}
	days := s.To.Sub(s.From).Hours() / 24
	for range poisson(r, otherCrowds*days/30) {
		s.Crowds = append(s.Crowds, drawCrowd(r, s.From.Add(between(r, 0, s.To.Sub(s.From)))))
	}
	var outages []Span
	around := s.From.Add(between(r, 0, s.To.Sub(s.From)))
	if worst, is := greatest(storms, kp); is {
		around = worst.From.Add(between(r, -12*time.Hour, 12*time.Hour))
	}
	if long := between(r, 6*time.Hour, 48*time.Hour); r.Float64() < outageProbability {
		outages = []Span{{around, around.Add(long)}}
	}
	s.Sources = recorded.sources(outages)
	return s
}

func drawCrowd(r *rand.Rand, begins time.Time) Crowd {
	grows := time.Duration(float64(time.Minute) * math.Pow(60, r.Float64()))
	return Crowd{Begins: begins, Grows: grows, Stays: between(r, 2*time.Hour, 8*time.Hour), Goes: between(r, 2*time.Hour, 8*time.Hour), Factor: 2 + 6*r.Float64()}
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// poisson by Knuth's way, which is fast for few.
func poisson(r *rand.Rand, mean float64) (n int) {
	for p := r.Float64(); p > math.Exp(-mean); p *= r.Float64() {
		n++
	}
	return n
}

// Storms are when Kp was at least 5, joined where they are less than a day apart.
func Storms(kp []surge.Sample) (all []Span) {
	for _, one := range kp {
		switch n := len(all); {
		case one.Value < stormKp:
		case n > 0 && one.From.Sub(all[n-1].To) < stormsApart:
			all[n-1].To = one.To
		default:
			all = append(all, Span{one.From, one.To})
		}
	}
	return all
}

// greatest is the storm with the highest Kp; false: there is none.
func greatest(storms []Span, kp []surge.Sample) (found Span, is bool) {
	most := -1.
	for _, one := range kp {
		for _, s := range storms {
			if s.has(one.From) && one.Value > most {
				most, found, is = one.Value, s, true
			}
		}
	}
	return found, is
}

// Compare runs all kinds through so many draws, and returns the results of each kind by draw. Done is called after each draw, from any
// goroutine, with how many are done, unless it is nil.
func Compare(ctx context.Context, kinds []Kind, draws int, draw func(number int) *Scenario, done func(int)) ([][]Result, error) {
	results := make([][]Result, len(kinds))
	for i := range results {
		results[i] = make([]Result, draws)
	}
	var count atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for n := range draws {
		g.Go(func() error {
			s := draw(n)
			for i, kind := range kinds {
				if err := ctx.Err(); err != nil {
					return err
				}
				results[i][n] = Run(s, kind, false)
			}
			if is := int(count.Add(1)); done != nil {
				done(is)
			}
			return nil
		})
	}
	return results, g.Wait()
}

// Distribution is of a figure over draws.
type Distribution struct {
	Median float64 `json:"median"`
	P95    float64 `json:"p95"`
	Most   float64 `json:"most"`
	Mean   float64 `json:"mean"`
}

// Of sums up a figure of results.
func Of(results []Result, figure func(*Result) float64) (d Distribution) {
	values := make([]float64, len(results))
	for i := range results {
		values[i] = figure(&results[i])
		d.Mean += values[i] / float64(len(results))
	}
	slices.Sort(values)
	d.Median, d.P95, d.Most = Quantile(values, 0.5), Quantile(values, 0.95), Quantile(values, 1)
	return d
}

// Quantile of sorted values: the least one that so large a share does not exceed.
func Quantile(sorted []float64, share float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[min(len(sorted)-1, max(0, int(math.Ceil(share*float64(len(sorted))))-1))]
}
