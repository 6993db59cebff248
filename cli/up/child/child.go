// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package child runs a program of this binary as a process of its own, whose memory is limited: one that reads what others serve, and may not take
// the process with it that receives. The child gets what it is to do over standard input, so that nothing of it is among its arguments
// or in its environment. It ends when its input does, and is killed when the thread of its parent ends that began it.
package child

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Name of the hidden command that a child is.
const Name = "child"

const (
	// stopTime is how long a child may take to end once it is asked to stop: as long as a pod, and a little for its process.
	stopTime = 35 * time.Second
	// keptSaid is what is kept of the last that a child writes to standard error, and keptResult what is read of its result, in bytes.
	keptSaid, keptResult = 1 << 10, 64 << 10
)

// Config of Run.
type Config struct {
	// Program is one of those of Command, and Arguments are those of its command line.
	Program   string
	Arguments []string
	// Memory is how many bytes of data the child, and each process that it begins, may have.
	Memory int64
	// Stderr gets what they write to standard error.
	Stderr io.Writer
	// Binary is the program file; empty: this process's.
	Binary string
}

// passed are the variables of the environment that a child needs: where it finds programs, certificates and proxies.
var passed = []string{"PATH", "HOME", "TMPDIR", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
	"http_proxy", "https_proxy", "no_proxy"}

// task is what a child reads.
type task struct {
	Program     string            `json:"program"`
	Arguments   []string          `json:"arguments"`
	Memory      int64             `json:"memory"`
	Environment map[string]string `json:"environment"`
}

// result is what a child writes to standard output when its program has ended.
type result struct {
	Error string `json:"error,omitempty"`
}

// Run runs a program in a child until the program ends, or ctx does: then the child is asked to stop. Errors: of the program; how the
// child died.
func Run(ctx context.Context, cfg Config) error {
	job := task{Program: cfg.Program, Arguments: cfg.Arguments, Memory: cfg.Memory, Environment: map[string]string{}}
	for _, name := range passed {
		if value, set := os.LookupEnv(name); set {
			job.Environment[name] = value
		}
	}
	line, err := json.Marshal(job)
	if err != nil {
		return err
	}
	binary := cfg.Binary
	if binary == "" {
		if binary, err = os.Executable(); err != nil {
			return err
		}
	}
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the kernel kills the child when this thread ends
		defer runtime.UnlockOSThread()
		ended <- run(ctx, cfg, binary, append(line, '\n'))
	}()
	return <-ended
}

func run(ctx context.Context, cfg Config, binary string, line []byte) error {
	cmd := exec.Command(binary, Name)
	cmd.Env = []string{"GOTRACEBACK=single"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	said, wrote := &tail{to: cfg.Stderr, most: keptSaid}, &tail{most: keptResult}
	cmd.Stdout, cmd.Stderr = wrote, said
	cmd.WaitDelay = 5 * time.Second // a process that it began may have its output
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a process for program %s: %w", cfg.Program, err)
	}
	group := cmd.Process.Pid
	_, err = input.Write(line)
	ended := make(chan struct{})
	go stop(ctx, ended, input, group)
	waited := cmd.Wait()
	close(ended)
	_ = syscall.Kill(-group, syscall.SIGKILL) // what it began, and left
	return errors.Join(outcome(cfg, cmd, waited, wrote.last(), said.wanting()), inputError(err, waited))
}

// stop tells a child to stop once ctx ends, and kills it where it does not.
func stop(ctx context.Context, ended <-chan struct{}, input io.Closer, group int) {
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	_ = input.Close()
	select {
	case <-ended:
	case <-time.After(stopTime):
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
}

// inputError is one of writing to a child that did not die of it.
func inputError(err, waited error) error {
	if waited != nil {
		return nil
	}
	return err
}

// outcome says how a program ended, or how its process died.
func outcome(cfg Config, cmd *exec.Cmd, waited error, wrote []byte, wanting bool) error {
	var reported result
	if err := json.Unmarshal(wrote, &reported); err == nil && cmd.ProcessState.Exited() && cmd.ProcessState.ExitCode() <= 1 {
		if reported.Error == "" {
			return nil
		}
		return errors.New(reported.Error)
	}
	how := cmd.ProcessState.String()
	if waited != nil {
		how = waited.Error()
	}
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case wanting && status.Exited() && status.ExitStatus() == 2: // as the runtime of Go ends
		how = fmt.Sprintf("it needed more than its %d MiB of memory: have it move less at a time, or run it on a computer with more memory", cfg.Memory>>20)
	case status.Signaled() && status.Signal() == syscall.SIGKILL:
		how += ": the kernel killed it for want of memory, or a user did"
	}
	return &DeathError{Program: cfg.Program, PID: cmd.Process.Pid, How: how}
}

// DeathError says that a child died, and not that its program ended.
type DeathError struct {
	Program string
	PID     int
	How     string
}

// Error implements error.
func (e *DeathError) Error() string {
	return fmt.Sprintf("process %d of program %s died, and this one goes on: %s", e.PID, e.Program, e.How)
}

// Limit returns the memory that a child may have here: half of the computer's, and not more than 2 GiB.
func Limit() int64 {
	const least, most = 256 << 20, 2 << 30
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return most / 2
	}
	return max(least, min(most, int64(uint64(info.Totalram)*uint64(info.Unit)/2))) //nolint:unconvert // Totalram has 32 bits on some machines
}

// tail passes on what is written, and keeps the last of it.
type tail struct {
	to   io.Writer
	most int

	mu   sync.Mutex
	kept []byte
	// noMemory: it was said, perhaps long before the last, since what each goroutine was doing follows.
	noMemory bool
}

// noMemory are the texts of Go's runtime and of others for want of memory.
var noMemory = [][]byte{[]byte("out of memory"), []byte("cannot allocate memory")}

const longestText = len("cannot allocate memory")

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.kept = append(t.kept, p...)
	for _, text := range noMemory { // it may have come in pieces
		t.noMemory = t.noMemory || bytes.Contains(t.kept[max(0, len(t.kept)-len(p)-longestText):], text)
	}
	if more := len(t.kept) - t.most; more > 0 {
		t.kept = append(t.kept[:0], t.kept[more:]...)
	}
	t.mu.Unlock()
	if t.to == nil {
		return len(p), nil
	}
	return t.to.Write(p)
}

// wanting says whether a process said that it lacks memory.
func (t *tail) wanting() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.noMemory
}

func (t *tail) last() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.kept)
}
