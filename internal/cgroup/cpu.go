// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"runtime"
	"strconv"
	"strings"
	"time"
)

// CPU tells how much of its CPU limit the process uses.
type CPU struct {
	limit float64 // processors
	used  time.Duration
	at    time.Time
}

// NewCPU begins to look. Without a limit the process may use all processors of the computer.
func NewCPU(now time.Time) *CPU {
	c := &CPU{limit: cpuLimit("/proc/self/cgroup", "/sys/fs/cgroup"), used: cpuTime(), at: now}
	if c.limit == 0 {
		c.limit = float64(runtime.NumCPU())
	}
	return c
}

// Use returns the part of the limit that was used since the last call: 1 is all of it. It may be a little more, as
// the kernel counts in periods.
func (c *CPU) Use(now time.Time) float64 {
	used, took := cpuTime(), now.Sub(c.at)
	if took <= 0 {
		return 0
	}
	use := (used - c.used).Seconds() / took.Seconds() / c.limit
	c.used, c.at = used, now
	return max(0, use)
}

// cpuLimit returns the least CPU limit of the process's control groups, in processors; 0 without a limit. See memoryLimit.
func cpuLimit(groups, root string) float64 {
	return leastLimit(groups, root, "cpu", "cpu.max", "cpu.cfs_quota_us", func(file, text string, read func(string) string) float64 {
		period := "100000"
		if fields := strings.Fields(text); file == "cpu.max" && len(fields) == 2 {
			text, period = fields[0], fields[1]
		} else if file != "cpu.max" {
			period = read("cpu.cfs_period_us")
		}
		quota, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		each, wrong := strconv.ParseFloat(strings.TrimSpace(period), 64)
		if err != nil || wrong != nil || quota <= 0 || each <= 0 { // max, and -1 of version 1, are none
			return 0
		}
		return quota / each
	})
}
