// SPDX-License-Identifier: Apache-2.0

// Package lab lets a benchmark start the real parts of package internal/testenv, which
// are made for tests, and ends what it started.
package lab

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
)

// Lab stands in for a test where parts expect one. Methods of the embedded interface
// other than the methods below are not available.
type Lab struct {
	testing.TB // only its private method: parts call none of the rest

	mu       sync.Mutex
	cleanups []func()
	failed   atomic.Bool
	ending   atomic.Bool
}

// Run gives a benchmark its lab and ends the process: with 1 where it fails, 130
// where it is interrupted. Workers come first: in a process that was started as one of
// them, that one does not return.
func Run(benchmark func(*Lab) error, workers ...func()) {
	for _, worker := range workers {
		worker()
	}
	l := &Lab{}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-stop
		l.end(130)
	}()
	if err := benchmark(l); err != nil {
		l.Fatal(err)
	}
	l.end(0)
}

// RunIsolated is Run in a network namespace of its own, which a testenv.Link needs.
func RunIsolated(benchmark func(*Lab) error, workers ...func()) {
	for _, worker := range workers {
		worker()
	}
	if err := testenv.Isolate(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	Run(benchmark)
}

// end ends what was started, the latest first, and then the process. A second caller only stops.
func (l *Lab) end(code int) {
	if !l.ending.CompareAndSwap(false, true) {
		runtime.Goexit()
	}
	l.cleanUp(0)
	os.Exit(code)
}

// cleanUp ends what was started after the first so many, the latest first.
func (l *Lab) cleanUp(keep int) {
	for {
		l.mu.Lock()
		n := len(l.cleanups)
		if n <= keep {
			l.mu.Unlock()
			return
		}
		cleanup := l.cleanups[n-1]
		l.cleanups = l.cleanups[:n-1]
		l.mu.Unlock()
		cleanup()
	}
}

// Part runs a part of a benchmark, and ends what was started in it.
func (l *Lab) Part(part func() error) error {
	l.mu.Lock()
	before := len(l.cleanups)
	l.mu.Unlock()
	defer l.cleanUp(before)
	return part()
}

// Helper implements testing.TB.
func (l *Lab) Helper() {}

// Name implements testing.TB.
func (l *Lab) Name() string { return "bench" }

// Failed implements testing.TB.
func (l *Lab) Failed() bool { return l.failed.Load() }

// Cleanup implements testing.TB.
func (l *Lab) Cleanup(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleanups = append(l.cleanups, f)
}

// TempDir implements testing.TB.
func (l *Lab) TempDir() string {
	dir, err := os.MkdirTemp("", "substorm-bench-")
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Log implements testing.TB.
func (l *Lab) Log(args ...any) { fmt.Fprintln(os.Stderr, args...) }

// Logf implements testing.TB.
func (l *Lab) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// Error implements testing.TB.
func (l *Lab) Error(args ...any) { l.Fatal(args...) }

// Errorf implements testing.TB.
func (l *Lab) Errorf(format string, args ...any) { l.Fatalf(format, args...) }

// Fatal implements testing.TB: it ends the process.
func (l *Lab) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, append([]any{"error:"}, args...)...)
	l.failed.Store(true)
	l.end(1)
}

// Skip implements testing.TB: what a test would be skipped for, a benchmark cannot do without.
func (l *Lab) Skip(args ...any) { l.Fatal(args...) }

// Skipf implements testing.TB.
func (l *Lab) Skipf(format string, args ...any) { l.Fatalf(format, args...) }

// Fatalf implements testing.TB.
func (l *Lab) Fatalf(format string, args ...any) { l.Fatal(fmt.Sprintf(format, args...)) }
