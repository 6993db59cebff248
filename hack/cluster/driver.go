// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/substorm/substorm/hack/cluster/bare"
	"github.com/substorm/substorm/hack/cluster/kind"
	"github.com/substorm/substorm/hack/paths"
	"github.com/substorm/substorm/hack/progress"
)

// driver is a way to have a cluster. Nodes count from 1.
type driver interface {
	Made() bool
	Up(ctx context.Context, nodes int) error
	Down(ctx context.Context) error
	Load(ctx context.Context, tars ...string) error
	Nodes(ctx context.Context, nodes int) error
	Kill(ctx context.Context, n int) error
	Start(ctx context.Context, n int) error
	Cut(ctx context.Context, n int) error
	Join(ctx context.Context, n int) error
	Exec(ctx context.Context, n int, command []string) error
	Volumes(ctx context.Context, clear bool) ([]string, error)
	Status(ctx context.Context) ([]node, error)
	Kubeconfig() string
	Kubectl(ctx context.Context) (string, error)
	// About says in a few words what runs and where.
	About() string
}

// options are the flags of every command.
type options struct {
	name string
	on   string // auto, kind or bare
}

// open finds the cluster of that name: the one that was made, else one to be made on kind where Docker answers and on
// the bare machine elsewhere. The caller must call unlock.
func (o options) open(ctx context.Context, p *progress.Printer) (d driver, unlock func(), err error) {
	cache, err := paths.Cache()
	if err != nil {
		return nil, nil, err
	}
	dir := filepath.Join(cache, "cluster", o.name)
	bareCluster, unlock, err := bare.Open(o.name, dir, p)
	if err != nil {
		return nil, nil, err
	}
	onBare, onKind := bareDriver{bareCluster}, kindDriver{kind.New(o.name, dir, p), bareCluster}
	switch {
	case onBare.Made():
		return onBare, unlock, o.agree("bare", unlock)
	case onKind.Made():
		return onKind, unlock, o.agree("kind", unlock)
	case o.on == "bare", o.on == "auto" && !dockerAnswers(ctx):
		return onBare, unlock, nil
	case o.on == "kind", o.on == "auto":
		return onKind, unlock, nil
	}
	unlock()
	return nil, nil, fmt.Errorf("--on must be auto, kind or bare, not %q", o.on)
}

// up makes the cluster, and returns what it runs on after all: where Docker answers but its registry does not, that is
// the bare machine.
func (o options) up(ctx context.Context, p *progress.Printer, d driver, nodes int) (driver, error) {
	err := d.Up(ctx, nodes)
	if onKind, ok := d.(kindDriver); ok && o.on == "auto" && errors.Is(err, kind.ErrNoImage) {
		p.Line("%v: the cluster runs on this machine itself", kind.ErrNoImage)
		d = bareDriver{onKind.otherwise}
		err = d.Up(ctx, nodes)
	}
	return d, err
}

func (o options) agree(made string, unlock func()) error {
	if o.on == "auto" || o.on == made {
		return nil
	}
	unlock()
	return fmt.Errorf("the cluster %s runs on %s: take it down first, or omit --on", o.name, made)
}

func dockerAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "docker", "info", "--format", "{{.ServerVersion}}").Output()
	return err == nil && strings.TrimSpace(string(out)) != ""
}

type bareDriver struct{ *bare.Cluster }

func (d bareDriver) Kill(_ context.Context, n int) error { return d.Cluster.Kill(n) }
func (d bareDriver) Cut(_ context.Context, n int) error  { return d.Cluster.Cut(n) }
func (d bareDriver) Exec(_ context.Context, n int, command []string) error {
	return d.Cluster.Exec(n, command)
}
func (d bareDriver) Kubectl(context.Context) (string, error) { return d.Cluster.Kubectl(), nil }

func (d bareDriver) About() string {
	nodes, pods, services := d.Ranges()
	return fmt.Sprintf("bare, in %s; nodes %s, pods %s, Services %s", d.Dir, nodes, pods, services)
}

func (d bareDriver) Status(context.Context) ([]node, error) {
	var all []node
	for i, s := range d.Cluster.Status() {
		all = append(all, node{i + 1, s.Name, string(s.State), s.Address})
	}
	return all, nil
}

func (d bareDriver) Volumes(ctx context.Context, clear bool) ([]string, error) {
	volumes, err := d.Cluster.Volumes(ctx, clear)
	var lines []string
	for _, v := range volumes {
		lines = append(lines, fmt.Sprintf("%-10s %-10s %s", v.Name, v.Phase, v.Claim))
	}
	return lines, err
}

type kindDriver struct {
	*kind.Cluster
	otherwise *bare.Cluster // where kind cannot be had
}

func (d kindDriver) About() string {
	return fmt.Sprintf("kind, in Docker's containers; the rest in %s", d.Dir)
}

func (d kindDriver) Status(ctx context.Context) ([]node, error) {
	nodes, err := d.Cluster.Status(ctx)
	var all []node
	for i, s := range nodes {
		all = append(all, node{i + 1, s.Name, s.State, s.Address})
	}
	return all, err
}

// env prints the lines that make a shell talk to the cluster, with the kubectl that fits it.
func env(ctx context.Context, d driver) error {
	fmt.Printf("export KUBECONFIG=%s\n", d.Kubeconfig())
	path, err := d.Kubectl(ctx)
	if err != nil {
		return err
	}
	if found, err := exec.LookPath("kubectl"); err != nil || found != path {
		fmt.Printf("export PATH=%s%c$PATH\n", filepath.Dir(path), os.PathListSeparator)
	}
	return nil
}
