// SPDX-License-Identifier: Apache-2.0

//go:build linux

package manifests_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/substorm/substorm/cli/up/manifests"
)

// patience is how long a test waits for what comes.
const patience = time.Minute

// watched has the folder of a file watched until the test ends, or the file alone. The function waits until the file is seen with a content.
func watched(t *testing.T, path, file string, seen manifests.Sum) (sees func(want string)) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	changes, ended := make(chan string, 100), make(chan error, 1)
	go func() {
		ended <- manifests.Watch(ctx, []string{path}, seen, func() {
			text, _ := os.ReadFile(file)
			changes <- string(text)
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return func(want string) {
		t.Helper()
		late := time.After(patience)
		for {
			select {
			case is := <-changes:
				if is == want {
					return
				}
			case err := <-ended:
				ended <- err
				t.Fatalf("it ended: %v", err)
			case <-late:
				t.Fatalf("%q is not seen", want)
			}
		}
	}
}

// TestWatch: what is written is seen, also in a folder that was removed and made again, and what was written before it was watched.
func TestWatch(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "manifests")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	seen := manifests.SumOf([]string{dir})
	sees := watched(t, dir, write(t, dir, "site.yaml", "a: b"), seen)
	sees("a: b")
	write(t, dir, "site.yaml", "a: c")
	sees("a: c")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	sees("")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "site.yaml", "a: d")
	sees("a: d")
}

// TestWatchInABusyFolder: a change of the file is seen while something else is written beside it all the time.
func TestWatchInABusyFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, dir, "site.yaml", "a: b")
	sees := watched(t, file, file, manifests.SumOf([]string{file}))
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	defer writing.Wait()
	defer stop()
	writing.Go(func() {
		for ctx.Err() == nil {
			if err := os.WriteFile(filepath.Join(dir, "log"), []byte("line\n"), 0o600); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	write(t, dir, "site.yaml", "a: c")
	sees("a: c")
}

// TestSumOf: a pipe is left to who reads it.
func TestSumOf(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	first := manifests.SumOf([]string{pipe}) // who opened the pipe would wait for a writer
	if again := manifests.SumOf([]string{pipe}); again != first {
		t.Error("the same pipe has two sums")
	}
}
