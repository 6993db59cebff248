// SPDX-License-Identifier: Apache-2.0

// Package boottime is a clock that runs on while the machine is suspended.
package boottime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time since the machine was started, also that in which it was suspended:
// Go's monotonic clock stops then.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil { // never: Linux has it since 2.6.39
		panic("CLOCK_BOOTTIME: " + err.Error())
	}
	return time.Duration(t.Nano())
}
