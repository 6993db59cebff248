// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sender

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// tree makes a folder with files of some names.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// frames are names of an instrument's files.
func frames(n int, suffixes ...string) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("2026/frame-%04d%s", i, suffixes[i%len(suffixes)]))
	}
	return names
}

// TestMixedTrees: what does not look like the files of one instrument is sent with a person's word only.
func TestMixedTrees(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		asks  string // what the question names; empty: there is none
	}{
		"frames":                  {frames(200, ".pgm.gz"), ""},
		"frames and their log":    {frames(30, ".fits", ".txt"), ""},
		"numbered files":          {frames(30, ".001", ".002", ".003", ".004"), ""},
		"three kinds, few files":  {frames(10, ".fits", ".jpg", ".txt"), ""},
		"three kinds, more files": {frames(12, ".fits", ".jpg", ".txt"), "12 files"},
		"a private key":           {append(frames(2, ".jpg"), "id_ed25519"), "id_ed25519"},
		"a key of TLS":            {append(frames(2, ".jpg"), "pki/CA.KEY"), "CA.KEY"},
		"a kubeconfig":            {append(frames(2, ".jpg"), "kubeconfig"), "kubeconfig"},
		"a hidden folder":         {append(frames(2, ".jpg"), ".git/config"), "config"},
		"a seed of NATS":          {append(frames(2, ".jpg"), "account.seed"), "account.seed"},
		"many of them":            {append(frames(1, ".jpg"), "a.pem", "b.pem", "c.pem", "d.pem", "e.pem", "f.pem"), "6 hidden"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tree(t, c.files...)
			for _, queued := range []bool{false, true} {
				// No person can be asked here.
				p := newPeer(t, good)
				cfg := config(t, dir)
				cfg.Addresses = []string{p.address()}
				if queued {
					cfg.Queue = QueueConfig{Dir: filepath.Join(t.TempDir(), "queue")}
				}
				err := Run(t.Context(), cfg)
				if c.asks == "" {
					if all, _ := p.arrived(); err != nil || all != len(c.files) {
						t.Errorf("queue %t: %d of %d files, %v", queued, all, len(c.files), err)
					}
					continue
				}
				if err == nil || !strings.Contains(err.Error(), c.asks) || !strings.Contains(err.Error(), "--yes") || !strings.Contains(err.Error(), "--dry-run") || p.connections() > 0 {
					t.Errorf("queue %t: %v, %d connections", queued, err, p.connections())
				}
			}
			if c.asks == "" {
				return
			}
			for _, answer := range []bool{false, true} {
				p := newPeer(t, good)
				cfg, question := config(t, dir), ""
				cfg.Addresses = []string{p.address()}
				cfg.Ask = func(asked string) (bool, error) { question = asked; return answer, nil }
				err := Run(t.Context(), cfg)
				if all, _ := p.arrived(); (err == nil) != answer || answer && all != len(c.files) || !answer && p.connections() > 0 || !strings.Contains(question, c.asks) {
					t.Errorf("after the answer %t to %q: %d files, %v", answer, question, all, err)
				}
			}
			p := newPeer(t, good)
			cfg := config(t, dir)
			cfg.Addresses, cfg.Yes = []string{p.address()}, true
			if err := Run(t.Context(), cfg); err != nil {
				t.Errorf("with --yes: %v", err)
			}
		})
	}
}

// TestSecretsByContent: a file that opens something is found by its content, also behind a link, whatever its name.
func TestSecretsByContent(t *testing.T) {
	for name, text := range map[string]string{
		"host key":   "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n",
		"kubeconfig": "apiVersion: v1\nclusters: []\nkind: Config\n",
		"account":    `{"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----\nMI"}`,
		"WireGuard":  "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n",
	} {
		t.Run(name, func(t *testing.T) {
			secret := filepath.Join(t.TempDir(), "original")
			if err := os.WriteFile(secret, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, put := range []func(old, new string) error{os.Link, os.Symlink} {
				dir := tree(t, frames(2, ".jpg")...)
				if err := put(secret, filepath.Join(dir, "frame-0009.jpg")); err != nil {
					t.Fatal(err)
				}
				p := newPeer(t, good)
				cfg := config(t, dir)
				cfg.Addresses = []string{p.address()}
				if err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "frame-0009.jpg") || p.connections() > 0 {
					t.Errorf("%v, %d connections", err, p.connections())
				}
			}
		})
	}
}

