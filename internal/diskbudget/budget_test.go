// SPDX-License-Identifier: Apache-2.0

//go:build linux

package diskbudget

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
)

func write(t *testing.T, path string, size int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
}

// kept is a budget that runs.
func kept(t *testing.T, dir string, declared int64) *Budget {
	t.Helper()
	b, err := New(dir, declared, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); b.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	await(t, b, "it is measured", func(s State) bool { return s.Measured })
	return b
}

func await(t *testing.T, b *Budget, what string, holds func(State) bool) {
	t.Helper()
	for range testenv.Attempts() {
		if holds(b.State()) {
			return
		}
	}
	t.Fatalf("after %v still not: %s: %+v", testenv.Patience, what, b.State())
}

// about says whether a number of bytes is another, but for what the file system needs for itself.
func about(is, want int64) bool { return is >= want && is < want+mebibyte }

// A declared budget ends where the data folder has as much, whatever else is on the disk, and receiving resumes when something is
// removed.
func TestDeclared(t *testing.T) {
	_, mounted := testenv.DiskOf(t, 256*mebibyte) // no other process writes there
	dir := filepath.Join(mounted, "data")
	write(t, filepath.Join(dir, "objects", "archive", "o", "one"), 50*mebibyte)
	write(t, filepath.Join(dir, "nats", "streams", "one"), 7*mebibyte)
	write(t, filepath.Join(dir, "volumes", "one"), 3*mebibyte)
	write(t, filepath.Join(dir, "lock"), 1)
	b := kept(t, dir, 100*mebibyte)
	is := b.State()
	if !about(is.Objects, 50*mebibyte) || !about(is.Streams, 7*mebibyte) || !about(is.Spool, 3*mebibyte) || is.Other <= 0 || !about(is.Used, 60*mebibyte) || is.Budget() != 100*mebibyte {
		t.Fatalf("%+v", is)
	}
	b.Archived(10*mebibyte, 20*mebibyte)
	if is := b.State(); is.Decision != (Decision{}) {
		t.Errorf("with 60 of 100 MiB: %+v", is.Decision)
	}
	write(t, filepath.Join(dir, "objects", "archive", "o", "two"), 32*mebibyte)
	await(t, b, "what can be made again goes", func(s State) bool { return s.Remove >= 7*mebibyte && s.Remove < 9*mebibyte && !s.Messages })
	b.Archived(0, 10*mebibyte)
	write(t, filepath.Join(dir, "objects", "archive", "o", "three"), 4*mebibyte)
	await(t, b, "messages go", func(s State) bool { return s.Remove == 0 && s.Messages && !s.NoReceipts })
	write(t, filepath.Join(dir, "objects", "archive", "o", "four"), 5*mebibyte)
	await(t, b, "receipts end", func(s State) bool { return s.NoReceipts && s.Messages })
	if !b.NoReceipts() {
		t.Error("there are receipts")
	}
	if err := os.Remove(filepath.Join(dir, "objects", "archive", "o", "one")); err != nil {
		t.Fatal(err)
	}
	await(t, b, "all is well", func(s State) bool { return s.Decision == (Decision{}) })

	write(t, filepath.Join(mounted, "others"), 60*mebibyte) // on the same disk, by another user
	await(t, b, "what others write is not taken for ours", func(s State) bool { return s.Decision == (Decision{}) && s.Used < 100*mebibyte })
}

// Files that others remove from the disk make the data folder no smaller.
func TestOthersRemove(t *testing.T) {
	_, mounted := testenv.DiskOf(t, 256*mebibyte)
	dir := filepath.Join(mounted, "data")
	write(t, filepath.Join(dir, "objects", "archive", "o", "one"), 60*mebibyte)
	write(t, filepath.Join(mounted, "others"), 90*mebibyte)
	b := kept(t, dir, 100*mebibyte)
	b.Archived(0, 0)
	if err := os.Remove(filepath.Join(mounted, "others")); err != nil {
		t.Fatal(err)
	}
	await(t, b, "the space is not taken for ours", func(s State) bool { return s.Free > 150*mebibyte && about(s.Used, 60*mebibyte) })
	write(t, filepath.Join(dir, "objects", "archive", "o", "two"), 45*mebibyte)
	await(t, b, "receipts end", func(s State) bool { return s.NoReceipts })
}

// Without a declared budget it ends before the disk is full, and leaves the reserve.
func TestDisk(t *testing.T) {
	_, mounted := testenv.DiskOf(t, 128*mebibyte)
	dir := filepath.Join(mounted, "data")
	write(t, filepath.Join(dir, "objects", "one"), mebibyte)
	b := kept(t, dir, 0)
	b.Archived(0, 0)
	filled := 0
	for ; !b.NoReceipts(); filled++ {
		write(t, filepath.Join(dir, "objects", "more", string(rune('a'+filled/26))+string(rune('a'+filled%26))), mebibyte)
		time.Sleep(2 * lookEvery / 3) // ext4 counts what is not written yet, too; a disk of this size is full in less than a look
		if filled > 128 {
			t.Fatalf("128 MiB hold more: %+v", b.State())
		}
	}
	free, size, err := Space(dir)
	if err != nil || free < Reserve(size)-4*mebibyte || free > Reserve(size)+2*mebibyte {
		t.Errorf("after %d MiB %d bytes are left, want about the reserve of %d: %v", filled, free, Reserve(size), err)
	}
	write(t, filepath.Join(mounted, "others"), mebibyte)
	if err := os.Remove(filepath.Join(dir, "objects", "more", "aa")); err != nil {
		t.Fatal(err)
	}
	if !b.NoReceipts() {
		t.Error("there are receipts though others took the space")
	}
	if err := os.RemoveAll(filepath.Join(dir, "objects", "more")); err != nil {
		t.Fatal(err)
	}
	await(t, b, "there is space", func(s State) bool { return s.Decision == (Decision{}) })
	if err := os.WriteFile(filepath.Join(mounted, "filler"), make([]byte, 128*mebibyte), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	await(t, b, "others filled the disk", func(s State) bool { return s.NoReceipts })
}

// A folder that cannot be measured is said.
func TestNoFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	if _, err := New(dir, 0, nil); err == nil {
		t.Error("there is a budget of a folder that is not there")
	}
	if _, err := Measure(t.Context(), dir); err == nil {
		t.Error("a folder that is not there is measured")
	}
}
