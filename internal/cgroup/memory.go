// SPDX-License-Identifier: Apache-2.0

// Package cgroup tells a program how much memory it may take.
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

// Memory returns the memory limit of the process in bytes, 0 where there is none, and
// makes the heap respect it.
func Memory() int64 {
	limit := memoryLimit("/proc/self/cgroup", "/sys/fs/cgroup")
	if limit > 0 {
		debug.SetMemoryLimit(int64(heapShare * float64(limit)))
	}
	return limit
}

// memoryLimit returns the least memory limit of the process's control groups,
// of either version, and those above them, in bytes; 0 where there is none.
// Groups is /proc/self/cgroup, root where the hierarchies are mounted.
// See cgroups(7) and the kernel's admin-guide/cgroup-v1/memory.rst.
func memoryLimit(groups, root string) int64 {
	b, err := os.ReadFile(groups)
	if err != nil {
		return 0
	}
	least := int64(0)
	for line := range strings.Lines(string(b)) {
		hierarchy, file, path := memoryGroup(strings.TrimSpace(line))
		if file == "" {
			continue
		}
		// In a container the path may be the host's, of which only the top is
		// mounted: the container's own group. So what is missing is passed over.
		for dir := filepath.Clean("/" + path); ; dir = filepath.Dir(dir) {
			b, err := os.ReadFile(filepath.Join(root, hierarchy, dir, file))
			if n := parseLimit(string(b)); err == nil && n > 0 && (least == 0 || n < least) {
				least = n
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}

// memoryGroup returns where a line of /proc/self/cgroup says that memory is
// limited: the hierarchy's folder, the file with the limit and the group's path.
// File is empty where the line is not about memory.
func memoryGroup(line string) (hierarchy, file, path string) {
	id, rest, _ := strings.Cut(line, ":")
	controllers, path, ok := strings.Cut(rest, ":")
	switch {
	case !ok:
		return "", "", ""
	case id == "0" && controllers == "":
		return "", "memory.max", path
	case slices.Contains(strings.Split(controllers, ","), "memory"):
		return "memory", "memory.limit_in_bytes", path
	}
	return "", "", ""
}

// parseLimit returns the limit in bytes that a file holds; 0 means none.
func parseLimit(s string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil || n <= 0 || n >= noLimit {
		return 0
	}
	return n
}
