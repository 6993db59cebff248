// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/substorm/substorm/cli/up"
	"github.com/substorm/substorm/internal/testenv"
)

// badStart runs a `substorm up` that does not start, and returns its exit code and what it says.
func badStart(t *testing.T, args ...string) (code int, says string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	c := exec.CommandContext(ctx, testenv.Program(t, "cli"), append([]string{"up"}, args...)...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	var exit *exec.ExitError
	if ctx.Err() != nil || err != nil && !errors.As(err, &exit) {
		t.Fatalf("substorm up %q: %v\n%s", args, errors.Join(err, ctx.Err()), out.String())
	}
	return c.ProcessState.ExitCode(), out.String()
}

// TestBadStart: what cannot be run ends with one sentence, which says what to do, and with an exit code that says whether the command line is to blame.
func TestBadStart(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.yaml", fmt.Sprintf(site, testenv.FreePort(t)))
	newer := filepath.Join(dir, "newer")
	if err := os.Mkdir(newer, 0o700); err != nil {
		t.Fatal(err)
	}
	write("newer/format", "2\n")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	const free = "127.0.0.1:0"
	page := fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t))
	unknown := write("unknown.yaml", fmt.Sprintf(strings.Replace(site, "code: hub", "code: hub\n  titel: North", 1), testenv.FreePort(t)))
	for name, c := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"no YAML":            {[]string{"-f", write("syntax.yaml", "kind: Site\nmetadata: {name: x\nspec: {}\n")}, 1, []string{"syntax.yaml:3:"}},
		"another kind":       {[]string{"-f", write("kind.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n")}, 1, []string{"does not run kind Deployment"}},
		"two Sites":          {[]string{"-f", good, "-f", write("second.yaml", "apiVersion: substorm.dev/v1alpha1\nkind: Site\nmetadata: {name: south}\n")}, 1, []string{"one Site", "data folder of its own"}},
		"no Site":            {[]string{"-f", write("none.yaml", "")}, 1, []string{"no Site is declared"}},
		"no file":            {[]string{"-f", filepath.Join(dir, "missing.yaml")}, 1, []string{"missing.yaml"}},
		"unknown flag":       {[]string{"--colour"}, 2, []string{"--colour"}},
		"no address":         {[]string{"-f", good, "--listen", "8080"}, 2, []string{"--listen", "host:port"}},
		"no port":            {[]string{"-f", good, "--listen", "localhost:http2"}, 2, []string{"--listen", "http2"}},
		"no address of API":  {[]string{"-f", good, "--listen-api", "6443"}, 2, []string{"--listen-api", "host:port"}},
		"no metrics address": {[]string{"-f", good, "--listen-metrics", "localhost:metrics"}, 2, []string{"--listen-metrics", "host:port"}},
		"no budget":          {[]string{"-f", good, "--disk-budget", "much"}, 2, []string{"--disk-budget", "200Gi"}},
		"no log level":       {[]string{"-f", good, "--log-level", "loud"}, 2, []string{"loud"}},
		"API's port taken":   {[]string{"-f", good, "--listen", page, "--listen-api", taken.Addr().String(), "--listen-metrics", free}, 1, []string{"--listen-api", "in use", "choose another"}},
		"metrics port taken": {[]string{"-f", good, "--listen", page, "--listen-metrics", taken.Addr().String()}, 1, []string{"--listen-metrics", "in use", "choose another"}},
		"page's port taken":  {[]string{"-f", good, "--listen", taken.Addr().String(), "--listen-metrics", free}, 1, []string{"--listen", `FeedServer "north"`, "in use", "choose another"}},
		"unknown field":      {[]string{"-f", unknown, "--listen", page, "--listen-metrics", free}, 1, []string{"unknown.yaml:7:", ".spec.titel", "not declared"}},
		"newer data folder":  {[]string{"-f", good, "--data-dir", newer}, 1, []string{"newer substorm", "--data-dir"}},
		"a file as folder":   {[]string{"-f", good, "--data-dir", good}, 1, []string{good, "--data-dir"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"--data-dir", filepath.Join(t.TempDir(), "data")}, c.args...)
			code, says := badStart(t, args...)
			oneSentence(t, code, c.code, says, c.says...)
		})
	}
}

// oneSentence looks for an error of one line.
func oneSentence(t *testing.T, code, wantCode int, says string, parts ...string) {
	t.Helper()
	if code != wantCode || !strings.HasPrefix(says, "error: ") || strings.Count(says, "\n") != 1 {
		t.Errorf("exit code %d, want %d and one line:\n%s", code, wantCode, says)
	}
	for _, part := range parts {
		if !strings.Contains(says, part) {
			t.Errorf("it lacks %q: %s", part, says)
		}
	}
}

