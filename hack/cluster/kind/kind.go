// SPDX-License-Identifier: Apache-2.0

// Package kind has a Kubernetes whose nodes are containers of the Docker engine, made by kind. It has one container for
// the control plane and one for each node, so that a node can be killed or cut off without the API server.
package kind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/substorm/substorm/hack/parts/tool"
	"github.com/substorm/substorm/hack/progress"
)

// network is the Docker network on which kind puts every node.
const network = "kind"

// ErrNoImage is returned by Up when Docker's registry does not give the image of the nodes.
var ErrNoImage = errors.New("the image of kind's nodes cannot be pulled")

// Cluster is one kind cluster, made or not.
type Cluster struct {
	Name string
	Dir  string // the kubeconfig, and the configuration that says that this program made the cluster
	P    *progress.Printer
}

// New returns the cluster of that name, whose folder is dir.
func New(name, dir string, p *progress.Printer) *Cluster { return &Cluster{name, dir, p} }

func (c *Cluster) configPath() string { return filepath.Join(c.Dir, "kind.yaml") }

// Made tells whether this program made the cluster and did not take it down.
func (c *Cluster) Made() bool {
	_, err := os.Stat(c.configPath())
	return err == nil
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.Dir, "kubeconfig") }

// Kubectl returns the path of the machine's kubectl, else of our own.
func (c *Cluster) Kubectl(ctx context.Context) (string, error) {
	if path, err := exec.LookPath("kubectl"); err == nil {
		return path, nil
	}
	return tool.Build(ctx, c.P, "kubectl")
}

// config is the cluster's description for kind. The periods are those of the bare cluster: a silent node is found
// missing after seconds, not minutes.
func config(nodes int) string {
	text := `kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
kubeadmConfigPatches:
- |
  kind: ClusterConfiguration
  apiServer:
    extraArgs:
      default-not-ready-toleration-seconds: "10"
      default-unreachable-toleration-seconds: "10"
  controllerManager:
    extraArgs:
      node-monitor-period: "1s"
      node-monitor-grace-period: "12s"
- |
  kind: KubeletConfiguration
  nodeStatusUpdateFrequency: 2s
  nodeStatusReportFrequency: 10s
  nodeLeaseDurationSeconds: 8
nodes:
- role: control-plane
`
	return text + strings.Repeat("- role: worker\n", nodes)
}

// container returns the name of node n's container, which is also the node's name in Kubernetes.
func (c *Cluster) container(n int) string {
	if n == 1 {
		return c.Name + "-worker"
	}
	return fmt.Sprintf("%s-worker%d", c.Name, n)
}

// localClass gives the cluster the same default StorageClass as the bare one has, on kind's own provisioner.
const localClass = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: local
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: rancher.io/local-path
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Delete
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: standard
  annotations: {storageclass.kubernetes.io/is-default-class: "false"}
