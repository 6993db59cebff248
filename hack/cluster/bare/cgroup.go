// SPDX-License-Identifier: Apache-2.0

package bare

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const cgroupMount = "/sys/fs/cgroup"

// hierarchies are the cgroup v1 hierarchies in which every node gets a group of its own. systemd is the one without a
// controller in which runc keeps track of processes.
var hierarchies = []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd"}

// cgroup returns the path, inside every hierarchy, of one part of this cluster.
func (c *Cluster) cgroup(part ...string) string {
	return "/" + filepath.Join(append([]string{c.Name}, part...)...)
}

// cgroupRoots lists the top group of this cluster in each hierarchy, existing or not.
func (c *Cluster) cgroupRoots() []string {
	var roots []string
	for _, h := range append(slices.Clone(hierarchies), "unified") {
		roots = append(roots, filepath.Join(cgroupMount, h, c.Name))
	}
	return roots
}

// makeCgroup makes a group in every hierarchy. A new group of cpuset has no processors and no memory until they are set.
func makeCgroup(path string) error {
	for _, h := range hierarchies {
		if err := os.MkdirAll(filepath.Join(cgroupMount, h, path), 0o755); err != nil {
			return fmt.Errorf("make a cgroup: %w", err)
		}
	}
	dir := filepath.Join(cgroupMount, "cpuset")
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		parent := dir
		dir = filepath.Join(dir, part)
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			if err := inherit(filepath.Join(parent, name), filepath.Join(dir, name)); err != nil {
				return fmt.Errorf("fill the cgroup %s: %w", dir, err)
			}
		}
	}
	return nil
}

func inherit(from, to string) error {
	if has, err := os.ReadFile(to); err != nil || strings.TrimSpace(string(has)) != "" {
		return err
	}
	value, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, value, 0o644)
}

// joinCgroup moves the calling process, and what it will start, into a group.
func joinCgroup(path string) error {
	for _, h := range hierarchies {
		// 0 stands for the writer itself, which may not know its number outside its process namespace.
		if err := os.WriteFile(filepath.Join(cgroupMount, h, path, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			return fmt.Errorf("join a cgroup: %w", err)
		}
	}
	return nil
}

// removeCgroup removes a group and all below it from every hierarchy. Their processes have been killed but the kernel
// may still be busy with them for a moment.
func removeCgroup(path string) error {
	deadline := time.Now().Add(10 * time.Second)
	for _, h := range append(slices.Clone(hierarchies), "unified") {
		root := filepath.Join(cgroupMount, h, path)
		for {
			err := removeGroups(root)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("remove the cgroup %s: %w", root, err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}

func removeGroups(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, dir := range slices.Backward(dirs) {
		if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
			return err
		}
	}
	return nil
}

// InCgroup is the name of the hidden command that runs a program in a cgroup: InCgroup GROUP PROGRAM ARG...
const InCgroup = "in-cgroup"

// RunInCgroup becomes the program, in the group. It returns only when that fails.
func RunInCgroup(args []string) error {
	if len(args) < 2 {
		return errors.New(InCgroup + " takes a group and a program")
	}
	if err := joinCgroup(args[0]); err != nil {
		return err
	}
	return fmt.Errorf("run %s: %w", args[1], syscall.Exec(args[1], args[1:], os.Environ()))
}
