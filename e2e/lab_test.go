// SPDX-License-Identifier: Apache-2.0

//go:build e2e

// Package e2e tries Substorm as its users do: a real cluster of three nodes,
// Helm, kubectl and `substorm`, and nothing that looks inside.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
)

// clusterName keeps the tests' cluster apart from the demo's.
const clusterName = "e2e"

// namespace that everything is installed into.
const namespace = "substorm"

// patience is how long tests wait for what must come, and patienceText the same for commands. It says nothing about how long that takes: two
// cores that do something else at the same time are slow.
const (
	patience     = 5 * time.Minute
	patienceText = "5m"
)

// lab is the cluster that all tests of this package share.
type lab struct {
	root       string // of the checkout
	kubeconfig string
	kubectlBin string
	helmBin    string
	substorm   string
}

var theLab *lab

// skipUnlessAll skips a test of autoscaling that only make e2e-all runs: a short storm (TestStorm) stands for it in make e2e.
func skipUnlessAll(t *testing.T) {
	t.Helper()
	if os.Getenv("SUBSTORM_TEST_AUTOSCALING") == "" {
		t.Skip("make e2e-all runs it: set SUBSTORM_TEST_AUTOSCALING=1")
	}
}

func TestMain(m *testing.M) {
	if os.Getuid() != 0 && exec.Command("docker", "info").Run() != nil {
		fmt.Println("skipped: without Docker the e2e tests make network namespaces, and so need root")
		return
	}
	l, err := newLab()
	if err == nil {
		err = l.install()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e: setting up the lab:", err)
		if l != nil {
			l.down()
		}
		os.Exit(1)
	}
	theLab = l
	code := m.Run()
	if os.Getenv("SUBSTORM_E2E_KEEP") == "" {
		l.down()
	} else {
		fmt.Println("e2e: the cluster stays up; export KUBECONFIG=" + l.kubeconfig)
	}
	os.Exit(code)
}

// newLab brings up three nodes, with our images on each.
func newLab() (*lab, error) {
	root, err := filepath.Abs("..")
	if err != nil {
		return nil, err
	}
	l := &lab{root: root}
	for _, step := range [][]string{
		{"go", "run", "./hack/cluster", "--name", clusterName, "up", "--nodes", "3"},
		{"go", "run", "./hack/cluster", "--name", clusterName, "load", "all"},
	} {
		if err := l.show(step...); err != nil {
			return l, err
		}
	}
	for name, into := range map[string]*string{"kubectl": &l.kubectlBin, "helm": &l.helmBin} {
		if *into, err = l.output("go", "run", "./hack/parts", "path", name); err != nil {
			return l, err
		}
	}
	if l.kubeconfig, err = l.output("go", "run", "./hack/cluster", "--name", clusterName, "kubeconfig"); err != nil {
		return l, err
	}
	l.substorm = filepath.Join(root, "bin", "substorm")
	return l, l.show("go", "build", "-o", l.substorm, "./cli/cmd")
}

func (l *lab) down() {
	if err := l.show("go", "run", "./hack/cluster", "--name", clusterName, "down"); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: taking the cluster down:", err)
	}
}

// show runs a long command whose progress a person wants to see.
func (l *lab) show(argv ...string) error {
	fmt.Println("+", strings.Join(argv, " "))
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = l.root, l.env()
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return nil
}

// output runs a command and returns its standard output, trimmed.
func (l *lab) output(argv ...string) (string, error) {
	return l.outputContext(context.Background(), nil, argv...)
}

func (l *lab) outputContext(ctx context.Context, stdin []byte, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = l.root, l.env()
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return strings.TrimSpace(out.String()), fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

func (l *lab) env() []string {
	return append(os.Environ(), "KUBECONFIG="+l.kubeconfig)
}

// kubectl runs kubectl in our namespace and fails the test if it fails. Commands that only read are tried for a minute: an API server that has
// too much to do refuses some connections.
func (l *lab) kubectl(t testing.TB, args ...string) string {
	t.Helper()
	var out string
	var err error
	for range testenv.AttemptsFor(time.Minute) {
		if out, err = l.tryKubectl(args...); err == nil {
			return out
		}
		if args[0] != "get" {
			break
		}
	}
	t.Fatal(err)
	return ""
}

func (l *lab) tryKubectl(args ...string) (string, error) {
	return l.output(append([]string{l.kubectlBin, "-n", namespace}, args...)...)
}

// apply applies a manifest.
func (l *lab) apply(t testing.TB, manifest string) {
	t.Helper()
	argv := []string{l.kubectlBin, "-n", namespace, "apply", "--server-side", "--force-conflicts", "-f", "-"}
	if _, err := l.outputContext(t.Context(), []byte(manifest), argv...); err != nil {
		t.Fatal(err)
	}
}

// getJSON decodes what `kubectl get -o json` says of one object.
func (l *lab) getJSON(t testing.TB, into any, args ...string) {
	t.Helper()
	out := l.kubectl(t, append([]string{"get", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		t.Fatalf("kubectl get %v: %v", args, err)
	}
}

// cluster runs hack/cluster.
func (l *lab) cluster(t testing.TB, args ...string) {
	t.Helper()
	out, err := l.output(append([]string{"go", "run", "./hack/cluster", "--name", clusterName}, args...)...)
	t.Logf("hack/cluster %s\n%s", strings.Join(args, " "), out)
	if err != nil {
		t.Fatal(err)
	}
}

// eventually calls check until it returns nil, and fails the test with its
// last error where that does not happen.
func eventually(t testing.TB, check func() error) {
	t.Helper()
	var err error
	for range testenv.AttemptsFor(patience) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("not within %v: %v", patience, err)
}

// background is a command that runs beside the test.
type background struct {
	cmd  *exec.Cmd
	out  lockedBuffer
	done chan error
}

func (l *lab) start(t testing.TB, argv ...string) *background {
	t.Helper()
	b := &background{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan error, 1)}
	b.cmd.Dir, b.cmd.Env = l.root, l.env()
	b.cmd.Stdout, b.cmd.Stderr = &b.out, &b.out
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { b.done <- b.cmd.Wait() }()
	t.Cleanup(func() {
		if b.cmd.ProcessState == nil {
			_ = b.cmd.Process.Kill()
		}
	})
	return b
}

// succeeds waits for the command to end well.
func (b *background) succeeds(t testing.TB) {
	t.Helper()
	if code := b.wait(t, 2*patience); code != 0 {
		t.Fatalf("%v ended with %d:\n%s", b.cmd.Args, code, b.out.String())
	}
}

// wait returns the exit code of the command.
func (b *background) wait(t testing.TB, within time.Duration) int {
	t.Helper()
	select {
	case err := <-b.done:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return b.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		t.Fatalf("%v did not end within %v:\n%s", b.cmd.Args, within, b.out.String())
		return -1
	}
}

// lockedBuffer is a bytes.Buffer that a command writes while a test reads.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