// TestMixedWatchedTrees: of a mixed tree that is watched nothing is sent before a person's word. A service that starts again needs none,
// nor does a queue of an older version; another folder does.
func TestMixedWatchedTrees(t *testing.T) {
	mixed := []string{"frame.jpg", "id_ed25519"}
	p := newPeer(t, good)
	cfg, watched := serveConfig(t, wire.FramingUntilClose, p.address())
	for _, name := range mixed {
		put(t, watched, name, name)
	}
	put(t, watched, ".hidden", "which is never taken")
	refused := func() {
		t.Helper()
		before, _ := p.arrived()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // else it watches for ever
		defer cancel()
		err := Run(ctx, cfg)
		if after, _ := p.arrived(); err == nil || !strings.Contains(err.Error(), "id_ed25519") || !strings.Contains(err.Error(), "--yes") || strings.Contains(err.Error(), ".hidden") || after > before {
			t.Fatalf("with nobody to ask: %v, %d objects", err, after-before)
		}
	}
	refused()
	refused() // nothing records that it was confirmed
	once := cfg
	once.Queue.Watch, once.Paths = nil, []string{filepath.Join(tree(t, "named"), "named")}
	if err := Run(t.Context(), once); err != nil {
		t.Fatal(err)
	}
	refused() // the queue is there, and has watched nothing
	asked := ""
	cfg.Ask = func(question string) (bool, error) { asked = question; return true, nil }
	sent := func(texts ...string) {
		t.Helper()
		stop := started(t, cfg)
		waitFor(t, func() bool { return p.has(texts...) && len(owed(cfg)) == 0 })
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	sent(mixed...)
	if !strings.Contains(asked, "id_ed25519") {
		t.Errorf("the question was %q", asked)
	}
	service := []string{"--to", "127.0.0.1:1", "--queue", filepath.Join(t.TempDir(), "queue"), "--watch", watched}
	if _, err := parseForService(service); err == nil || !strings.Contains(err.Error(), "id_ed25519") {
		t.Errorf("as a service, which can ask nobody: %v", err)
	}
	if _, err := parseForService(append(service, "--yes")); err != nil {
		t.Errorf("as a service, with --yes: %v", err)
	}
	cfg.Ask = nil
	put(t, watched, "another.pem", "another")
	sent("another")
	other := tree(t, "ca.key")
	cfg.Queue.Watch = append(cfg.Queue.Watch, other)
	if err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "ca.key") || strings.Contains(err.Error(), "id_ed25519") {
		t.Errorf("another folder: %v", err)
	}
	if err := os.Remove(filepath.Join(cfg.Queue.Dir, "watched")); err != nil {
		t.Fatal(err)
	}
	sent("ca.key")
	cfg.Queue.Watch = []string{filepath.Join(t.TempDir(), "disk"), watched} // which is put in later
	stop := started(t, cfg)
	put(t, watched, "before.jpg", "before")
	waitFor(t, func() bool { return p.has("before") })
	if err := os.Rename(tree(t, "host.key"), cfg.Queue.Watch[0]); err != nil {
		t.Fatal(err)
	}
	put(t, watched, "meanwhile.jpg", "meanwhile")
	waitFor(t, func() bool { return p.has("meanwhile") })
	put(t, watched, "after.jpg", "after")
	waitFor(t, func() bool { return p.has("after") && len(owed(cfg)) == 0 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if p.has("host.key") {
		t.Error("the files of a folder that came later are sent without a question")
	}
	if err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "host.key") {
		t.Errorf("at the next start: %v", err)
	}
	yes, fresh := serveConfig(t, wire.FramingUntilClose, p.address())
	put(t, fresh, "new.key", "new")
	cfg = yes
	cfg.Yes = true
	sent("new")
}

// TestOneFileIsMeant: a file that is named itself is sent, whatever its name is.
func TestOneFileIsMeant(t *testing.T) {
	p := newPeer(t, good)
	cfg := config(t, filepath.Join(tree(t, "readings.key"), "readings.key"))
	cfg.Addresses = []string{p.address()}
	if err := Run(t.Context(), cfg); err != nil {
		t.Error(err)
	}
}

// TestDryRun lists what would be sent, with names over HTTP, and connects to no server.
func TestDryRun(t *testing.T) {
	dir := tree(t, "2026/a.jpg", "image.jpg", ".hidden/key.pem", "half.tmp")
	if err := os.WriteFile(filepath.Join(dir, "empty.jpg"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (listed, said string) {
		t.Helper()
		cmd := Command("send")
		var out, messages bytes.Buffer
		cmd.SetArgs(append(args, "--dry-run"))
		cmd.SetOut(&out)
		cmd.SetErr(&messages)
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		return out.String(), messages.String()
	}
	in := func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	listed, said := run("--to", "127.0.0.1:1", dir)
	want := fmt.Sprintf("15\t%s\n10\t%s\n0\t%s\n8\t%s\n9\t%s\n", in(".hidden/key.pem"), in("2026/a.jpg"), in("empty.jpg"), in("half.tmp"), in("image.jpg"))
	if listed != want || !strings.Contains(said, "5 files") || !strings.Contains(said, "key.pem") || !strings.Contains(said, "nothing was sent") {
		t.Errorf("%s\n%s", listed, said)
	}
	listed, said = run("--to", "http://127.0.0.1:1/in/sky/north/", "--queue", filepath.Join(t.TempDir(), "queue"), "--watch", dir, "--rewritten", "image.*")
	lines := strings.Split(strings.TrimSpace(listed), "\n")
	if len(lines) != 2 || lines[0] != fmt.Sprintf("10\t%s\tnorth/2026/a.jpg", in("2026/a.jpg")) || !strings.HasPrefix(lines[1], fmt.Sprintf("9\t%s\tnorth/image-20", in("image.jpg"))) ||
		!strings.Contains(said, "3 of them") {
		t.Errorf("%s\n%s", listed, said)
	}
}

// TestLinkedFolder: a link to a folder that is named or watched itself is followed, one within it is not.
func TestLinkedFolder(t *testing.T) {
	dir, link := tree(t, "2026/a.jpg", "b.jpg"), filepath.Join(t.TempDir(), "current")
	if err := errors.Join(os.Symlink(dir, link), os.Symlink(tree(t, "other.jpg"), filepath.Join(dir, "inside"))); err != nil {
		t.Fatal(err)
	}
	p := newPeer(t, good)
	cfg := config(t, link)
	cfg.Addresses = []string{p.address()}
	if err := Run(t.Context(), cfg); err != nil || !p.has("2026/a.jpg", "b.jpg") || p.has("other.jpg") {
		t.Errorf("named: %v", err)
	}
	p = newPeer(t, good)
	cfg, _ = serveConfig(t, wire.FramingUntilClose, p.address())
	cfg.Queue.Watch = []string{link}
	stop := started(t, cfg)
	waitFor(t, func() bool { return p.has("2026/a.jpg", "b.jpg") && len(owed(cfg)) == 0 })
	if err := stop(); err != nil || p.has("other.jpg") {
		t.Errorf("watched: %v", err)
	}
	for _, r := range readReport(t, cfg) {
		if r.Name != "2026_a.jpg" && r.Name != "b.jpg" {
			t.Errorf("a file is called %s", r.Name)
		}
	}
	if err := checkFolders([]string{link}, filepath.Join(dir, "queue")); err == nil {
		t.Error("the queue lies in the folder that a watched link leads to")
	}
	// A link that leads nowhere is no empty folder.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	w := watcher{dirs: []string{link}, now: time.Now, log: slog.New(slog.DiscardHandler)}
	if w.scan(t.Context(), false) {
		t.Error("the folder that a link led to is gone, and nothing is said")
	}
	if opened := filepath.Join(t.TempDir(), "sky"); os.Symlink(filepath.Join(tree(t, ".kube/config"), ".kube"), opened) != nil || !isHidden(opened) {
		t.Error("a link to a hidden folder is not seen as one")
	}
}

// TestHiddenFolder: a hidden folder that is named itself, and a folder in one, is sent with a person's word only.
func TestHiddenFolder(t *testing.T) {
	for _, named := range []string{".kube", ".config/gh"} {
		p := newPeer(t, good)
		cfg := config(t, filepath.Join(tree(t, ".kube/config", ".config/gh/hosts.yml"), named))
		cfg.Addresses = []string{p.address()}
		if err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "--yes") || p.connections() > 0 {
			t.Errorf("%s: %v, %d connections", named, err, p.connections())
		}
	}
}
