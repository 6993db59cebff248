// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/bench/internal/report"
)

// answers are what clients, or senders, saw.
type answers struct {
	// All that was asked for or was to be sent; of these
	All int
	// Limited were answered 429 and GaveWay 503, both with when to come again,
	Limited, GaveWay int
	// Unsent were not sent, because too many were waiting, and
	Unsent int
	// Failed got no answer or a wrong one, by which.
	Failed map[string]int
	Bytes  int64
	// How long the others took, in milliseconds.
	P50, P99 float64

	times []time.Duration
}

func (a *answers) fail(format string, args ...any) {
	if a.Failed == nil {
		a.Failed = map[string]int{}
	}
	a.Failed[fmt.Sprintf(format, args...)]++
}

// sum is what a worker tells.
func (a *answers) sum() answers {
	a.P50, a.P99 = report.Percentile(a.times, 0.5), report.Percentile(a.times, 0.99)
	return *a
}

// errors are all but what was answered 429.
func (a *answers) errors() int {
	n := a.GaveWay + a.Unsent
	for _, count := range a.Failed {
		n += count
	}
	return n
}

// refused is all that was not served.
func (a *answers) refused() int { return a.errors() + a.Limited }

// inTurn does what each part has when it begins, and returns how many cores this process used in each.
func inTurn(begin time.Time, parts []part, do func(i int, p part, begin time.Time)) (cores []float64) {
	for i, p := range parts {
		time.Sleep(time.Until(begin))
		before := processorTime()
		do(i, p, begin)
		begin = begin.Add(p.For)
		time.Sleep(time.Until(begin))
		cores = append(cores, (processorTime()-before).Seconds()/p.For.Seconds())
	}
	return cores
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		panic(err) // it takes no argument that could be wrong
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
