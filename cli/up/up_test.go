// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
)

const site = `
apiVersion: substorm.dev/v1alpha1
kind: Site
metadata: {name: hub}
spec:
  code: hub
  objectStore: {endpoint: "https://s3.example", bucket: archive, credentialsSecretRef: {name: s3}}
  jetStream: {servers: ["tls://nats.example:4222"], accountKeySecretRef: {name: nats}}
  archivist: {partInterval: 1s}
---
apiVersion: substorm.dev/v1alpha1
kind: IngestGateway
metadata: {name: north}
spec: {siteRef: {name: hub}, replicas: 3, service: {type: LoadBalancer}, ports: {first: %[1]d, last: %[1]d}}
---
apiVersion: substorm.dev/v1alpha1
kind: FeedServer
metadata: {name: north}
spec: {siteRef: {name: hub}, replicas: 2}
`

const camera = `
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: camera}
spec:
  siteRef: {name: hub}
  type: AllSkyCamera
  listeners: [{name: frames, protocol: TCP, port: %[1]d}]
  access: {live: Public, archive: Public}
`

// TestUp: a whole Site in one process. Objects that it has receipted are served, also after it was killed; kubectl shows how it is; a file
// that is removed takes the Instrument away, and nothing that it sent.
func TestUp(t *testing.T) {
	port, dir := testenv.FreePort(t), t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, fmt.Appendf(nil, text, port), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	rsyncPort := testenv.FreePort(t)
	write("site.yaml", strings.Replace(site, "replicas: 2}", fmt.Sprintf("replicas: 2, rsync: {port: %d}}", rsyncPort), 1))
	file := write("camera.yaml", camera)
	s := testenv.StartStandalone(t, dir)
	kubectl := func(args ...string) string {
		t.Helper()
		c := exec.Command(testenv.Path(t, "kubectl"), args...)
		c.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig, "HOME="+t.TempDir())
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	kubectl("wait", "--for=condition=Ready", "--timeout=120s", "site/hub", "ingestgateway/north", "feedserver/north", "instrument/camera")

	var frames [][]byte
	send := func() {
		t.Helper()
		frame := bytes.Repeat([]byte{byte(len(frames))}, 100_000+len(frames))
		eventually(t, "a frame is receipted", func() error { return testenv.SendObject(port, frame) })
		frames = append(frames, frame)
	}
	served := func() {
		t.Helper()
		for i, frame := range frames {
			eventually(t, fmt.Sprintf("frame %d is served", i), func() error { return servedAt(s.URL, "camera", frame) })
		}
	}
	for range 3 {
		send()
	}
	served()

	// Fields of manifests that are about a cluster show as not applied.
	for kind, says := range map[string]string{"site/hub": "spec.objectStore", "ingestgateway/north": "spec.replicas", "feedserver/north": "spec.replicas"} {
		if out := kubectl("get", kind, "-o", `jsonpath={.status.conditions[?(@.type=="NotApplied")].message}`); !strings.Contains(out, says) {
			t.Errorf("%s: NotApplied says %q", kind, out)
		}
	}
	if out := kubectl("get", "instruments"); !strings.Contains(out, "camera") || !strings.Contains(out, "AllSkyCamera") {
		t.Errorf("kubectl get instruments:\n%s", out)
	}

	// Commands of another process reach the object store and the NATS server.
	program := testenv.Program(t, "cli")
	command := func(args ...string) string {
		t.Helper()
		c := exec.Command(program, args...)
		c.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("substorm %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	eventually(t, "the archive lists all frames", func() error {
		list := command("archive", "ls", "--instrument", "camera", "-o", "json")
		for i, frame := range frames {
			if !strings.Contains(list, fmt.Sprintf("%x", sha256.Sum256(frame))) {
				return fmt.Errorf("frame %d is missing in %s", i, list)
			}
		}
		return nil
	})
	if out := command("status"); !strings.Contains(out, "camera") || strings.Contains(out, "names no account") {
		t.Errorf("substorm status:\n%s", out)
	}

	if err := metricsOf(s.Metrics, "operator", "north-", "archivist"); err != nil {
		t.Error(err)
	}
	likeKubectl(t, program, s.DataDir, s.Kubeconfig, file, write("extra.yaml.off", strings.ReplaceAll(camera, "name: camera", "name: extra")))

	// Killed, and started again.
	s.Kill()
	s.Start()
	served()
	send()
	served()

	// A file is removed.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Instrument is gone", func() error {
		if out := kubectl("get", "instruments", "-o", "name"); out != "" {
			return fmt.Errorf("there are %s", out)
		}
		return nil
	})
	eventually(t, "nobody receives for it", func() error {
		conn, err := net.Dial("tcp", testenv.Loopback(port))
		if err == nil {
			_ = conn.Close()
			return fmt.Errorf("the port is open")
		}
		return nil
	})
	write("camera.yaml", camera)
	served()
	copied(t, rsyncPort, frames)

	// In order.
	s.Stop()
	if text, err := os.ReadFile(filepath.Join(s.DataDir, "lock")); err != nil || len(text) == 0 {
		t.Errorf("the data folder's lock: %q, %v", text, err)
	}
}

// copied copies the archive with rsync, and fails where frames are not in it.
func copied(t *testing.T, port int, frames [][]byte) {
	t.Helper()
	program, err := exec.LookPath("rsync")
	if err != nil && os.Getenv("CI") == "" {
		t.Log("rsync is not installed, and was not tried: apt-get install rsync")
		return
	} else if err != nil {
		t.Fatal("rsync is not installed")
	}
	dir := t.TempDir()
	if out, err := exec.Command(program, "-a", fmt.Sprintf("rsync://127.0.0.1:%d/hub/camera/", port), dir).CombinedOutput(); err != nil {
		t.Fatalf("rsync: %v\n%s", err, out)
	}
	got := map[[sha256.Size]byte]bool{}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		got[sha256.Sum256(data)] = true
		return err
	})
	for i, frame := range frames {
		if err != nil || !got[sha256.Sum256(frame)] {
			t.Errorf("rsync did not copy frame %d: %d files, %v", i, len(got), err)
		}
	}
}

// metricsOf looks for metrics of pods whose names begin so.
func metricsOf(url string, pods ...string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %w", url, resp.Status, err)
	}
	for _, pod := range pods {
		if !regexp.MustCompile(`(?m)^go_goroutines{pod="[^"]*` + pod).Match(text) {
			return fmt.Errorf("there are no metrics of %s in\n%s", pod, text)
		}
	}
	return nil
}

// servedAt looks for an object in an instrument's directory, and in those in it.
func servedAt(url, instrument string, want []byte) error {
	return find(url+"/archive/"+instrument+"/", fmt.Sprintf("%x", sha256.Sum256(want)), want)
}

func find(directory, digest string, want []byte) error {
	text, err := get(directory + "?format=json")
	if err != nil {
		return err
	}
	var list struct {
		Directories, Objects []struct{ Name, SHA256 string }
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	for _, o := range list.Objects {
		if o.SHA256 != digest {
			continue
		}
		got, err := get(directory + o.Name)
		if err == nil && !bytes.Equal(got, want) {
			err = fmt.Errorf("%s holds %d bytes", o.Name, len(got))
		}
		return err
	}
	err = fmt.Errorf("no object in %s has digest %s", directory, digest)
	for _, d := range list.Directories {
		if err = find(directory+d.Name+"/", digest, want); err == nil {
			return nil
		}
	}
	return err
}

func get(url string) ([]byte, error) {
	resp, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return body, err
}

// eventually tries until it holds.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	var err error
	for range testenv.Attempts() {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}
