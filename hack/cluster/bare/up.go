// SPDX-License-Identifier: Apache-2.0

package bare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/substorm/substorm/hack/images/image"
	"github.com/substorm/substorm/hack/parts/tool"
)

// parts are the programs that the cluster runs from the cache.
var parts = append(append([]string{}, controlPlane...), "kubelet", "kube-proxy", "kubectl")

// patience is how long each part of the cluster may take to come up, on two cores that do something else at the same time. A part that
// ends is reported at once.
const patience = 3 * time.Minute

// ownTag marks the images that only the cluster itself uses; they do not follow the checkout's VERSION.
const ownTag = "cluster"

var ownImages = []string{"substorm/pause", "substorm/coredns"}

// Up makes the cluster with that many nodes, or starts what does not run of it, or makes it grow. 0 nodes stands for as
// many as there are, at least one. It returns when all nodes and the cluster's DNS are ready.
func (c *Cluster) Up(ctx context.Context, nodes int) error {
	if err := c.checkMachine(ctx); err != nil {
		return err
	}
	nodes = max(nodes, c.rec.Nodes, 1)
	if nodes > MaxNodes {
		return fmt.Errorf("%d nodes are too many: this cluster takes up to %d", nodes, MaxNodes)
	}
	if !c.Made() {
		if found := c.foreign(); len(found) > 0 {
			return fmt.Errorf("cannot make the cluster %q: no cluster in %s owns what already has its name: %s; choose another --name or remove these",
				c.Name, c.Dir, strings.Join(found, "; "))
		}
	}
	own, err := c.prepare(ctx)
	if err != nil {
		return err
	}
	if err := c.makeRecord(); err != nil {
		return err
	}
	if err := c.step("network, certificates, control plane", func() error {
		return inOrder(c.saveSysctls, c.copySelf, c.makeBridge, c.makePKI, c.startServers)
	}); err != nil {
		return err
	}
	for _, built := range own {
		if err := c.keepImage(built.Path); err != nil {
			return err
		}
	}
	c.rec.Nodes = nodes
	if err := c.save(); err != nil {
		return err
	}
	for n := 1; n <= nodes; n++ {
		if err := c.startNode(n); err != nil {
			return err
		}
	}
	return c.ready(ctx)
}

// checkMachine finds out early what would fail late.
func (c *Cluster) checkMachine(ctx context.Context) error {
	if strings.HasPrefix(c.Dir, "/run/") || strings.HasPrefix(c.Dir, "/proc/") || strings.HasPrefix(c.Dir, "/sys/") {
		return fmt.Errorf("the cache must not lie in %s, which nodes replace: set SUBSTORM_CACHE to another folder", c.Dir)
	}
	return checkNeeds(ctx)
}

// prepare builds what the cluster needs unless it exists.
func (c *Cluster) prepare(ctx context.Context) (own []image.Built, err error) {
	if c.rec.Parts == nil {
		c.rec.Parts = map[string]string{}
		for _, name := range parts {
			if c.rec.Parts[name], err = tool.Build(ctx, c.P, name); err != nil {
				return nil, err
			}
		}
	}
	for _, name := range ownImages {
		built, err := image.Build(ctx, c.P, name, ownTag)
		if err != nil {
			return nil, err
		}
		own = append(own, built)
	}
	return own, nil
}

func (c *Cluster) makeRecord() error {
	if c.Made() {
		return nil
	}
	a, err := freeAddresses()
	if err != nil {
		return err
	}
	c.rec.Version, c.rec.Base = recordVersion, a.Base
	return c.save()
}

// ready waits for all that runs to be usable, and gives the nodes their images.
func (c *Cluster) ready(ctx context.Context) error {
	if err := c.step("API server", func() error { return c.waitForAPI(ctx) }); err != nil {
		return err
	}
	if err := c.startClients(); err != nil {
		return err
	}
	if err := c.step("images into the nodes", func() error { return c.loadKept(ctx) }); err != nil {
		return err
	}
	if err := c.step("nodes ready", func() error { return c.waitForNodes(ctx) }); err != nil {
		return err
	}
	return c.step("DNS and volumes", func() error { return c.applyAddons(ctx) })
}

