// SPDX-License-Identifier: Apache-2.0

// Command demo shows Substorm on a real cluster, from nothing: `make demo`, `make demo-down`.
//
//	go run ./hack/demo up     cluster, NATS, S3, Substorm, two instruments, real data, and proof that it arrived
//	go run ./hack/demo storm  on the same cluster, a storm of four minutes: its level, floors, pods and crowd, and a picture of them
//	go run ./hack/demo down   removes the cluster and the folder .demo; the cache of built parts stays
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/substorm/substorm/hack/compile"
	"github.com/substorm/substorm/hack/parts/tool"
	"github.com/substorm/substorm/hack/paths"
	"github.com/substorm/substorm/hack/progress"
)

// clusterName keeps the demo's cluster apart from those of tests and developers: down removes this one only.
const clusterName = "demo"

// namespace that everything is installed into.
const namespace = "substorm"

func main() { progress.Main("demo", run) }

func run(ctx context.Context, args []string) error {
	root, err := paths.Checkout()
	if err != nil {
		return err
	}
	d := &demo{p: progress.New(os.Stderr), root: root, dir: filepath.Join(root, ".demo")}
	show := map[string]func(context.Context) error{"up": d.up, "storm": d.storm}
	switch {
	case len(args) == 1 && show[args[0]] != nil:
		err = show[args[0]](ctx)
		if errors.Is(ctx.Err(), context.Canceled) {
			return errors.New("interrupted: `make demo` goes on from here, `make demo-down` removes what there is")
		}
		if err != nil {
			d.explain()
		}
		return err
	case len(args) == 1 && args[0] == "down":
		return d.down(ctx)
	default:
		return errors.New("the command must be up, storm or down")
	}
}

// demo is one run.
type demo struct {
	p    *progress.Printer
	root string // of the checkout
	dir  string // .demo: the program `substorm`, and data where it had to be generated

	kubectl, helm, substorm, kubeconfig string
}

func (d *demo) up(ctx context.Context) error {
	started := time.Now()
	for _, step := range []func(context.Context) error{d.tools, d.cluster, d.program} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	built := time.Since(started)
	if err := d.install(ctx); err != nil {
		return err
	}
	if err := d.declare(ctx); err != nil {
		return err
	}
	s, err := d.send(ctx)
	if err != nil {
		return err
	}
	if err := d.verifyArchive(ctx, s); err != nil {
		return err
	}
	d.p.Line("all is as it should be, after %.0f s: %.0f s for parts, images and cluster, %.0f s from there to data in the archive",
		time.Since(started).Seconds(), built.Seconds(), (time.Since(started) - built).Seconds())
	return d.sayMore()
}

// tools has the programs of others that the demo runs.
func (d *demo) tools(ctx context.Context) error {
	for name, path := range map[string]*string{"helm": &d.helm, "kubectl": &d.kubectl} {
		var err error
		if *path, err = tool.Build(ctx, d.p, name); err != nil {
			return err
		}
	}
	return nil
}

// program builds `substorm` for this machine, with the flags of the images, whose compiled packages it shares.
func (d *demo) program(ctx context.Context) error {
	d.substorm = filepath.Join(d.dir, "bin", "substorm")
	step := d.p.Step("build substorm")
	err := compile.Program(ctx, filepath.Join(d.root, "cli", "cmd"), d.substorm, "")
	step.Done(err)
	if err != nil {
		return err
	}
	plugin := filepath.Join(d.dir, "bin", "kubectl-substorm") // makes `kubectl substorm` work
	if err := os.Symlink("substorm", plugin); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// cluster makes the cluster and gives it our images. Both commands show their own progress.
func (d *demo) cluster(ctx context.Context) error {
	if err := d.show(ctx, "go", "run", "./hack/cluster", "--name", clusterName, "up"); err != nil {
		return err
	}
	if err := d.show(ctx, "go", "run", "./hack/cluster", "--name", clusterName, "load", "all"); err != nil {
		return err
	}
	var err error
	d.kubeconfig, err = d.output(ctx, "go", "run", "./hack/cluster", "--name", clusterName, "kubeconfig")
	if err != nil {
		return err
	}
	// The cluster's own kubeconfig: the commands below then need no --namespace.
	_, err = d.output(ctx, d.kubectl, "config", "set-context", "--current", "--namespace="+namespace)
	return err
}

func (d *demo) down(ctx context.Context) error {
	if err := d.show(ctx, "go", "run", "./hack/cluster", "--name", clusterName, "down"); err != nil {
		return err
	}
	if err := os.RemoveAll(d.dir); err != nil {
		return fmt.Errorf("remove what the demo made: %w", err)
	}
	cache, err := paths.Cache()
	if err != nil {
		return err
	}
	fmt.Printf("Nothing is left of the demo but the cache of built parts and images in %s, which makes the next one fast.\n"+
		"To remove that too: rm -rf %s\n", cache, cache)
	return nil
}
