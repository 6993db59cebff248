// SPDX-License-Identifier: Apache-2.0

package rsync_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/rsync"
	"github.com/substorm/substorm/mirror-jobs/tree"
)

// TestSource: the files of a real daemon are listed by folder, and come when asked for; files that vanished meanwhile are reported.
func TestSource(t *testing.T) {
	address, dir := testenv.RsyncDaemon(t, "")
	files := map[string]string{"aurora/top.txt": "top", "aurora/a b/ö, 1.jpg": "first", "aurora/a b/deep/x.jpg": "second", "aurora/z/big.bin": string(make([]byte, 1<<20)), "elsewhere.txt": "no"}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "aurora", "link.txt")); err != nil {
		t.Fatal(err)
	}
	mover, err := rsync.New(rsync.Config{MirrorRsync: wire.MirrorRsync{Daemon: &wire.MirrorRsyncDaemon{Address: address, Module: "data", Path: "aurora"}}, Scratch: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s := rsync.Source{Mover: mover}
	var all []tree.Wanted
	folders := map[string]int{}
	marks := func() map[string]string {
		t.Helper()
		all = nil
		clear(folders)
		if err := s.Walk(t.Context(), func(f tree.Folder) error {
			folders[f.Path] += len(f.Files)
			for _, file := range f.Files {
				all = append(all, tree.Wanted{File: file})
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		is := map[string]string{}
		for _, f := range all {
			is[f.Path] = f.Mark
		}
		return is
	}
	before := marks()
	if diff := cmp.Diff(map[string]int{"": 1, "a b": 1, "a b/deep": 1, "z": 1}, folders); diff != "" {
		t.Errorf("folders (-want +listed):\n%s", diff)
	}
	if err := os.Remove(filepath.Join(dir, "aurora/a b/deep/x.jpg")); err != nil {
		t.Fatal(err)
	}
	got, failed := map[string]string{}, 0
	if err := s.Fetch(t.Context(), all, func(i int, g tree.Got) error {
		if g.Err != nil {
			failed++
			return nil
		}
		body, err := g.Open()
		if err != nil {
			return err
		}
		defer body.Close()
		text, err := io.ReadAll(body)
		got["aurora/"+all[i].Path] = string(text)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	delete(files, "elsewhere.txt")
	delete(files, "aurora/a b/deep/x.jpg")
	if diff := cmp.Diff(files, got); diff != "" || failed != 1 {
		t.Errorf("%d failed; (-there +came):\n%.2000s", failed, diff)
	}

	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "aurora/top.txt"), later, later); err != nil {
		t.Fatal(err)
	}
	after := marks()
	if after["top.txt"] == before["top.txt"] || after["z/big.bin"] != before["z/big.bin"] {
		t.Errorf("marks were %v and are %v", before, after)
	}
}

func TestSourceAway(t *testing.T) {
	mover, err := rsync.New(rsync.Config{MirrorRsync: wire.MirrorRsync{Daemon: &wire.MirrorRsyncDaemon{Address: testenv.Loopback(testenv.FreePort(t)), Module: "data"}}, Scratch: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	err = rsync.Source{Mover: mover}.Walk(t.Context(), func(tree.Folder) error { return nil })
	var problem *push.Problem
	if !errors.As(err, &problem) || problem.Reason != wire.MirrorReasonUnreachable {
		t.Errorf("nobody listens: %v", err)
	}
}