func (c *Cluster) waitForNodes(ctx context.Context) error {
	for n := 1; n <= c.rec.Nodes; n++ {
		if c.pid(NodeName(n)) == 0 || !c.plugged(n) {
			continue // off or cut: on purpose
		}
		err := c.wait(ctx, NodeName(n), func(ctx context.Context) error { return c.nodeReady(ctx, n) })
		if err != nil {
			return fmt.Errorf("%w\nThe logs of its kubelet and containerd are in %s", err, filepath.Join(c.Dir, "logs"))
		}
	}
	return nil
}

// nodeReady returns nil when Kubernetes calls the node ready, by what its kubelet said since the node was switched on:
// after a short power cut the word from before it still stands.
func (c *Cluster) nodeReady(ctx context.Context, n int) error {
	name := NodeName(n)
	if c.pid(name) == 0 {
		return fatal{fmt.Errorf("%s ended; the end of %s:\n%s", name, c.logPath(name), c.tail(name, 10))}
	}
	const ready = `.status.conditions[?(@.type=="Ready")]`
	out, err := c.kubectl(ctx, nil, "get", "node", name, "-o", "jsonpath={"+ready+".status} {"+ready+".lastHeartbeatTime}")
	if err != nil {
		return err
	}
	status, heartbeat, _ := strings.Cut(string(out), " ")
	heard, err := time.Parse(time.RFC3339, heartbeat) // whole seconds
	if err != nil {
		return fmt.Errorf("%s has not reported yet", name)
	}
	if status != "True" || heard.Before(c.started[n].Truncate(time.Second)) {
		return fmt.Errorf("%s is not ready (last heartbeat of its kubelet: %s)", name, heartbeat)
	}
	return nil
}

// applyAddons brings DNS, the storage class and every node's volumes up to date.
func (c *Cluster) applyAddons(ctx context.Context) error {
	manifest, err := render("addons.yaml", map[string]any{
		"DNS": addresses{c.rec.Base}.dns(), "DNSImage": "substorm/coredns:" + ownTag, "DNSReplicas": min(c.rec.Nodes, 2),
	})
	if err != nil {
		return err
	}
	for n := 1; n <= c.rec.Nodes; n++ {
		volumes, err := c.makeVolumes(n)
		if err != nil {
			return err
		}
		manifest = append(manifest, volumes...)
	}
	if _, err := c.kubectl(ctx, manifest, "apply", "--server-side", "--field-manager=hack-cluster", "-f", "-"); err != nil {
		return err
	}
	_, err = c.kubectl(ctx, nil, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout="+patience.String())
	return err
}

// Nodes makes the cluster grow or shrink to that many nodes. A node that goes is drained first, and does not go if it holds data of an
// existing claim.
func (c *Cluster) Nodes(ctx context.Context, nodes int) error {
	if err := c.mustBeMade(); err != nil {
		return err
	}
	if nodes < 1 || nodes > MaxNodes {
		return fmt.Errorf("a cluster has 1 to %d nodes, not %d", MaxNodes, nodes)
	}
	if nodes >= c.rec.Nodes {
		return c.Up(ctx, nodes)
	}
	for n := c.rec.Nodes; n > nodes; n-- {
		if err := c.step("remove "+NodeName(n), func() error { return c.removeNode(ctx, n) }); err != nil {
			return err
		}
	}
	return c.step("DNS and volumes", func() error { return c.applyAddons(ctx) })
}

// Down ends every process of the cluster and removes everything that it made, its data too.
func (c *Cluster) Down(context.Context) error {
	if !c.Made() {
		c.P.Line("there is no cluster %s", c.Name)
		return nil
	}
	return c.step("take "+c.Name+" down", func() error {
		var err error
		for n := 1; n <= c.rec.Nodes; n++ {
			err = errors.Join(err, c.powerOff(n))
		}
		err = errors.Join(err, c.stopControlPlane(), c.removeBridge(), c.unmountAll(), removeCgroup(c.cgroup()))
		if err != nil {
			return fmt.Errorf("%w\nThe rest stays on record in %s: run down again", err, c.Dir)
		}
		if err := os.RemoveAll(c.Dir); err != nil {
			return err
		}
		return c.restoreSysctls()
	})
}
