// SPDX-License-Identifier: Apache-2.0

// Package process is about other processes: what they use, and where they run.
package process

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// OnCores moves all threads of a process, and those that it will start, to cores.
func OnCores(pid int, cores []int) error {
	var set unix.CPUSet
	for _, c := range cores {
		set.Set(c)
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(id, &set); err != nil && err != unix.ESRCH {
			return fmt.Errorf("choose cores of process %d: %w", pid, err)
		}
	}
	return nil
}

// tick is the unit of processor time in /proc (proc_pid_stat(5); USER_HZ is 100
// on all platforms that Go runs on).
const tick = 10 * time.Millisecond

// Time is what a process has used so far, in the kernel and outside.
func Time(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may hold spaces
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("process %d does not say what it used", pid)
	}
	var total time.Duration
	for _, f := range fields[11:13] { // utime, stime
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		total += time.Duration(n) * tick
	}
	return total, nil
}

// Times of processes, one after the other.
func Times(pids []int) ([]time.Duration, error) {
	times := make([]time.Duration, len(pids))
	for i, pid := range pids {
		t, err := Time(pid)
		if err != nil {
			return nil, err
		}
		times[i] = t
	}
	return times, nil
}

// ForgetPeak resets PeakMiB (proc_pid_clear_refs(5)).
func ForgetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// PeakMiB is the most memory of a process that was resident so far
// (proc_pid_status(5), VmHWM).
func PeakMiB(pid int) (float64, error) {
	memory, err := memoryOf(pid, "VmHWM")
	return memory["VmHWM"], err
}

// Resident is memory in MiB that is resident now.
type Resident struct {
	// All is the sum of what no file has and of what lies in files: the program itself.
	All, Anonymous, File float64
}

// ResidentNow is the memory of a process.
func ResidentNow(pid int) (Resident, error) {
	m, err := memoryOf(pid, "VmRSS", "RssAnon", "RssFile")
	return Resident{m["VmRSS"], m["RssAnon"], m["RssFile"]}, err
}

// memoryOf reads fields of /proc/PID/status, in MiB.
func memoryOf(pid int, fields ...string) (map[string]float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, err
	}
	found := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		if !slices.Contains(fields, name) {
			continue
		}
		kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
		if err != nil {
			return nil, fmt.Errorf("process %d, %s: %w", pid, name, err)
		}
		found[name] = kib / 1024
	}
	if len(found) < len(fields) {
		return nil, fmt.Errorf("process %d does not say how much memory it has (%v)", pid, fields)
	}
	return found, nil
}

// Written is how many bytes a process has caused to be written to disks so far (proc_pid_io(5)): whole pages, without what the file system writes for itself.
func Written(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "write_bytes: "); found {
			return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("process %d does not say what it wrote", pid)
}