provisioner: rancher.io/local-path
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Delete
`

// Up makes the cluster, or starts the containers of one that was made before.
func (c *Cluster) Up(ctx context.Context, nodes int) error {
	if c.Made() {
		return c.upAgain(ctx, nodes)
	}
	kind, err := tool.Build(ctx, c.P, "kind")
	if err != nil {
		return err
	}
	if out, err := run(ctx, nil, kind, "get", "clusters"); err != nil {
		return err
	} else if slices.Contains(strings.Fields(out), c.Name) {
		return fmt.Errorf("a kind cluster %q exists that this program did not make: choose another --name, or `kind delete cluster --name %s`", c.Name, c.Name)
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(c.configPath(), []byte(config(max(nodes, 1))), 0o644); err != nil {
		return err
	}
	return c.step("kind create cluster", func() error {
		if _, err := run(ctx, nil, kind, "create", "cluster", "--name", c.Name, "--config", c.configPath(),
			"--kubeconfig", c.Kubeconfig(), "--wait", "5m"); err != nil { // kind has removed what it made
			if strings.Contains(err.Error(), "failed to pull image") {
				err = fmt.Errorf("%w: %w", ErrNoImage, err)
			}
			return errors.Join(err, os.Remove(c.configPath()))
		}
		_, err := c.kubectl(ctx, localClass, "apply", "--server-side", "--force-conflicts", "-f", "-")
		return err
	})
}

func (c *Cluster) upAgain(ctx context.Context, nodes int) error {
	have, err := c.count()
	if err != nil {
		return err
	}
	if nodes != 0 && nodes != have {
		return c.Nodes(ctx, nodes)
	}
	return c.step("start the containers", func() error {
		names := []string{"start", c.Name + "-control-plane"}
		for n := 1; n <= have; n++ {
			names = append(names, c.container(n))
		}
		if _, err := run(ctx, nil, "docker", names...); err != nil {
			return err
		}
		_, err := c.kubectl(ctx, "", "wait", "--for=condition=Ready", "nodes", "--all", "--timeout=3m")
		return err
	})
}

// count returns the number of nodes that the cluster was made with.
func (c *Cluster) count() (int, error) {
	text, err := os.ReadFile(c.configPath())
	return strings.Count(string(text), "- role: worker\n"), err
}

// Down deletes the cluster.
func (c *Cluster) Down(ctx context.Context) error {
	if !c.Made() {
		c.P.Line("there is no cluster %s", c.Name)
		return nil
	}
	kind, err := tool.Build(ctx, c.P, "kind")
	if err != nil {
		return err
	}
	return c.step("kind delete cluster", func() error {
		if _, err := run(ctx, nil, kind, "delete", "cluster", "--name", c.Name, "--kubeconfig", c.Kubeconfig()); err != nil {
			return err
		}
		return os.RemoveAll(c.Dir)
	})
}

// Load gives images to all nodes.
func (c *Cluster) Load(ctx context.Context, tars ...string) error {
	kind, err := tool.Build(ctx, c.P, "kind")
	if err != nil {
		return err
	}
	for _, tar := range tars {
		err := c.step("load "+filepath.Base(tar), func() error {
			_, err := run(ctx, nil, kind, "load", "image-archive", tar, "--name", c.Name)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Nodes fails unless the cluster has that many nodes: kind cannot change their number.
func (c *Cluster) Nodes(_ context.Context, nodes int) error {
	have, err := c.count()
	if err != nil || have == nodes {
		return err
	}
	return fmt.Errorf("the cluster has %d nodes and kind cannot change that: `down`, then `up --nodes %d`", have, nodes)
}

// Kill stops a node's container at once.
func (c *Cluster) Kill(ctx context.Context, n int) error {
	return c.docker(ctx, n, "kill", "stop", "--time=0", c.container(n))
}

// Start starts a node's container and waits until the node is ready.
func (c *Cluster) Start(ctx context.Context, n int) error {
	if err := c.docker(ctx, n, "start", "start", c.container(n)); err != nil {
		return err
	}
	return c.waitForNode(ctx, n)
}

// Cut takes a node off the network.
func (c *Cluster) Cut(ctx context.Context, n int) error {
	return c.docker(ctx, n, "cut", "network", "disconnect", network, c.container(n))
}

// Join puts a node back on the network and waits until it is ready.
func (c *Cluster) Join(ctx context.Context, n int) error {
	if err := c.docker(ctx, n, "join", "network", "connect", network, c.container(n)); err != nil {
		return err
	}
	return c.waitForNode(ctx, n)
}

// Exec becomes a command inside a node. It returns only when that fails.
func (c *Cluster) Exec(_ context.Context, n int, command []string) error {
	if err := c.mustHave(n); err != nil {
		return err
	}
	docker, err := exec.LookPath("docker")
	if err != nil {
		return err
	}
	return syscall.Exec(docker, append([]string{"docker", "exec", "-i", c.container(n)}, command...), os.Environ())
}

// Volumes has nothing to do: kind's provisioner makes and removes volumes as they are claimed.
func (c *Cluster) Volumes(ctx context.Context, _ bool) ([]string, error) {
	out, err := c.kubectl(ctx, "", "get", "persistentvolumes", "--no-headers")
	return strings.Split(strings.TrimSpace(out), "\n"), err
}

// NodeStatus is one node as Docker sees it.
type NodeStatus struct{ Name, State, Address string }

// Status returns the nodes in order.
func (c *Cluster) Status(ctx context.Context) ([]NodeStatus, error) {
	have, err := c.count()
	if err != nil {
		return nil, err
	}
	var all []NodeStatus
	for n := 1; n <= have; n++ {
		out, err := run(ctx, nil, "docker", "inspect", "--format",
			"{{.State.Status}} {{with index .NetworkSettings.Networks \""+network+"\"}}{{.IPAddress}}{{end}}", c.container(n))
		if err != nil {
			return nil, err
		}
		state, address, _ := strings.Cut(strings.TrimSpace(out), " ")
		if state == "running" && address == "" {
			state = "cut off"
		}
		all = append(all, NodeStatus{c.container(n), state, address})
	}
	return all, nil
}

func (c *Cluster) mustHave(n int) error {
	have, err := c.count()
	if err == nil && (n < 1 || n > have) {
		err = fmt.Errorf("the cluster %s has nodes 1 to %d, no node %d", c.Name, have, n)
	}
	return err
}

func (c *Cluster) docker(ctx context.Context, n int, what string, args ...string) error {
	if err := c.mustHave(n); err != nil {
		return err
	}
	return c.step(what+" "+c.container(n), func() error {
		_, err := run(ctx, nil, "docker", args...)
		return err
	})
}

func (c *Cluster) waitForNode(ctx context.Context, n int) error {
	return c.step(c.container(n)+" ready", func() error {
		_, err := c.kubectl(ctx, "", "wait", "--for=condition=Ready", "node/"+c.container(n), "--timeout=2m")
		return err
	})
}

func (c *Cluster) kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	kubectl, err := c.Kubectl(ctx)
	if err != nil {
		return "", err
	}
	return run(ctx, []byte(stdin), kubectl, append([]string{"--kubeconfig=" + c.Kubeconfig()}, args...)...)
}

func (c *Cluster) step(what string, f func() error) error {
	s := c.P.Step("%s", what)
	err := f()
	s.Done(err)
	return err
}

func run(ctx context.Context, stdin []byte, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return string(out), errors.Join(fmt.Errorf("%s %s: %w", filepath.Base(name), strings.Join(args, " "), err), errors.New(strings.TrimSpace(errs.String())))
	}
	return string(out), nil
}
