// SPDX-License-Identifier: Apache-2.0

//go:build linux

package doctor

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// listening is the state of TCP sockets that listen, in /proc/net/tcp: TCP_LISTEN of the kernel's net/tcp_states.h.
const listening = 0x0a

// socket is a socket bound to a port.
type socket struct{ inode, user uint64 }

// ownersOf returns the processes that have a port, as far as this process may see them, and the users whose sockets these are.
func ownersOf(p port) (pids []int, users []uint64) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, nil
	}
	var targets []string
	for _, s := range socketsOf(fs, p) {
		targets = append(targets, fmt.Sprintf("socket:[%d]", s.inode))
		users = append(users, s.user)
	}
	processes, err := fs.AllProcs()
	if err != nil || len(targets) == 0 {
		return nil, users
	}
	for _, process := range processes {
		open, err := process.FileDescriptorTargets()
		if err != nil { // of another user, or it has ended
			continue
		}
		if slices.ContainsFunc(open, func(file string) bool { return slices.Contains(targets, file) }) {
			pids = append(pids, process.PID)
		}
	}
	return pids, users
}

// socketsOf are those with a port, of any address. A computer without IPv6 has no list of such sockets.
func socketsOf(fs procfs.FS, p port) (all []socket) {
	if p.network == "udp" {
		four, _ := fs.NetUDP()
		six, _ := fs.NetUDP6()
		for _, s := range append(four, six...) {
			if int(s.LocalPort) == p.number {
				all = append(all, socket{s.Inode, s.UID})
			}
		}
		return all
	}
	four, _ := fs.NetTCP() //nolint:staticcheck // the list is the same as by netlink, which it advises: slow with 100,000 connections, and of no harm here
	six, _ := fs.NetTCP6() //nolint:staticcheck // as above
	for _, s := range append(four, six...) {
		if int(s.LocalPort) == p.number && s.St == listening {
			all = append(all, socket{s.Inode, s.UID})
		}
	}
	return all
}

// command is the name of a process.
func command(pid int) (string, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return "", err
	}
	return process.Comm()
}

// userOf is the user as whom a process runs.
func userOf(pid int) (user uint64, known bool) {
	if pid == 0 {
		return 0, false
	}
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, false
	}
	status, err := process.NewStatus()
	return status.UIDs[1], err == nil
}

// umaskOf is the mask of a process for modes of new files.
func umaskOf(pid int) (int, error) {
	file := fmt.Sprintf("/proc/%d/status", pid)
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if octal, ok := strings.CutPrefix(line, "Umask:"); ok {
			mask, err := strconv.ParseInt(strings.TrimSpace(octal), 8, 32)
			return int(mask), err
		}
	}
	return 0, fmt.Errorf("%s names no Umask", file)
}

// firstUnprivileged is the first port that needs no privilege.
func firstUnprivileged() int {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return defaultUnprivileged
	}
	first, err := fs.SysctlInts("net.ipv4.ip_unprivileged_port_start")
	if err != nil || len(first) == 0 {
		return defaultUnprivileged
	}
	return first[0]
}

// defaultUnprivileged is the first such port if the kernel does not state it: see ip(7).
const defaultUnprivileged = 1024
