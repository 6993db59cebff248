// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is what the figures were measured on.
type Machine struct {
	Cores     int    `json:"cores"`
	Processor string `json:"processor"`
	MemoryMiB uint64 `json:"memoryMiB"`
	Kernel    string `json:"kernel"`
	Go        string `json:"go"`
	// Load is the number of processes that wanted to run in the minute before:
	// others on the machine make figures unsteady.
	Load float64 `json:"load"`
}

// String is one line.
func (m Machine) String() string {
	return fmt.Sprintf("%d cores of %s, %d MiB, %s, %s, load %.1f at the start", m.Cores, m.Processor, m.MemoryMiB, m.Kernel, m.Go, m.Load)
}

func describe() Machine {
	m := Machine{Cores: runtime.NumCPU(), Processor: processor(), Go: runtime.Version()}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Sysname[:]) + " " + unix.ByteSliceToString(name.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.MemoryMiB = info.Totalram * uint64(info.Unit) >> 20
		m.Load = float64(info.Loads[0]) / (1 << 16)
	}
	return m
}

func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	if exec.Command("git", "diff", "--quiet", "HEAD").Run() != nil {
		return strings.TrimSpace(string(out)) + " with changes"
	}
	return strings.TrimSpace(string(out))
}
