// SPDX-License-Identifier: Apache-2.0

// Package cgroup tells a program how much memory and CPU it may take.
package cgroup

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// noLimit is where memory.limit_in_bytes begins to mean none: the kernel shows
// the largest int64, rounded down to a page.
const noLimit = 1 << 60

// heapShare is the part of the memory limit at which Go's heap is collected as hard
// as it takes; the rest is stacks and what others read in vain.
const heapShare = 0.8

// Memory returns the memory limit of the process in bytes, 0 without a limit, and makes the heap respect it.
func Memory() int64 {
	limit := memoryLimit("/proc/self/cgroup", "/sys/fs/cgroup")
	if limit > 0 {
		debug.SetMemoryLimit(int64(heapShare * float64(limit)))
	}
	return limit
}

// memoryLimit returns the least memory limit of the process's control groups, in bytes; 0 without a limit. See leastLimit.
func memoryLimit(groups, root string) int64 {
	return leastLimit(groups, root, "memory", "memory.max", "memory.limit_in_bytes", func(_, text string, _ func(string) string) int64 {
		return parseLimit(text)
	})
}

// leastLimit returns the least limit of a controller in the process's control groups, of either version, and their parents; 0 without a
// limit. File2 and file1 are the files of version 2 and 1 that hold the limit; parse reads one, and other files beside it, and returns 0
// for no limit. Groups is /proc/self/cgroup, root where the hierarchies are mounted. See cgroups(7) and the kernel's
// admin-guide/cgroup-v1/.
func leastLimit[N int64 | float64](groups, root, controller, file2, file1 string, parse func(file, text string, read func(string) string) N) N {
	b, err := os.ReadFile(groups)
	if err != nil {
		return 0
	}
	least := N(0)
	for line := range strings.Lines(string(b)) {
		hierarchy, path, ok := groupOf(strings.TrimSpace(line), controller)
		if !ok {
			continue
		}
		file := file1
		if hierarchy == "" {
			file = file2
		}
		// In a container the path may be the host's, but only its top is mounted: the container's own group. So missing files are
		// skipped.
		for dir := filepath.Clean("/" + path); ; dir = filepath.Dir(dir) {
			read := func(name string) string {
				b, _ := os.ReadFile(filepath.Join(root, hierarchy, dir, name))
				return string(b)
			}
			if n := parse(file, read(file), read); n > 0 && (least == 0 || n < least) {
				least = n
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}

// groupOf returns where a line of /proc/self/cgroup says that a controller's limits
// are: the hierarchy's folder, empty for version 2, and the group's path. Not ok: the line is not
// about it.
func groupOf(line, controller string) (hierarchy, path string, ok bool) {
	id, rest, _ := strings.Cut(line, ":")
	controllers, path, ok := strings.Cut(rest, ":")
	switch {
	case !ok:
		return "", "", false
	case id == "0" && controllers == "":
		return "", path, true
	case slices.Contains(strings.Split(controllers, ","), controller):
		return controller, path, true
	}
	return "", "", false
}

// parseLimit returns the limit in bytes that a file holds; 0 means none.
func parseLimit(s string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil || n <= 0 || n >= noLimit {
		return 0
	}
	return n
}
