// SPDX-License-Identifier: Apache-2.0

//go:build linux

package objectstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
)

// TestFolderSettled: no caller learns of an object whose name may not outlast a power cut.
func TestFolderSettled(t *testing.T) {
	dir := t.TempDir()
	store := inFolder(t, dir)
	hang := make(chan struct{})
	objectstore.SyncBy(store, func(f *os.File) error {
		if filepath.Base(f.Name()) == "slow" {
			<-hang
		}
		return nil
	})
	stored := make(chan error, 1)
	go func() { stored <- put(t.Context(), store, "slow/x", []byte("abc"), objectstore.PutOptions{}) }()
	testenv.Await(t, "the object has its name", func() bool {
		_, err := os.Stat(filepath.Join(dir, "archive/slow/x"))
		return err == nil
	})
	calls := map[string]func(context.Context) error{
		"put": func(ctx context.Context) error {
			return put(ctx, store, "slow/x", []byte("abc"), objectstore.PutOptions{CreateOnly: true})
		},
		"head": func(ctx context.Context) error { _, err := store.Head(ctx, "slow/x"); return err },
		"get":  func(ctx context.Context) error { _, err := get(ctx, store, "slow/x", objectstore.All); return err },
		"list": func(ctx context.Context) error {
			for _, err := range store.List(ctx, "slow/", "") {
				return err
			}
			return nil
		},
	}
	for name, call := range calls {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, objectstore.ErrUnavailable) {
			t.Errorf("%s before the name lasts: %v", name, err)
		}
		cancel()
	}
	close(hang)
	if err := <-stored; err != nil {
		t.Error(err)
	}
	for name, call := range calls {
		if err := call(t.Context()); name == "put" && !errors.Is(err, objectstore.ErrExists) || name != "put" && err != nil {
			t.Errorf("%s after it lasts: %v", name, err)
		}
	}
}

// TestFolderSyncFails: what could not be synced is not acknowledged, be it a file or the name of one of its folders, and can be stored again.
func TestFolderSyncFails(t *testing.T) {
	for _, fails := range []string{"archive", "a", "b", ".substorm/unfinished/"} {
		t.Run(fails, func(t *testing.T) {
			store := inFolder(t, t.TempDir())
			var broken atomic.Bool
			broken.Store(true)
			objectstore.SyncBy(store, func(f *os.File) error {
				name := filepath.Clean(f.Name())
				if broken.Load() && (strings.HasSuffix(name, "/"+fails) || strings.HasSuffix(filepath.Dir(name)+"/", fails)) {
					return &os.PathError{Op: "sync", Path: name, Err: unix.EIO}
				}
				return nil
			})
			for i := range 3 { // also when the folders are there by now
				err := put(t.Context(), store, "a/b/x", []byte("abc"), objectstore.PutOptions{})
				if !errors.Is(err, objectstore.ErrUnavailable) || !strings.Contains(err.Error(), "dmesg") {
					t.Errorf("%d: %v", i, err)
				}
			}
			broken.Store(false)
			if err := put(t.Context(), store, "a/b/x", []byte("abc"), objectstore.PutOptions{}); err != nil {
				t.Error(err)
			}
			wantBytes(t, store, "a/b/x", []byte("abc"))
		})
	}
}

// TestFolderSyncShared: calls that wait for one folder at once share its syncs.
func TestFolderSyncShared(t *testing.T) {
	dir := t.TempDir()
	store := inFolder(t, dir)
	if err := put(t.Context(), store, "a/first", []byte("abc"), objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	const calls = 32
	syncs := 0
	objectstore.SyncBy(store, func(f *os.File) error {
		if filepath.Base(f.Name()) != "a" {
			return nil
		}
		if syncs++; syncs > 1 {
			return nil
		}
		for range testenv.Attempts() {
			if names, err := os.ReadDir(filepath.Join(dir, "archive/a")); err != nil || len(names) == calls+1 {
				return err
			}
		}
		return errors.New("not all objects have their names")
	})
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			if err := put(t.Context(), store, fmt.Sprintf("a/%d", i), []byte("abc"), objectstore.PutOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if t.Logf("%d calls, %d syncs", calls, syncs); syncs >= calls {
		t.Errorf("%d calls had %d syncs", calls, syncs)
	}
}
