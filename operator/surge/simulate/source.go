// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"time"

	"github.com/substorm/substorm/operator/surge"
)

// Source publishes samples of a quantity, each one Late after its end.
type Source struct {
	Quantity   surge.Quantity
	Name       string
	StaleAfter time.Duration
	Late       time.Duration
	Samples    []surge.Sample
	// Outages are when nothing new is published. The missed samples are published after each.
	Outages []Span
}

// Span is a time, To being excluded.
type Span struct{ From, To time.Time }

func (s Span) has(at time.Time) bool { return !at.Before(s.From) && at.Before(s.To) }

// KpSource publishes Kp as NOAA does: 15 minutes after its three hours.
func KpSource(samples []surge.Sample, outages ...Span) Source {
	return Source{Quantity: surge.Kp, Name: "swpc-kp", StaleAfter: 4 * time.Hour, Late: 15 * time.Minute, Samples: samples, Outages: outages}
}

// windSource publishes the solar wind as NOAA does: two minutes after each sample.
func windSource(q surge.Quantity, samples []surge.Sample, outages ...Span) Source {
	return Source{Quantity: q, Name: "rtsw", StaleAfter: 15 * time.Minute, Late: 2 * time.Minute, Samples: samples, Outages: outages}
}

// visibleCount returns how many samples are visible.
func (s *Source) visibleCount(now time.Time) int {
	for _, o := range s.Outages {
		if o.has(now) {
			now = o.From
		}
	}
	n, _ := slices.BinarySearchFunc(s.Samples, now.Add(-s.Late), func(one surge.Sample, at time.Time) int {
		if one.To.After(at) {
			return 1
		}
		return -1
	})
	return n
}

// rememberedSamples is how many samples a signal has: of the solar wind those of three hours, as the operator keeps them. Thresholds ask for
// two hours at most.
const rememberedSamples = 180

func (s *Source) signal(told int) *surge.Signal {
	return &surge.Signal{Quantity: s.Quantity, Source: s.Name, StaleAfter: s.StaleAfter, Samples: s.Samples[max(0, told-rememberedSamples):told]}
}

// DefaultLevels are the levels of the comparison. In a calm day the pool needs 3 pods on average: a storm is to find twice, and a severe
// one four times as many, which is the factor by which requests to the Aurora study's archive grew in March 2015. They are held for twelve
// hours: many see that there was a storm when the next night comes.
func DefaultLevels() []surge.Level {
	level := func(name string, kp float64, floor int32) surge.Level {
		return surge.Level{
			Name: name, AnyOf: []surge.Rule{{{Quantity: surge.Kp, AtLeast: &kp}}}, Hold: 12 * time.Hour, ReleaseEvery: 10 * time.Minute,
			Floors: []surge.Floor{{Kind: surge.KindFeedServer, Replicas: floor}},
		}
	}
	return []surge.Level{level("storm", 5, 6), level("severe", 7, 12)}
}

// WindLevels are the default ones, with a rule of the solar wind beside Kp for the lower one.
func WindLevels() []surge.Level {
	levels, south, fast := DefaultLevels(), -10., 500.
	levels[0].AnyOf = append(levels[0].AnyOf, surge.Rule{
		{Quantity: surge.Bz, AtMost: &south, For: 10 * time.Minute}, {Quantity: surge.Speed, AtLeast: &fast},
	})
	return levels
}
