// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

const (
	clusterName = "storm"
	// nodes each report the processors of the whole machine: with three of them the pods of both policies find a place.
	nodes     = "3"
	namespace = "substorm"
	site      = "demo"
	// patience is how long the cluster may take for a request.
	patience = 3 * time.Minute
)

// cluster is a bare one with metrics-server and a Site, which has gateways to fill the archive by, and no feed servers.
type cluster struct {
	client.WithWatch
	root, kubeconfig string
	kubectl, helm    string
	substorm         string
}

func newCluster(ctx context.Context, l *lab.Lab, keep bool) (*cluster, error) {
	root, err := testenv.Checkout()
	if err != nil {
		return nil, err
	}
	c := &cluster{root: root, substorm: filepath.Join(l.TempDir(), "substorm")}
	hack := func(args ...string) []string {
		return append([]string{"go", "run", "./hack/cluster", "--name", clusterName}, args...)
	}
	l.Cleanup(func() {
		if keep {
			l.Logf("the cluster stays up; `%s` removes it", strings.Join(hack("down"), " "))
			return
		}
		if err := c.show(context.Background(), hack("down")...); err != nil {
			l.Logf("taking the cluster down: %v", err)
		}
	})
	for _, argv := range [][]string{
		hack("--on", "bare", "up", "--nodes", nodes), hack("load", "all"), hack("metrics-server"), {"go", "build", "-o", c.substorm, "./cli/cmd"},
	} {
		if err := c.show(ctx, argv...); err != nil {
			return nil, err
		}
	}
	for into, argv := range map[*string][]string{
		&c.kubeconfig: hack("kubeconfig"), &c.kubectl: {"go", "run", "./hack/parts", "path", "kubectl"}, &c.helm: {"go", "run", "./hack/parts", "path", "helm"},
	} {
		if *into, err = c.output(ctx, argv...); err != nil {
			return nil, err
		}
	}
	if c.WithWatch, err = connect(c.kubeconfig); err != nil {
		return nil, err
	}
	return c, c.install(ctx)
}

// connect returns a client of the cluster that a kubeconfig names.
func connect(kubeconfig string) (client.WithWatch, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1                // no limit of our own
	ctrl.SetLogger(logr.Discard()) // the client would say at length that it has none
	return connectTo(config)
}

func connectTo(config *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

func (c *cluster) install(ctx context.Context) error {
	for _, release := range [][]string{
		{"quickstart", "charts/substorm-quickstart", "--create-namespace"},
		{"substorm", "charts/substorm"},
		{site, "charts/substorm-site", "--set", "feedServer.enabled=false"},
	} {
		argv := append([]string{c.helm, "upgrade", "--install"}, release...)
		if err := c.show(ctx, append(argv, "--namespace", namespace, "--set", "image.tag=dev", "--wait", "--timeout", "5m")...); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) command(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stderr = c.root, os.Stderr
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig)
	return cmd
}

// show runs a command that takes a while, with what it prints.
func (c *cluster) show(ctx context.Context, argv ...string) error {
	fmt.Fprintln(os.Stderr, "+", strings.Join(argv, " "))
	cmd := c.command(ctx, argv...)
	cmd.Stdout = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return nil
}

func (c *cluster) output(ctx context.Context, argv ...string) (string, error) {
	out, err := c.command(ctx, argv...).Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// read runs a command and has what it prints read as it comes.
func (c *cluster) read(ctx context.Context, reader func(io.Reader) error, argv ...string) error {
	cmd := c.command(ctx, argv...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	read := reader(out)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return read
}

func (c *cluster) apply(ctx context.Context, manifest string) error {
	cmd := c.command(ctx, c.kubectl, "-n", namespace, "apply", "--server-side", "--force-conflicts", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("kubectl apply: %w", err)
	}
	return nil
}

// await asks until all is as it is to be.
func await(ctx context.Context, check func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %w", patience, err)
		}
		if !retry.Sleep(ctx, 500*time.Millisecond) {
			return ctx.Err()
		}
	}
}
