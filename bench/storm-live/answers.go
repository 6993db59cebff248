// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"
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
	a.P50, a.P99 = percentile(a.times, 0.5), percentile(a.times, 0.99)
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

// cause leaves out what is another one in each error.
func cause(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return errors.New("timeout")
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// percentile of times, in milliseconds.
func percentile(times []time.Duration, part float64) float64 {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return float64(times[min(len(times)-1, int(part*float64(len(times))))]) / float64(time.Millisecond)
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		panic(err) // it takes no argument that could be wrong
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
