// SPDX-License-Identifier: Apache-2.0

package bare

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// identity tells a process from a later one that got the same number.
type identity struct {
	PID     int
	Started string // clock ticks from boot to the process's start: field 22 of /proc/PID/stat
	Boot    string // the kernel's id of this boot
}

func identify(pid int) (identity, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return identity{}, err
	}
	state, started, err := processState(pid)
	if err != nil {
		return identity{}, err
	}
	if state == "Z" || state == "X" {
		return identity{}, fmt.Errorf("process %d has ended", pid)
	}
	return identity{PID: pid, Started: started, Boot: strings.TrimSpace(string(boot))}, nil
}

// processState returns the state letter and the start time of a process.
func processState(pid int) (state, started string, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", "", err
	}
	// The command's name, in parentheses, may hold anything: count from behind it.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return "", "", fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	return fields[0], fields[19], nil
}

func (c *Cluster) pidPath(name string) string { return filepath.Join(c.Dir, "pids", name) }

// pid returns the number of the running process that this cluster started under that name, or 0.
func (c *Cluster) pid(name string) int {
	body, err := os.ReadFile(c.pidPath(name))
	if err != nil {
		return 0
	}
	var recorded identity
	if json.Unmarshal(body, &recorded) != nil {
		return 0
	}
	if current, err := identify(recorded.PID); err != nil || current != recorded {
		return 0
	}
	return recorded.PID
}

func (c *Cluster) remember(name string, pid int) error {
	id, err := identify(pid)
	if err != nil {
		return fmt.Errorf("%s ended at once: see %s", name, c.logPath(name))
	}
	body, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return writeFile(c.pidPath(name), body, 0o644)
}

func (c *Cluster) logPath(name string) string { return filepath.Join(c.Dir, "logs", name+".log") }

// logFile opens a process's log for appending.
func (c *Cluster) logFile(name string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Join(c.Dir, "logs"), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(c.logPath(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
}

// start runs a process of the control plane that outlives this command, in its cgroup and with its log.
func (c *Cluster) start(name string, args ...string) error {
	if c.pid(name) != 0 {
		return nil
	}
	log, err := c.logFile(name)
	if err != nil {
		return err
	}
	defer log.Close()
	program, ok := c.rec.Parts[name]
	if !ok {
		return fmt.Errorf("unknown part %s", name)
	}
	cmd := exec.Command(c.self(), append([]string{InCgroup, c.cgroup("control-plane"), program}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	go func() { _ = cmd.Wait() }() // reaps it if it ends while this command runs; afterwards it is init's child
	return c.remember(name, cmd.Process.Pid)
}

// stop ends a process: first with the signal, and with SIGKILL when it still runs after the time. It is no error when
// the process does not run.
func (c *Cluster) stop(name string, signal syscall.Signal, patience time.Duration) error {
	pid := c.pid(name)
	if pid == 0 {
		return removeIfThere(c.pidPath(name))
	}
	if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end %s: %w", name, err)
	}
	deadline := time.Now().Add(patience)
	for killed := signal == syscall.SIGKILL; c.pid(name) != 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().Before(deadline) {
			continue
		}
		if killed {
			return fmt.Errorf("%s (process %s) is still running after SIGKILL", name, strconv.Itoa(pid))
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("end %s: %w", name, err)
		}
		killed, deadline = true, time.Now().Add(10*time.Second)
	}
	return removeIfThere(c.pidPath(name))
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// tail returns the last lines of a process's log, for an error message.
func (c *Cluster) tail(name string, lines int) string {
	body, err := os.ReadFile(c.logPath(name))
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(body)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
