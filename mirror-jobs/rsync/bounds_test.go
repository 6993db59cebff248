// SPDX-License-Identifier: Apache-2.0

package rsync_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/rsync"
	"github.com/substorm/substorm/mirror-jobs/tree"
)

func sourceOf(t *testing.T, list int64) (s rsync.Source, dir string) {
	t.Helper()
	address, dir := testenv.RsyncDaemon(t, "")
	m, err := rsync.New(rsync.Config{MirrorRsync: wire.MirrorRsync{Daemon: &wire.MirrorRsyncDaemon{Address: address, Module: "data"}}, Scratch: t.TempDir(), List: list})
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

// What is larger than an object may be, or than it was listed, is not fetched, and keeps nothing else from coming.
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
