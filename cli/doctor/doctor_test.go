// SPDX-License-Identifier: Apache-2.0

//go:build linux

package doctor_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/cli/doctor"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/usage"
)

// ask runs the command and reads what it says to programs.
func ask(t *testing.T, args ...string) (doctor.Report, error) {
	t.Helper()
	var out bytes.Buffer
	c := doctor.Command()
	c.SetArgs(append([]string{"-o", "json", "--listen-metrics="}, args...)) // its default may be in use here
	c.SetOut(&out)
	c.SetErr(io.Discard)
	c.SilenceErrors, c.SilenceUsage = true, true
	failed := c.ExecuteContext(t.Context())
	var report doctor.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatalf("%v: %v\n%s", failed, err, out.String())
	}
	for _, c := range report.Checks {
		if (c.Advice == "") != (c.Result == doctor.OK) || c.Found == "" {
			t.Errorf("%s is %s, and what to do is %q", c.Check, c.Result, c.Advice)
		}
	}
	return report, failed
}

// says fails where no check of this name has this result and these words.
func says(t *testing.T, r doctor.Report, check string, want doctor.Result, words ...string) {
	t.Helper()
	var all []string
checks:
	for _, c := range r.Checks {
		if c.Check != check {
			continue
		}
		said := fmt.Sprintf("%s %s: %s", c.Result, c.Found, c.Advice)
		all = append(all, said)
		for _, w := range append([]string{string(want)}, words...) {
			if !strings.Contains(said, w) {
				continue checks
			}
		}
		return
	}
	t.Errorf("%s: want %s with %q, got:\n%s", check, want, words, strings.Join(all, "\n"))
}

const site = `
apiVersion: substorm.dev/v1alpha1
kind: Site
metadata: {name: hub}
spec:
  code: hub
  objectStore: {endpoint: "https://s3.example", bucket: archive, credentialsSecretRef: {name: s3}}
  jetStream: {servers: ["tls://nats.example:4222"], accountKeySecretRef: {name: nats}}
---
apiVersion: substorm.dev/v1alpha1
kind: IngestGateway
metadata: {name: north}
spec: {siteRef: {name: hub}, ports: {first: %[1]d, last: %[1]d}, service: {type: LoadBalancer}}
---
apiVersion: substorm.dev/v1alpha1
kind: FeedServer
metadata: {name: north}
spec: {siteRef: {name: hub}}
---
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: camera}
spec:
  siteRef: {name: hub}
  type: AllSkyCamera
  listeners: [{name: frames, protocol: TCP, port: %[1]d}, {name: telemetry, protocol: UDP, port: %[1]d}]
`

// manifests are those of a Site with a camera, which sends to a port over TCP and UDP.
func manifests(t *testing.T) (file string, port int) {
	t.Helper()
	port, file = testenv.FreePort(t), filepath.Join(t.TempDir(), "site.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, site, port), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, port
}

func free(t *testing.T) string { return fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t)) }

// TestRunningSite: what a Site holds itself is well.
func TestRunningSite(t *testing.T) {
	file, port := manifests(t)
	s := testenv.StartStandalone(t, file)
	listen := strings.TrimPrefix(s.URL, "http://")
	metrics := strings.TrimSuffix(strings.TrimPrefix(s.Metrics, "http://"), "/metrics")
	args := []string{"-f", file, "--data-dir", s.DataDir, "--listen", listen, "--listen-metrics", metrics}
	held := []string{fmt.Sprintf("%d/tcp is held by the Site itself", port), fmt.Sprintf("%d/udp is held by the Site itself", port), metrics[strings.LastIndex(metrics, ":")+1:] + "/tcp is held by the Site itself"}
	var r doctor.Report
	var err error
	for range testenv.Attempts() { // the gateway listens a little after the feed server
		if r, err = ask(t, args...); strings.Contains(fmt.Sprint(r.Checks), held[0]) && strings.Contains(fmt.Sprint(r.Checks), held[1]) {
			break
		}
	}
	if err != nil || r.Process != s.PID() {
		t.Errorf("process %d, want %d: %v", r.Process, s.PID(), err)
	}
	says(t, r, "data folder", doctor.OK, fmt.Sprintf("process %d", s.PID()), "format 1", "mode 0700")
	says(t, r, "ports", doctor.OK, held...)
	says(t, r, "rights", "", fmt.Sprintf("the Site that runs (process %d)", s.PID()))
	says(t, r, "manifests", doctor.OK, "4 objects, 1 of them Instruments")
	says(t, r, "clock", "", "it says 20")

	// Another Site cannot have this folder's, and its ports are not those of the one that runs.
	other, elsewhere := manifests(t)
	r, err = ask(t, "-f", other, "--data-dir", s.DataDir, "--listen", listen)
	if err != nil {
		t.Error(err)
	}
	says(t, r, "ports", doctor.Warning, fmt.Sprintf("%d/tcp", elsewhere), "nobody listens", "substorm status")
	r, err = ask(t, "-f", file, "--data-dir", t.TempDir(), "--listen", listen)
	if !errors.Is(err, doctor.ErrFailed) {
		t.Errorf("the ports of another Site: %v", err)
	}
	says(t, r, "ports", doctor.Failed, fmt.Sprintf("%d/tcp", port), `Instrument "camera"`, fmt.Sprintf("process %d (", s.PID()), "another port")

	// It is gone, and left a folder.
	s.Kill()
	r, _ = ask(t, args...)
	if r.Process != 0 {
		t.Errorf("process %d", r.Process)
	}
	says(t, r, "data folder", doctor.OK, "held by no Site", "format 1")
	says(t, r, "ports", doctor.OK, fmt.Sprintf("%d/tcp is free", port), fmt.Sprintf("%d/udp is free", port))
}

