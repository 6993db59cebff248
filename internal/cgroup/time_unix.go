// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cgroup

import (
	"syscall"
	"time"
)

// cpuTime is how long the process has computed.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
