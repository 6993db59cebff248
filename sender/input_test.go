// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sender

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestEmptyInput(t *testing.T) {
	empty, blank := filepath.Join(t.TempDir(), "empty"), filepath.Join(t.TempDir(), "blank")
	for path, text := range map[string]string{empty: "", blank: "\n\r\n\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		paths []string
		lines bool
		udp   bool
		stdin string
		says  string
	}{
		"nothing named":           {says: "nothing to send"},
		"an empty file":           {paths: []string{empty}, says: "it is empty"},
		"an empty datagram":       {paths: []string{empty}, udp: true, says: "it is empty"},
		"an empty folder":         {paths: []string{t.TempDir()}, says: "the input is empty"},
		"empty stdin":             {paths: []string{"-"}, says: "it is empty"},
		"no lines on stdin":       {paths: []string{"-"}, lines: true, says: "the input is empty"},
		"only empty lines":        {paths: []string{blank}, lines: true, says: "the input is empty"},
		"a missing file":          {paths: []string{empty, "missing.jpg"}, says: "missing.jpg"},
		"stdin twice":             {paths: []string{"-", "-"}, says: "only once"},
		"neither file nor folder": {paths: []string{os.DevNull}, says: "neither a file nor a folder"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, good)
			cfg := config(t, c.paths...)
			cfg.Addresses, cfg.Lines, cfg.UDP, cfg.Stdin = []string{p.address()}, c.lines, c.udp, strings.NewReader(c.stdin)
			if err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error that says %q", err, c.says)
			}
			if p.connections() > 0 {
				t.Error("a server was bothered with nothing")
			}
		})
	}
}

// TestInputs: files, folders in order, standard input as one object and by lines.
func TestInputs(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"b/2.txt": "two", "b/1.txt": "one", "a.txt": "a", "c.txt": "x\r\n\ny\nz"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := func(s string) string { return filepath.Join(dir, filepath.FromSlash(s)) }
	for name, c := range map[string]struct {
		paths []string
		lines bool
		want  []string // name=content
	}{
		"folder":           {[]string{dir}, false, []string{in("a.txt") + "=a", in("b/1.txt") + "=one", in("b/2.txt") + "=two", in("c.txt") + "=x\r\n\ny\nz"}},
		"files as named":   {[]string{in("c.txt"), in("a.txt")}, false, []string{in("c.txt") + "=x\r\n\ny\nz", in("a.txt") + "=a"}},
		"lines of a file":  {[]string{in("c.txt")}, true, []string{in("c.txt:1") + "=x", in("c.txt:3") + "=y", in("c.txt:4") + "=z"}},
		"stdin":            {[]string{"-"}, false, []string{"-=l1\nl2\n"}},
		"lines of stdin":   {[]string{"-"}, true, []string{"-:1=l1", "-:2=l2"}},
		"stdin and a file": {[]string{in("a.txt"), "-"}, true, []string{in("a.txt:1") + "=a", "-:1=l1", "-:2=l2"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, good)
			cfg := config(t, c.paths...)
			cfg.Addresses, cfg.Lines, cfg.Stdin = []string{p.address()}, c.lines, strings.NewReader("l1\nl2\n")
			if err := Run(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			var got, want []string
			for _, r := range readReport(t, cfg) {
				got = append(got, r.Name+" "+r.SHA256)
			}
			for _, w := range c.want {
				name, text, _ := strings.Cut(w, "=")
				want = append(want, fmt.Sprintf("%s %x", name, sha256.Sum256([]byte(text))))
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if all, different := p.arrived(); all != len(want) || different != len(want) {
				t.Errorf("%d objects arrived, %d different", all, different)
			}
		})
	}
}

// TestStdinIsSentAgain: what came through a pipe can be repeated too.
func TestStdinIsSentAgain(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	p := newPeer(t, reset, good)
	cfg := config(t, "-")
	data := make([]byte, 1<<20)
	_, _ = rand.Read(data)
	cfg.Addresses, cfg.Stdin, cfg.GiveUpAfter = []string{p.address()}, bytes.NewReader(data), time.Hour
	if err := Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if r := readReport(t, cfg); r[0].SHA256 != fmt.Sprintf("%x", sha256.Sum256(data)) || r[0].Tries != 2 {
		t.Errorf("report: %+v", r)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
