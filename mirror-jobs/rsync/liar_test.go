// SPDX-License-Identifier: Apache-2.0

package rsync_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/liar"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/rsync"
	"github.com/substorm/substorm/mirror-jobs/tree"
)

// A web server in place of a daemon of rsync ends a run with a reason, whichever way that goes.
func TestPortal(t *testing.T) {
	t.Parallel()
	portal := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(liar.Page)) }))
	t.Cleanup(portal.Close)
	m, err := rsync.New(rsync.Config{MirrorRsync: wire.MirrorRsync{Daemon: &wire.MirrorRsyncDaemon{Address: strings.TrimPrefix(portal.URL, "http://"), Module: "data"}}, Scratch: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	_, has := m.Has(t.Context(), []string{"a.txt"})
	for what, err := range map[string]error{
		"push": has,
		"pull": rsync.Source{Mover: m}.Walk(t.Context(), func(tree.Folder) error { return errors.New("it has a folder") }),
	} {
		if p := (*push.Problem)(nil); !errors.As(err, &p) || p.Reason != wire.MirrorReasonProtocol {
			t.Errorf("%s: %v (%+v)", what, err, p)
		}
	}
}

// An entry of a list whose path no file may have is no file of the tree.
func TestLyingList(t *testing.T) {
	t.Parallel()
	lists := filepath.Join(t.TempDir(), "rsync")
	script := "#!/bin/sh\ncat <<'END'\n"
	for _, path := range []string{"../evil.txt", "/etc/passwd", "a/../../evil.txt", "./b.txt", "a//c.txt", "good.txt", "good.txt"} {
		script += "-rw-r--r-- 4 2026/11/28 12:00:00 " + path + "\n"
	}
	script += "-rw-r--r-- -4 2026/11/28 12:00:00 negative.txt\n-rw-r--r-- 99999999999999999999999 2026/11/28 12:00:00 gigantic.txt\nEND\n"
	if err := os.WriteFile(lists, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	m, err := rsync.New(rsync.Config{MirrorRsync: wire.MirrorRsync{Daemon: &wire.MirrorRsyncDaemon{Address: "127.0.0.1:1", Module: "data"}}, Scratch: t.TempDir(), Program: lists})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	err = rsync.Source{Mover: m}.Walk(t.Context(), func(f tree.Folder) error {
		for _, file := range f.Files {
			got = append(got, file.Path)
		}
		return nil
	})
	slices.Sort(got)
	if !slices.Equal(slices.Compact(got), []string{"good.txt"}) {
		t.Errorf("listed are %q, %v", got, err)
	}
}
