// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/substorm/substorm/cli/archive"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const rsyncPartner = `
apiVersion: substorm.dev/v1alpha1
kind: MirrorPartner
metadata: {name: university}
spec:
  siteRef: {name: hub}
  direction: Push
  protocol: Rsync
  rsync: {transport: Daemon, daemon: {address: %q, module: data, path: aurora}}
  continuous: {interval: 1h}
  selection: {selector: {}}
`

// TestMirror: a partner with a real rsync daemon is given what instruments send, and the ledger, the status and the partner tell one
// story; another computer pulls the same.
func TestMirror(t *testing.T) {
	address, partner := testenv.RsyncDaemon(t, "")
	port, dir := testenv.FreePort(t), t.TempDir()
	for name, text := range map[string]string{"site.yaml": fmt.Sprintf(site, port), "camera.yaml": fmt.Sprintf(camera, port), "partner.yaml": fmt.Sprintf(rsyncPartner, address)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := testenv.StartStandalone(t, dir)
	run := func(program string, args ...string) string {
		t.Helper()
		c := exec.Command(program, args...)
		c.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig, "HOME="+t.TempDir())
		var said strings.Builder
		c.Stderr = &said
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s%s", filepath.Base(program), args, err, out, said.String())
		}
		return string(out)
	}
	kubectl, substorm := testenv.Path(t, "kubectl"), testenv.Program(t, "cli")
	run(kubectl, "wait", "--for=condition=Ready", "--timeout=120s", "site/hub", "instrument/camera")

	var frames [][]byte
	send := func() {
		t.Helper()
		frame := bytes.Repeat([]byte{byte(len(frames))}, 100_000+len(frames))
		eventually(t, "a frame is receipted", func() error { return testenv.SendObject(port, frame) })
		frames = append(frames, frame)
	}
	same := func(dir string) error {
		missing := map[[32]byte]bool{}
		for _, frame := range frames {
			missing[sha256.Sum256(frame)] = true
		}
		err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasPrefix(path, ".substorm") {
				return err
			}
			data, err := os.ReadFile(filepath.Join(dir, path))
			is := sha256.Sum256(data)
			if err == nil && !missing[is] {
				return fmt.Errorf("%s is no frame, or is there twice", path)
			}
			delete(missing, is)
			return err
		})
		if err == nil && len(missing) > 0 {
			err = fmt.Errorf("%d frames are missing", len(missing))
		}
		return err
	}
	for range 3 {
		send()
	}
	eventually(t, "the partner has all frames", func() error { return same(filepath.Join(partner, "aurora")) })
	send()
	eventually(t, "and the next one", func() error { return same(filepath.Join(partner, "aurora")) })

	run(kubectl, "wait", "--for=condition=Synced", "--timeout=120s", "mirrorpartner/university")
	if out := run(kubectl, "get", "mirrorpartner", "university", "-o", `jsonpath={.status.conditions[?(@.type=="Reachable")].status}`); out != "True" {
		t.Errorf("Reachable: %s", out)
	}
	eventually(t, "the ledger's columns agree", func() error {
		var received, mirrored wire.Totals
		for days := json.NewDecoder(strings.NewReader(run(substorm, "archive", "ledger", "--instrument", "camera", "-o", "json"))); days.More(); {
			var l archive.Ledger
			if err := days.Decode(&l); err != nil {
				return err
			}
			received = received.Plus(l.Received)
			for _, w := range l.Writers {
				if w.Mirrored != nil && w.Writer == "university" {
					mirrored = mirrored.Plus(*w.Mirrored)
				}
			}
		}
		if received.Objects != uint64(len(frames)) || mirrored.Objects != received.Objects || mirrored.Digest != received.Digest {
			return fmt.Errorf("received %+v, mirrored %+v of %d", received, mirrored, len(frames))
		}
		return nil
	})

	retracted(t, filepath.Join(partner, "aurora", "camera"), func(verb, path string) {
		run(substorm, "archive", verb, "camera", path, "--reason", "a lamp was on")
	})

	copied := filepath.Join(t.TempDir(), "copy")
	run(substorm, "mirror", "pull", s.URL, copied, "-q")
	if err := same(copied); err != nil {
		t.Errorf("what was pulled: %v", err)
	}
	if out := run(substorm, "mirror", "verify", copied); !strings.HasPrefix(out, fmt.Sprintf("%d objects", len(frames))) {
		t.Errorf("verified: %s", out)
	}
}

// retracted has the partner follow while an object is retracted, and restored.
func retracted(t *testing.T, dir string, do func(verb, path string)) {
	t.Helper()
	var path string
	err := fs.WalkDir(os.DirFS(dir), ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			path = p
		}
		return err
	})
	if err != nil || path == "" {
		t.Fatal(path, err)
	}
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	do("retract", path)
	eventually(t, "a tombstone is in the place of the copy", func() error {
		text, err := os.ReadFile(filepath.Join(dir, path+".retracted.json"))
		if err == nil && !bytes.Contains(text, []byte(`"reason": "a lamp was on"`)) {
			return fmt.Errorf("it says %s", text)
		}
		if err == nil && exists(path) {
			return fmt.Errorf("%s is still there", path)
		}
		return err
	})
	do("restore", path)
	eventually(t, "the copy is in the place of the tombstone", func() error {
		if !exists(path) || exists(path+".retracted.json") {
			return fmt.Errorf("copy %t, tombstone %t", exists(path), exists(path+".retracted.json"))
		}
		return nil
	})
}