// TestPorts: ports that cannot be had.
func TestPorts(t *testing.T) {
	file, port := manifests(t)
	l, err := net.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.ListenPacket("udp", fmt.Sprintf("[::]:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dir := t.TempDir()
	r, err := ask(t, "-f", file, "--data-dir", dir, "--listen", "192.0.2.1:8080")
	if !errors.Is(err, doctor.ErrFailed) || usage.ExitCode(err) != 1 || r.Fine {
		t.Errorf("fine %v: %v", r.Fine, err)
	}
	me := fmt.Sprintf("process %d (", os.Getpid())
	says(t, r, "ports", doctor.Failed, fmt.Sprintf("%d/tcp of Instrument", port), me, "stop it")
	says(t, r, "ports", doctor.Failed, fmt.Sprintf("%d/udp of Instrument", port), me, "stop it")
	says(t, r, "ports", doctor.Failed, "no address 192.0.2.1:8080", "--listen")

	if start, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start"); err != nil || strings.TrimSpace(string(start)) != "1024" {
		t.Skipf("here other ports are privileged: %s %v", start, err)
	}
	want := doctor.Failed
	if os.Geteuid() == 0 {
		want = doctor.Warning
	}
	r, _ = ask(t, "--data-dir", dir, "--listen", "127.0.0.1:1")
	says(t, r, "ports", want, "1/tcp", "CAP_NET_BIND_SERVICE")
}

// TestFolderInMemory: a power cut would lose everything.
func TestFolderInMemory(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "substorm-doctor-")
	if err != nil {
		t.Skipf("no file system in memory: %v", err)
	}
	defer os.RemoveAll(dir)
	var is unix.Statfs_t
	if err := unix.Statfs(dir, &is); err != nil || uint32(is.Type) != unix.TMPFS_MAGIC {
		t.Skipf("/dev/shm is of type %#x: %v", is.Type, err)
	}
	r, err := ask(t, "--data-dir", filepath.Join(dir, "data"), "--listen", free(t)) // which is not there yet
	if !errors.Is(err, doctor.ErrFailed) {
		t.Error(err)
	}
	says(t, r, "data folder", doctor.OK, "does not exist", "makes it")
	says(t, r, "sync", doctor.Warning, "in memory")
	says(t, r, "power cut", doctor.Failed, "everything", "tmpfs", "--data-dir")
	empty(t, dir)
}

// empty fails where something is left in a folder.
func empty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if e.Name() != "lost+found" {
			t.Errorf("%s is left in %s", e.Name(), dir)
		}
	}
}

// TestDisk: a disk that keeps, and the same when it may not be written, and when it is full.
func TestDisk(t *testing.T) {
	_, dir := testenv.Disk(t)
	args := []string{"--data-dir", dir, "--listen", free(t)}
	r, _ := ask(t, args...)
	says(t, r, "data folder", "", dir, "held by no Site")
	says(t, r, "space", doctor.Warning, "MiB are left", "files, on ext4", "archive.expiry")
	says(t, r, "disk budget", doctor.OK, "are used: objects 0 B")
	says(t, r, "expiry clock", doctor.OK, "no Site has run here")
	says(t, r, "sync", "", "4 KiB are kept after", "median of", "8 MiB after")
	says(t, r, "power cut", "", "lost")
	for _, c := range r.Checks {
		if (c.Check == "sync" || c.Check == "power cut") && c.Result == doctor.Failed {
			t.Errorf("%s: %s", c.Check, c.Found)
		}
	}
	empty(t, dir)

	if out, err := exec.Command("mount", "-o", "remount,ro", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r, err := ask(t, args...)
	if !errors.Is(err, doctor.ErrFailed) {
		t.Error(err)
	}
	says(t, r, "data folder", doctor.Failed, "read-only", "remount,rw")
	says(t, r, "sync", doctor.Warning, "not measured", "see data folder")
	r, _ = ask(t, "--data-dir", filepath.Join(dir, "a", "b"), "--listen", free(t))
	says(t, r, "data folder", doctor.Failed, "cannot be made in "+dir, "chown")
}

func TestFullDisk(t *testing.T) {
	_, dir := testenv.DiskOf(t, 16<<20)
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 16<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	r, err := ask(t, "--data-dir", dir, "--listen", free(t))
	if !errors.Is(err, doctor.ErrFailed) {
		t.Error(err)
	}
	says(t, r, "space", doctor.Failed, "MiB are left", "free some")
	says(t, r, "disk budget", doctor.Failed, "nothing is received", "--disk-budget")
	says(t, r, "sync", doctor.Warning, "too little space", "again")
	says(t, r, "power cut", doctor.Warning, "not measured")
}

// TestFolder: folders that no Site can use.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	newer, open := filepath.Join(dir, "newer"), filepath.Join(dir, "open")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Mkdir(newer, 0o700), os.WriteFile(filepath.Join(newer, "format"), []byte("99\n"), 0o600),
		os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	r, _ := ask(t, "--data-dir", file, "--listen", free(t))
	says(t, r, "data folder", doctor.Failed, "is no folder", "--data-dir")
	r, _ = ask(t, "--data-dir", newer, "--listen", free(t))
	says(t, r, "data folder", doctor.Failed, "format 99", "newer substorm")
	r, _ = ask(t, "--data-dir", open, "--listen", free(t))
	says(t, r, "data folder", doctor.Warning, "mode 0777", "chmod 0700")
}