// TestBadFolder: a data folder that another process has, that is of another Site, or whose archive is gone, is left alone.
func TestBadFolder(t *testing.T) {
	manifests := t.TempDir()
	file := filepath.Join(manifests, "site.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, site, testenv.FreePort(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := testenv.StartStandalone(t, manifests)
	code, says := badStart(t, "-f", manifests, "--data-dir", s.DataDir)
	oneSentence(t, code, 1, says, "in use by another substorm up", fmt.Sprint(s.PID()), "--data-dir")
	s.Stop()
	if left, err := filepath.Glob(filepath.Join(s.DataDir, "pods", "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("what pods had of Secrets is left: %q, %v", left, err)
	}
	code, says = badStart(t, "--data-dir", s.DataDir)
	oneSentence(t, code, 1, says, `code "hub"`, `code "local"`, "-f", "--data-dir")
	code, says = badStart(t, "-f", manifests, "--data-dir", s.DataDir, "--namespace", "other", "--listen", fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t)))
	oneSentence(t, code, 1, says, `namespace "default"`, `namespace "other"`, "--namespace default", "--data-dir")
	objects := filepath.Join(s.DataDir, "objects")
	if err := os.Rename(objects, objects+".away"); err != nil {
		t.Fatal(err)
	}
	code, says = badStart(t, "-f", manifests, "--data-dir", s.DataDir)
	oneSentence(t, code, 1, says, "archive", objects, "mount its disk")
	if err := os.Rename(objects+".away", objects); err != nil {
		t.Fatal(err)
	}
	s.Start()
	out, err := exec.Command(testenv.Path(t, "kubectl"), "--kubeconfig", s.Kubeconfig, "get", "sites", "-o", "name").CombinedOutput()
	if err != nil || string(out) != "site.substorm.dev/hub\n" {
		t.Errorf("afterwards there are %s, %v", out, err)
	}
}

// TestNotReady: what a process said of its programs does not make the next one ready, in which a FeedServer that no file declares finds its port taken.
func TestNotReady(t *testing.T) {
	manifests := t.TempDir()
	if err := os.WriteFile(filepath.Join(manifests, "site.yaml"), fmt.Appendf(nil, site, testenv.FreePort(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := testenv.StartStandalone(t, manifests)
	eventually(t, "the Site is ready", func() error {
		if !strings.Contains(s.Log(), "is ready after") {
			return errors.New(s.Log())
		}
		return nil
	})
	kubectl := func(stdin string, args ...string) {
		t.Helper()
		c := exec.Command(testenv.Path(t, "kubectl"), append([]string{"--kubeconfig", s.Kubeconfig}, args...)...)
		c.Stdin = strings.NewReader(stdin)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	kubectl("apiVersion: substorm.dev/v1alpha1\nkind: FeedServer\nmetadata: {name: south}\nspec: {siteRef: {name: hub}}\n", "apply", "-f", "-")
	kubectl("", "wait", "feedserver/south", "--for=condition=Ready", "--timeout=60s")
	s.Kill()
	listen := besideTaken(t)
	c := exec.Command(testenv.Program(t, "cli"), "up", "-f", manifests, "--data-dir", s.DataDir, "--listen", listen, "--listen-metrics=")
	says, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Wait() }()
	defer func() { _ = c.Process.Signal(os.Interrupt) }()
	for lines := bufio.NewScanner(says); lines.Scan(); {
		switch line := lines.Text(); {
		case strings.Contains(line, "is ready after"):
			t.Fatal(line)
		case strings.Contains(line, "waiting: ") && strings.Contains(line, "in use"):
			return
		}
	}
	t.Error("it ended")
}

// besideTaken returns a free address whose next port is taken until the test ends.
func besideTaken(t *testing.T) string {
	t.Helper()
	for range 100 {
		port := testenv.FreePort(t)
		taken, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+1))
		if err == nil {
			t.Cleanup(func() { _ = taken.Close() })
			return fmt.Sprintf("127.0.0.1:%d", port)
		}
	}
	t.Fatal("no free port has a free next one")
	return ""
}

// TestInterruptedStart: an interrupt during the start is not an error.
func TestInterruptedStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	file := filepath.Join(t.TempDir(), "site.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, site, testenv.FreePort(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	err := up.Run(ctx, up.Config{
		Manifests: []string{file}, DataDir: t.TempDir(), Namespace: "default", Listen: fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t)), ListenAPI: "127.0.0.1:0",
		PprofAddress: "0", Stderr: t.Output(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)), LogLevel: "warn",
	})
	if err != nil {
		t.Error(err)
	}
}

// TestBadDisk: a disk that is full, and one that may not be written.
func TestBadDisk(t *testing.T) {
	_, disk := testenv.DiskOf(t, 16<<20)
	filler := filepath.Join(disk, "filler")
	if err := os.WriteFile(filler, make([]byte, 16<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	code, says := badStart(t, "--data-dir", filepath.Join(disk, "data"))
	oneSentence(t, code, 1, says, "no space left", "free space", "--data-dir")
	if out, err := exec.Command("mount", "-o", "remount,ro", disk).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, dir := range []string{disk, filepath.Join(disk, "other")} {
		code, says = badStart(t, "--data-dir", dir)
		oneSentence(t, code, 1, says, "read-only", dir)
	}
}
