// SPDX-License-Identifier: Apache-2.0

package rsync_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/bound"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/rsync"
	"github.com/substorm/substorm/mirror-jobs/tree"
)

func sourceOf(t *testing.T, list int64, limits ...tree.Limits) (s rsync.Source, dir string) {
	t.Helper()
	address, dir := testenv.RsyncDaemon(t, "")
	cfg := rsync.Config{MirrorRsync: wire.MirrorRsync{Daemon: &wire.MirrorRsyncDaemon{Address: address, Module: "data"}}, Scratch: t.TempDir(), List: list}
	if len(limits) > 0 {
		cfg.Limits = limits[0]
	}
	m, err := rsync.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return rsync.Source{Mover: m}, dir
}

// A list that does not end is read up to a bound, and what it names until there comes.
func TestEndlessList(t *testing.T) {
	s, dir := sourceOf(t, 20_000)
	for i := range 1000 {
		writeAll(t, dir, fmt.Sprintf("d/%03d.txt", i))
	}
	files := 0
	err := s.Walk(t.Context(), func(f tree.Folder) error {
		for _, file := range f.Files {
			if len(file.Path) != len("d/000.txt") || file.Size != 4 {
				t.Errorf("it lists %+v", file)
			}
		}
		files += len(f.Files)
		return nil
	})
	var p *push.Problem
	if !errors.Is(err, tree.ErrUnlisted) || !errors.As(err, &p) || p.Reason != wire.MirrorReasonProtocol || files >= 1000 {
		t.Errorf("%d files, %v", files, err)
	}
}

// The files of a folder come up to the limit; folders beyond theirs, and those that lie too deep, are refused each
// with a name of its own. All other folders come.
func TestTreeLimits(t *testing.T) {
	for name, c := range map[string]struct {
		limits  tree.Limits
		refused string
		files   int
	}{
		"files":      {tree.Limits{Files: 30}, bound.Folder, 30 + 3},
		"more files": {tree.Limits{Files: 60}, bound.Folder, 60 + 3},
		"bytes":      {tree.Limits{Bytes: 30 * 120}, bound.Folder, 0},
		"folders":    {tree.Limits{Folders: 2}, bound.Folders, 101},
		"depth":      {tree.Limits{Depth: 2}, bound.Depth, 101},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, dir := sourceOf(t, 0, c.limits)
			for i := range 100 {
				writeAll(t, dir, fmt.Sprintf("a/%03d.txt", i))
			}
			writeAll(t, dir, "b/f.txt", "c/d/e/f.txt", "c/d/e/f/g.txt")
			files, kept := 0, int64(0)
			err := s.Walk(t.Context(), func(f tree.Folder) error {
				files += len(f.Files)
				if f.Path == "a" {
					for _, file := range f.Files {
						kept += tree.Size(file.Path, file.Mark)
					}
				}
				return nil
			})
			var p *push.Problem
			if !errors.Is(err, tree.ErrUnlisted) || !errors.As(err, &p) || p.Reason != wire.MirrorReasonProtocol || !slices.Equal(bound.Of(err), []string{c.refused}) {
				t.Errorf("%v", err)
			}
			if c.files > 0 && files != c.files || c.limits.Bytes > 0 && (kept > c.limits.Bytes || files < 4) {
				t.Errorf("%d files, of which those of the large folder take %d bytes", files, kept)
			}
		})
	}
}

// A list that cannot be read to its end is not taken for a whole one: what it names until there comes, and the run says that more is not listed.
func TestUnreadableList(t *testing.T) {
	t.Parallel()
	lists := filepath.Join(t.TempDir(), "rsync")
	script := "#!/bin/sh\necho '-rw-r--r-- 4 2026/11/28 12:00:00 a/1.txt'\nhead -c 100000 /dev/zero | tr '\\0' x\necho\necho '-rw-r--r-- 4 2026/11/28 12:00:00 b/2.txt'\n"
	if err := os.WriteFile(lists, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	m, err := rsync.New(rsync.Config{MirrorRsync: wire.MirrorRsync{Daemon: &wire.MirrorRsyncDaemon{Address: "127.0.0.1:1", Module: "data"}}, Scratch: t.TempDir(), Program: lists})
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	err = rsync.Source{Mover: m}.Walk(t.Context(), func(f tree.Folder) error { files += len(f.Files); return nil })
	if !errors.Is(err, tree.ErrUnlisted) || files != 1 {
		t.Errorf("%d files, %v", files, err)
	}
}

// The output of an rsync server is read up to a limit while copies are sent.
func TestEndlessMessages(t *testing.T) {
	t.Parallel()
	talks := filepath.Join(t.TempDir(), "rsync")
	if err := os.WriteFile(talks, []byte("#!/bin/sh\nexec yes 'a message of the partner'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	m, err := rsync.New(rsync.Config{MirrorRsync: wire.MirrorRsync{Daemon: &wire.MirrorRsyncDaemon{Address: "127.0.0.1:1", Module: "data"}}, Scratch: t.TempDir(), Program: talks})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Has(t.Context(), []string{"a.txt"})
	var p *push.Problem
	if !errors.As(err, &p) || p.Reason != wire.MirrorReasonProtocol || !slices.Equal(bound.Of(err), []string{bound.RsyncAnswer}) {
		t.Errorf("%v", err)
	}
}

// A file that is larger than an object may be is not fetched, nor one that is much larger than it was listed; all others are.
func TestLargeFiles(t *testing.T) {
	s, dir := sourceOf(t, 0)
	for name, size := range map[string]int{"fits.bin": 100, "grew.bin": 600, "large.bin": 2000, "lied.bin": 3 << 20, "lies.bin": 2000} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Repeat("0", size)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files := []tree.Wanted{
		{File: plan.File{Path: "fits.bin", Size: 100}, Most: 1000}, {File: plan.File{Path: "grew.bin", Size: 100}, Most: 1000},
		{File: plan.File{Path: "large.bin", Size: 2000}, Most: 1000}, {File: plan.File{Path: "lied.bin", Size: 1}},
		{File: plan.File{Path: "lies.bin", Size: 1}, Most: 1000},
	}
	got := make([]tree.Got, len(files))
	if err := s.Fetch(t.Context(), files, func(i int, g tree.Got) error { got[i] = g; return nil }); err != nil {
		t.Fatal(err)
	}
	for i, size := range map[int]int64{0: 100, 1: 600} {
		if got[i].Err != nil || got[i].Size != size {
			t.Errorf("%s: %d bytes, %v", files[i].Path, got[i].Size, got[i].Err)
		}
	}
	for _, i := range []int{2, 4} {
		if !errors.Is(got[i].Err, tree.ErrTooLarge) {
			t.Errorf("%s: %v", files[i].Path, got[i].Err)
		}
	}
	if got[3].Err == nil {
		t.Errorf("3 MiB came of a file that was listed with 1 byte")
	}
}
