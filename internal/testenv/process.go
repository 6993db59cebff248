// SPDX-License-Identifier: Apache-2.0

// Package testenv starts real servers for tests: on loopback, on free ports, with
// their data in the test's temporary folder, and killed by pid when the test
// ends (or dies).
package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience is how long tests wait for what must come, a server's first answer among
// it, before they call it missing. It says nothing about how long that takes:
// machines that do something else at the same time are slow.
const Patience = 3 * time.Minute

// Process is a server that can be killed, stopped, paused and started again
// with the same command line: same ports, same data.
type Process struct {
	t     testing.TB
	name  string
	dir   string
	argv  []string
	env   []string
	ready func() error
	// shared: other tests of the package use it too.
	shared bool

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
}

// newProcess describes a server; Start starts it. It ends with the test, and a
// failed test shows the end of its log.
func newProcess(t testing.TB, name, dir string, argv, env []string, ready func() error) *Process {
	t.Helper()
	p := &Process{t: t, name: name, dir: dir, argv: argv, env: env, ready: ready}
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		p.wait()
		if t.Failed() {
			t.Logf("the last of %s's log:\n%s", name, p.logTail())
			p.keepLog()
		}
	})
	return p
}

// Start starts the server where it does not run and waits until it answers.
func (p *Process) Start() {
	p.t.Helper()
	if err := p.TryStart(); err != nil {
		p.t.Fatal(err)
	}
}

// TryStart is Start for a server that may be beyond starting: the error has the end of its log.
func (p *Process) TryStart() error {
	if err := p.start(); err != nil {
		return fmt.Errorf("%w\n%s", err, p.logTail())
	}
	return nil
}

func (p *Process) start() error {
	p.mu.Lock()
	if p.cmd != nil {
		p.mu.Unlock()
		return nil
	}
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		p.mu.Unlock()
		return err
	}
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	done, started := make(chan struct{}), make(chan error, 1)
	go func() {
		// The death signal comes when the thread that started the child ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer log.Close()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		p.mu.Unlock()
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd, p.done = cmd, done
	p.mu.Unlock()
	return p.awaitReady(done)
}

func (p *Process) awaitReady(done chan struct{}) error {
	var err error
	for range Attempts() {
		if err = p.ready(); err == nil {
			return nil
		}
		select {
		case <-done:
			p.wait()
			return fmt.Errorf("%s ended at its start: %w", p.name, errEnded)
		default:
		}
	}
	return fmt.Errorf("%s does not answer after %v: %w", p.name, Patience, err)
}

var errEnded = errors.New("process ended")

// Kill ends the server with SIGKILL, as a power cut without the disk's part.
func (p *Process) Kill() { p.signal(syscall.SIGKILL); p.wait() }

// Stop ends the server with SIGTERM and waits for it.
func (p *Process) Stop() { p.signal(syscall.SIGTERM); p.wait() }

// Pause stops the server with SIGSTOP: its sockets stay, it is silent from the moment when Pause returns.
func (p *Process) Pause() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	for deadline := time.Now().Add(Patience); !p.stopped(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s does not stop", p.name)
		}
	}
}

// stopped says whether every thread is stopped (or there is no process).
func (p *Process) stopped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return true
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
	if err != nil {
		return false
	}
	for _, file := range threads {
		stat, err := os.ReadFile(file)
		if err != nil { // the thread has ended
			continue
		}
		// The state follows the name, which is in parentheses (proc_pid_stat(5)).
		if state := stat[bytes.LastIndexByte(stat, ')')+1:]; len(state) < 2 || state[1] != 'T' {
			return false
		}
	}
	return true
}

// Continue ends a Pause.
func (p *Process) Continue() { p.signal(syscall.SIGCONT) }

// PID of the server, 0 while it does not run.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

func (p *Process) signal(s syscall.Signal) {
	if p.shared {
		panic(fmt.Sprintf("a test signals %s, which it shares with others: give it a server of its own", p.name))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(s)
	}
}

func (p *Process) wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	<-p.done
	p.cmd = nil
}

func (p *Process) logFile() string { return filepath.Join(p.dir, p.name+".log") }

// Log returns what the server has said so far.
func (p *Process) Log() string {
	b, _ := os.ReadFile(p.logFile())
	return string(b)
}

// keepLog keeps all of the log among the artifacts of a failed test (go test -artifacts).
func (p *Process) keepLog() {
	file, err := os.CreateTemp(p.t.ArtifactDir(), p.name+"-*.log")
	if err == nil {
		_, err = file.WriteString(p.Log())
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		p.t.Logf("the log of %s is not kept: %v", p.name, err)
	}
}

func (p *Process) logTail() string {
	log := p.Log()
	return log[max(0, len(log)-4000):]
}
