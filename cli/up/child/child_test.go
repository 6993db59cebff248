// SPDX-License-Identifier: Apache-2.0

//go:build linux

package child_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/cli/up/child"
)

// programs are those of the children of this test, which are this test program.
var programs = map[string]func() *cobra.Command{
	"fails": func() *cobra.Command {
		return &cobra.Command{Use: "fails", SilenceErrors: true, SilenceUsage: true, RunE: func(_ *cobra.Command, args []string) error {
			environment, _ := os.ReadFile("/proc/self/environ")
			line, _ := os.ReadFile("/proc/self/cmdline")
			return fmt.Errorf("arguments %q; environment %q; command line %q; HOME %s", args, environment, line, os.Getenv("HOME"))
		}}
	},
	"eats": func() *cobra.Command {
		return &cobra.Command{Use: "eats", RunE: func(*cobra.Command, []string) error {
			for range 500 { // what they do is said after the cause
				go func() { select {} }()
			}
			var all [][]byte
			for {
				some := make([]byte, 8<<20)
				for i := range some {
					some[i] = 1
				}
				all = append(all, some)
				_ = all
			}
		}}
	},
	"waits": func() *cobra.Command {
		return &cobra.Command{Use: "waits", RunE: func(cmd *cobra.Command, _ []string) error {
			sleep := exec.Command("sleep", "1000") // a process that outlasts it, as rsync may
			if err := sleep.Start(); err != nil {
				return err
			}
			fmt.Fprintln(os.Stderr, os.Getpid(), sleep.Process.Pid)
			<-cmd.Context().Done()
			return nil
		}}
	},
}

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == child.Name {
		c := child.Command(programs)
		c.SetArgs([]string{})
		if err := c.Execute(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// started tells the processes of a child as soon as it names them.
type started chan [2]int

func (s started) Write(p []byte) (int, error) {
	var is [2]int
	if n, _ := fmt.Sscan(string(p), &is[0], &is[1]); n == 2 {
		s <- is
	}
	return len(p), nil
}

// await waits until a child has named its processes.
func (s started) await(t *testing.T, ended <-chan error) (is [2]int) {
	t.Helper()
	select {
	case is = <-s:
	case err := <-ended:
		t.Fatalf("it ended before it began: %v", err)
	}
	return is
}

// The error of a program is returned by Run, and neither arguments nor the environment of this process are visible in its process.
func TestError(t *testing.T) {
	t.Setenv("SUBSTORM_SECRET", "never")
	err := child.Run(t.Context(), child.Config{Program: "fails", Arguments: []string{"--", "a secret"}, Memory: child.Limit()})
	if err == nil || errors.As(err, new(*child.DeathError)) {
		t.Fatalf("%v", err)
	}
	says := err.Error()
	if !strings.Contains(says, `arguments ["a secret"]`) || !strings.HasSuffix(says, "HOME "+os.Getenv("HOME")) ||
		strings.Contains(says, "never") || strings.Count(says, "secret") != 1 {
		t.Error(says)
	}
}

// A program that needs more memory than it may have dies alone, and the error says of what.
func TestMemory(t *testing.T) {
	t.Parallel()
	err := child.Run(t.Context(), child.Config{Program: "eats", Memory: 256 << 20})
	var died *child.DeathError
	if !errors.As(err, &died) || !strings.Contains(err.Error(), "more than its 256 MiB of memory") {
		t.Errorf("%v", err)
	}
}

// A child that is killed is distinguished from one that ended, and what it had begun ends with it.
func TestKilled(t *testing.T) {
	t.Parallel()
	pids := make(started, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- child.Run(t.Context(), child.Config{Program: "waits", Memory: child.Limit(), Stderr: pids})
	}()
	is := pids.await(t, ended)
	if err := syscall.Kill(is[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	err := <-ended
	var died *child.DeathError
	if !errors.As(err, &died) || died.PID != is[0] || !strings.Contains(err.Error(), "killed") {
		t.Errorf("%v", err)
	}
	awaitGone(t, is[1])
}

// A child that is asked to stop stops, and what it had begun ends with it.
func TestStopped(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	pids := make(started, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- child.Run(ctx, child.Config{Program: "waits", Memory: child.Limit(), Stderr: pids})
	}()
	is := pids.await(t, ended)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	awaitGone(t, is[1])
}

// awaitGone waits until a process has ended, which is not a child of this one.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	n, err := poll(fd)
	for errors.Is(err, unix.EINTR) {
		n, err = poll(fd)
	}
	if n != 1 {
		t.Fatalf("process %d goes on: %v", pid, err)
	}
}

// poll waits until a process has ended, for half a minute at most.
func poll(pidfd int) (int, error) {
	return unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 30_000)
}