// TestHubs: a hub that answers, one that does not, and one whose name is unknown.
func TestHubs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	away := free(t)
	r, _ := ask(t, "--data-dir", t.TempDir(), "--listen", free(t), "--hub", "localhost:"+port, "--hub", away, "--hub", "no-such-hub.invalid:7422")
	says(t, r, "hub", doctor.OK, "localhost:"+port, "the name took", "127.0.0.1")
	says(t, r, "hub", doctor.Warning, away, "refused", "hub runs")
	says(t, r, "hub", doctor.Warning, "no-such-hub.invalid", "name servers")

	file, _ := manifests(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	linked := strings.Replace(string(text), "  code: hub\n", "  code: hub\n  upstream: {url: \"tls://localhost:"+port+"\", credentialsSecretRef: {name: leaf}}\n", 1)
	if err := os.WriteFile(file, []byte(linked), 0o600); err != nil {
		t.Fatal(err)
	}
	r, _ = ask(t, "-f", file, "--data-dir", t.TempDir(), "--listen", free(t))
	says(t, r, "hub", doctor.OK, "localhost:"+port)
}

// TestCommandLines that make no sense, and what people read.
func TestCommandLines(t *testing.T) {
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		c := doctor.Command()
		c.SetArgs(args)
		c.SetOut(&out)
		c.SetErr(io.Discard)
		c.SilenceErrors, c.SilenceUsage = true, true
		err := c.ExecuteContext(t.Context())
		return out.String(), err
	}
	for flag, value := range map[string]string{"--hub": "hub.example.org", "--listen": "8080", "--listen-metrics": "9464", "-o": "xml"} {
		if _, err := run(flag, value); usage.ExitCode(err) != 2 && flag != "-o" || err == nil {
			t.Errorf("%s %s: exit code %d: %v", flag, value, usage.ExitCode(err), err)
		}
	}
	text, _ := run("--data-dir", t.TempDir(), "--listen", free(t))
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if !strings.HasPrefix(lines[0], "RESULT") {
		t.Errorf("it says:\n%s", text)
	}
	for _, line := range lines[1:] {
		if result := strings.Fields(line)[0]; result != string(doctor.OK) && result != string(doctor.Warning) && result != string(doctor.Failed) {
			t.Errorf("no result: %s", line)
		}
	}
}

// TestAnotherUser: a user without rights to the data folder and to privileged ports.
func TestAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run a program as another user")
	}
	const nobody = 65534
	dir := t.TempDir()
	program, data := filepath.Join(dir, "substorm"), filepath.Join(dir, "data")
	text, err := os.ReadFile(testenv.Program(t, "cli"))
	if err != nil {
		t.Fatal(err)
	}
	// The folder of the test, too, is root's alone.
	if err := errors.Join(os.WriteFile(program, text, 0o755), os.Mkdir(data, 0o700), os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	file, _ := manifests(t)
	declared, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	site := filepath.Join(dir, "site.yaml")
	if err := os.WriteFile(site, declared, 0o644); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, "doctor", "-f", site, "--data-dir", data, "--listen", "127.0.0.1:1", "-o", "json")
	c.Dir, c.Env = dir, []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	var r doctor.Report
	if failed := json.Unmarshal(out, &r); failed != nil || c.ProcessState.ExitCode() != 1 {
		t.Fatalf("%v: %v\n%s%s", err, failed, out, stderr.String())
	}
	says(t, r, "data folder", doctor.Failed, "is of user 0", "by user 65534", "chown")
	says(t, r, "rights", doctor.Warning, "user 65534", "run substorm up as user 0")
	if start, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start"); err == nil && strings.TrimSpace(string(start)) == "1024" {
		says(t, r, "ports", doctor.Failed, "1/tcp", "CAP_NET_BIND_SERVICE")
	}
}
