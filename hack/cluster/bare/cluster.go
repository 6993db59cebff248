// SPDX-License-Identifier: Apache-2.0

// Package bare runs a real Kubernetes on a machine without a container engine: the control plane as processes of the
// machine, and each node as a set of namespaces of its own with containerd, kubelet and kube-proxy inside.
//
// Whatever it makes bears the cluster's name, and is remembered in the cluster's folder from before it is made until it
// is gone. It needs root.
package bare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/substorm/substorm/hack/progress"
	"github.com/substorm/substorm/internal/retry"
)

// Cluster is one cluster, up or not.
type Cluster struct {
	Name string // also the prefix of links, namespaces and cgroups
	Dir  string // everything it keeps
	P    *progress.Printer

	rec     record
	started map[int]time.Time // the nodes that this command switched on
}

// names leave space for the suffixes of network links, which may have 15 characters.
var names = regexp.MustCompile(`^[a-z][a-z0-9]{0,9}$`)

// Open returns the cluster of that name, whose folder is dir; whether it is up is seen by later calls. Until unlock is
// called, other commands on the same cluster wait.
func Open(name, dir string, p *progress.Printer) (c *Cluster, unlock func(), err error) {
	if !names.MatchString(name) {
		return nil, nil, fmt.Errorf("%q cannot be a cluster's name: up to ten small letters and digits, a letter first", name)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, fmt.Errorf("open the cluster's folder: %w", err)
	}
	lock, err := os.Open(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("open the cluster's folder: %w", err)
	}
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		p.Line("waiting for another command on cluster %s", name)
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
			return nil, nil, fmt.Errorf("lock %s: %w", dir, err)
		}
	}
	c = &Cluster{Name: name, Dir: dir, P: p, started: map[int]time.Time{}}
	unlock = func() {
		os.Remove(dir) // succeeds only for a folder that was made just for this call
		os.Remove(filepath.Dir(dir))
		lock.Close()
	}
	if err := c.load(); err != nil {
		unlock()
		return nil, nil, err
	}
	return c, unlock, nil
}

// Made tells whether the cluster was made and not taken down.
func (c *Cluster) Made() bool { return c.rec.Version != 0 }

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.Dir, "kubeconfig") }

// Kubectl returns the path of the kubectl that fits this cluster.
func (c *Cluster) Kubectl() string { return c.rec.Parts["kubectl"] }

// self is a copy of this program that stays when the command, often started by go run, has ended.
func (c *Cluster) self() string { return filepath.Join(c.Dir, "bin", "cluster") }

func (c *Cluster) copySelf() error {
	from, err := os.Executable()
	if err != nil {
		return err
	}
	if from == c.self() {
		return nil
	}
	body, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("copy this program: %w", err)
	}
	return writeFile(c.self(), body, 0o755)
}

// mustBeMade is the error of commands that need a cluster.
func (c *Cluster) mustBeMade() error {
	if c.Made() {
		return nil
	}
	return fmt.Errorf("there is no cluster %s: make it with `go run ./hack/cluster --name %[1]s up`", c.Name)
}

// kubectl runs kubectl with the administrator's rights and returns what it prints.
func (c *Cluster) kubectl(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, c.Kubectl(), append([]string{"--kubeconfig=" + c.Kubeconfig()}, args...)...)
	cmd.Stdin = bytes.NewReader(stdin)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out, nil
}

// fatal is an error that waiting longer does not heal.
type fatal struct{ error }

// wait calls check until it succeeds, fails fatally, or the time is over.
func (c *Cluster) wait(ctx context.Context, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if f := (fatal{}); errors.As(err, &f) {
			return f.error
		}
		if !retry.Sleep(ctx, 200*time.Millisecond) {
			return fmt.Errorf("waited %s for %s: %w", patience, what, err)
		}
	}
}

// step runs f as a step that is shown.
func (c *Cluster) step(what string, f func() error) error {
	s := c.P.Step("%s", what)
	err := f()
	s.Done(err)
	return err
}

// inOrder calls one after the other until one fails.
func inOrder(calls ...func() error) error {
	for _, call := range calls {
		if err := call(); err != nil {
			return err
		}
	}
	return nil
}
