// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/substorm/substorm/operator/surge"
)

// The parameters of the random draws for a quiet month.
const (
	// quietKp is above all values of a quiet day.
	quietKp = 4.
	// kpNoise is the deviation of an early value from the one that is determined later: a third, the resolution of Kp.
	kpNoise   = 1. / 3
	quietDays = 31
	// windGaps is the share of minutes that are missing, and windSpikes of those with a wrong value, as DSCOVR and ACE have.
	windGaps, windSpikes = 0.02, 0.002
)

// Quiet makes a scenario of a month without storms and crowds: its days are drawn from the quiet ones of recorded Kp, each value has
// noise, and the solar wind, which is made up, has a quiet field with wrong values and gaps.
func Quiet(recorded Recording, seed uint64, number int) (*Scenario, error) {
	kp := recorded[surge.Kp]
	days := quietOf(kp)
	if len(days) == 0 {
		return nil, fmt.Errorf("no day has only Kp below %g", quietKp)
	}
	s := &Scenario{Seed: seed + uint64(number)<<32}
	s.From = kp[0].From.Truncate(24 * time.Hour)
	s.To = s.From.AddDate(0, 0, quietDays)
	r := s.random("quiet")
	s.Start = between(r, 10*time.Second, 30*time.Second)
	var told []surge.Sample
	for at := s.From; at.Before(s.To); {
		for _, value := range days[r.IntN(len(days))] {
			value = math.Round(3*min(9, max(0, value+kpNoise*r.NormFloat64()))) / 3
			told = append(told, surge.Sample{From: at, To: at.Add(KpInterval), Value: value})
			at = at.Add(KpInterval)
		}
	}
	s.Sources = append([]Source{KpSource(told)}, wind(r, s.Span)...)
	return s, nil
}

// quietOf returns the values of each whole day that is quiet.
func quietOf(kp []surge.Sample) (days [][]float64) {
	for day := range slices.Chunk(kp, int(24*time.Hour/KpInterval)) {
		first := day[0].From
		if first != first.Truncate(24*time.Hour) || day[len(day)-1].To.Sub(first) != 24*time.Hour {
			continue
		}
		var values []float64
		for _, one := range day {
			values = append(values, one.Value)
		}
		if slices.Max(values) < quietKp {
			days = append(days, values)
		}
	}
	return days
}

// wind makes up Bz, which wanders around 0 by some nT, and a speed, which does around 400 km/s, and at times passes 500.
func wind(r *rand.Rand, span Span) []Source {
	var bz, speed []surge.Sample
	b, v := 0., 400.
	for at := span.From; at.Before(span.To); at = at.Add(time.Minute) {
		b = 0.98*b + 0.5*r.NormFloat64() // a deviation of 2.5 nT, over an hour
		v += (400-v)/3000 + 2*r.NormFloat64()
		if r.Float64() < windGaps {
			continue
		}
		one := surge.Sample{From: at, To: at.Add(time.Minute), Value: b, Spacecraft: "made up"}
		if r.Float64() < windSpikes {
			one.Value = -99
		}
		bz = append(bz, one)
		one.Value = v
		speed = append(speed, one)
	}
	return []Source{windSource(surge.Bz, bz), windSource(surge.Speed, speed)}
}
