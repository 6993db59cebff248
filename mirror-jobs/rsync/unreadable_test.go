// SPDX-License-Identifier: Apache-2.0

package rsync_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/rsync"
	"github.com/substorm/substorm/mirror-jobs/tree"
)

// asNobody is a daemon without the rights of root, and a mover to it.
func asNobody(t *testing.T) (m *rsync.Mover, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("this needs the privilege to let a daemon run as another user")
	}
	address, dir := testenv.RsyncDaemon(t, "uid = nobody\ngid = nogroup\n")
	m, err := rsync.New(rsync.Config{MirrorRsync: wire.MirrorRsync{Daemon: &wire.MirrorRsyncDaemon{Address: address, Module: "data"}}, Scratch: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return m, dir
}

func writeAll(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("text"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// A file or a folder that the other side may not read keeps nothing else from coming.
func TestSourceUnreadable(t *testing.T) {
	for what, c := range map[string]struct {
		secret   string
		unlisted bool
		came     []string
	}{
		"a file":   {"a/secret.txt", false, []string{"a/1.txt", "b/2.txt", "c/3.txt"}},
		"a folder": {"b", true, []string{"a/1.txt", "a/secret.txt", "c/3.txt"}},
	} {
		t.Run(what, func(t *testing.T) {
			m, dir := asNobody(t)
			writeAll(t, dir, "a/1.txt", "a/secret.txt", "b/2.txt", "c/3.txt")
			if err := os.Chmod(filepath.Join(dir, c.secret), 0); err != nil {
				t.Fatal(err)
			}
			s := rsync.Source{Mover: m}
			var all []tree.Wanted
			err := s.Walk(t.Context(), func(f tree.Folder) error {
				for _, file := range f.Files {
					all = append(all, tree.Wanted{File: file})
				}
				return nil
			})
			if errors.Is(err, tree.ErrUnlisted) != c.unlisted || err != nil && !c.unlisted {
				t.Errorf("listed: %v", err)
			}
			var came []string
			failed := 0
			err = s.Fetch(t.Context(), all, func(i int, got tree.Got) error {
				if got.Err != nil {
					failed++
					return nil
				}
				came = append(came, all[i].Path)
				return nil
			})
			slices.Sort(came)
			if diff := cmp.Diff(c.came, came); diff != "" || err != nil || failed != len(all)-len(came) {
				t.Errorf("%v, %d failed (-want +came):\n%s", err, failed, diff)
			}
		})
	}
}

// Files that a partner does not remove, or does not read for comparison, are reported.
func TestPartnerRefuses(t *testing.T) {
	m, dir := asNobody(t)
	writeAll(t, dir, "x/1.txt")
	if err := m.Remove(t.Context(), []string{"x/1.txt"}); !errors.As(err, new(*push.KeptError)) {
		t.Errorf("of a file that the daemon may not remove is said: %v", err)
	}
	f := push.File{Path: "x/1.txt", Size: 4, Modified: time.Now().Add(-time.Hour).Truncate(time.Second), Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("text")), nil }}
	for _, secret := range []string{"x/1.txt", "x"} {
		name := filepath.Join(dir, secret)
		if err := errors.Join(os.Chtimes(filepath.Join(dir, "x/1.txt"), f.Modified, f.Modified), os.Chmod(name, 0)); err != nil {
			t.Fatal(err)
		}
		differ := 0
		if err := m.Verify(t.Context(), []push.File{f}, true, func(int, string) { differ++ }); err == nil && differ != 1 {
			t.Errorf("%s cannot be read, and %d files differ", secret, differ)
		}
		if err := os.Chmod(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
