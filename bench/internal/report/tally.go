// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"net"
	"slices"
	"time"
)

// Percentile of times, in milliseconds; 0 if there are none. It sorts them.
func Percentile(times []time.Duration, part float64) float64 {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return float64(times[min(len(times)-1, int(part*float64(len(times))))]) / float64(time.Millisecond)
}

// Cause is an error without what differs from one such error to the next, addresses say, so that equal ones can be counted.
func Cause(err error) error {
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
