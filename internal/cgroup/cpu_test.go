// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestCPULimit(t *testing.T) {
	const v2, quota, period = "cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"
	for name, c := range map[string]struct {
		groups string
		files  map[string]string
		want   float64
	}{
		"none":                  {"0::/\n", nil, 0},
		"max":                   {"0::/\n", map[string]string{v2: "max 100000\n"}, 0},
		"a container's":         {"0::/\n", map[string]string{v2: "15000 100000\n"}, 0.15},
		"the least above":       {"0::/pods/one\n", map[string]string{"pods/one/" + v2: "max 100000\n", "pods/" + v2: "50000 100000\n", v2: "200000 100000\n"}, 0.5},
		"no period":             {"0::/\n", map[string]string{v2: "50000\n"}, 0.5},
		"what nobody expects":   {"0::/\n", map[string]string{v2: "lots of it\n"}, 0},
		"version 1":             {"5:cpu,cpuacct:/x\n", map[string]string{"cpu/x/" + quota: "200000\n", "cpu/x/" + period: "50000\n"}, 4},
		"version 1, none":       {"5:cpu:/x\n", map[string]string{"cpu/x/" + quota: "-1\n", "cpu/x/" + period: "100000\n"}, 0},
		"version 1, no period":  {"5:cpu:/x\n", map[string]string{"cpu/x/" + quota: "100000\n"}, 0},
		"version 1, a namesake": {"5:cpuset:/x\n", map[string]string{"cpu/x/" + quota: "100000\n", "cpu/x/" + period: "100000\n"}, 0},
	} {
		root := t.TempDir()
		groups := filepath.Join(root, "groups")
		if err := os.WriteFile(groups, []byte(c.groups), 0o600); err != nil {
			t.Fatal(err)
		}
		for file, value := range c.files {
			file = filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(value), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := cpuLimit(groups, root); got != c.want {
			t.Errorf("%s: %g, want %g", name, got, c.want)
		}
	}
}

// TestCPUUse: computing is seen, and no time is no division by zero.
func TestCPUUse(t *testing.T) {
	began := time.Now()
	c := NewCPU(began)
	if use := c.Use(began); use != 0 {
		t.Errorf("in no time %g was used", use)
	}
	used := 0.0
	for used == 0 { // the clock of what was computed is coarse
		for i := range 1_000_000 {
			_ = i * i
		}
		used = c.Use(time.Now())
	}
	if used < 0 {
		t.Errorf("%g was used", used)
	}
}
