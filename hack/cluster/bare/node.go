// SPDX-License-Identifier: Apache-2.0

package bare

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func (c *Cluster) nodeDir(n int) string { return filepath.Join(c.Dir, NodeName(n)) }

// startNode switches a node on: its network, and the first process in namespaces of its own. It does not wait.
func (c *Cluster) startNode(n int) error {
	name := NodeName(n)
	if c.pid(name) != 0 {
		return nil
	}
	if err := makeCgroup(c.cgroup(name, "system")); err != nil {
		return err
	}
	if err := c.writeNodeFiles(n); err != nil {
		return err
	}
	if err := c.makeNodeNetwork(n); err != nil {
		return err
	}
	log, err := c.logFile(name)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(c.self(), NodeInit, c.Name, c.Dir, strconv.Itoa(n))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	c.started[n] = time.Now()
	if err := c.inNetwork(n, cmd.Start); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	go func() { _ = cmd.Wait() }() // reaps it if it ends while this command runs
	return c.remember(name, cmd.Process.Pid)
}

// writeNodeFiles writes the configuration of a node's programs, and its certificates when it has none yet.
func (c *Cluster) writeNodeFiles(n int) error {
	name, dir, a := NodeName(n), c.nodeDir(n), addresses{c.rec.Base}
	values := map[string]any{
		"Cluster": c.Name, "Node": name, "Dir": dir, "Address": a.node(n), "DNS": a.dns(),
		"Pods": a.podsOf(n), "AllPods": a.pods(), "Cgroup": c.cgroup(name),
		"CA": c.pki("ca.crt"), "ProxyKubeconfig": c.pki("kube-proxy.kubeconfig"),
		"ServingCert": c.pki("kubelet-" + name + "-serving.crt"), "ServingKey": c.pki("kubelet-" + name + "-serving.key"),
		"CNIPlugins": cniPlugins(), "PauseImage": "substorm/pause:" + ownTag,
	}
	for template, path := range map[string]string{
		"containerd.toml": "containerd.toml", "kubelet.yaml": "kubelet.yaml", "kube-proxy.yaml": "kube-proxy.yaml",
		"cni.conflist": "cni/10-" + c.Name + ".conflist",
	} {
		body, err := render(template, values)
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, path), body, 0o644); err != nil {
			return err
		}
	}
	// Pods that want the node's resolver get one that answers nothing: there is no way out of this cluster.
	if err := writeFile(filepath.Join(dir, "resolv.conf"), []byte("nameserver 127.0.0.1\n"), 0o644); err != nil {
		return err
	}
	if _, err := os.Stat(c.pki("kubelet-" + name + ".kubeconfig")); err == nil {
		return nil
	}
	return c.makeNodePKI(n)
}

// powerOff takes a node's power away: its cable first, so that the end of its processes is not noticed, then every process in it at once.
// Its disk stays.
func (c *Cluster) powerOff(n int) error {
	if linkExists(c.cable(n)) {
		if err := c.unplug(n); err != nil {
			return err
		}
	}
	if err := c.stop(NodeName(n), syscall.SIGKILL, 30*time.Second); err != nil {
		return err
	}
	return errors.Join(c.removeNodeNetwork(n), removeCgroup(c.cgroup(NodeName(n))))
}

// Kill powers a node off. Kubernetes finds out by its silence.
func (c *Cluster) Kill(n int) error {
	if err := c.mustHave(n); err != nil {
		return err
	}
	if c.pid(NodeName(n)) == 0 {
		c.P.Line("%s is off already", NodeName(n))
	}
	return c.step("power "+NodeName(n)+" off", func() error { return c.powerOff(n) })
}

// Start powers a node on and waits until it is ready.
func (c *Cluster) Start(ctx context.Context, n int) error {
	if err := c.mustHave(n); err != nil {
		return err
	}
	return c.step("power "+NodeName(n)+" on", func() error {
		return inOrder(c.copySelf,
			func() error { return c.startNode(n) },
			func() error { return c.loadKept(ctx) },
			func() error { return c.waitForNodes(ctx) })
	})
}

// Cut pulls a node's cable: its processes continue, alone.
func (c *Cluster) Cut(n int) error {
	if err := c.mustRun(n); err != nil {
		return err
	}
	return c.step("cut "+NodeName(n)+" off", func() error { return c.unplug(n) })
}

// Join puts a node's cable back and waits until the node is ready.
func (c *Cluster) Join(ctx context.Context, n int) error {
	if err := c.mustRun(n); err != nil {
		return err
	}
	return c.step("join "+NodeName(n), func() error {
		if err := c.plug(n); err != nil {
			return err
		}
		return c.waitForNodes(ctx)
	})
}

func (c *Cluster) mustHave(n int) error {
	if err := c.mustBeMade(); err != nil {
		return err
	}
	if n < 1 || n > c.rec.Nodes {
		return fmt.Errorf("the cluster %s has nodes 1 to %d, no node %d", c.Name, c.rec.Nodes, n)
	}
	return nil
}

func (c *Cluster) mustRun(n int) error {
	if err := c.mustHave(n); err != nil {
		return err
	}
	if c.pid(NodeName(n)) == 0 {
		return fmt.Errorf("%s is off: `go run ./hack/cluster start %d` first", NodeName(n), n)
	}
	return nil
}

// Exec becomes a command inside a node, as ssh would. It returns only when that fails.
func (c *Cluster) Exec(n int, command []string) error {
	if err := c.mustRun(n); err != nil {
		return err
	}
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	args := append([]string{"nsenter", "--target=" + strconv.Itoa(c.pid(NodeName(n))),
		"--mount", "--net", "--pid", "--uts", "--ipc", "--"}, command...)
	return syscall.Exec(nsenter, args, os.Environ())
}

// removeNode takes the highest node out of the cluster, with its disk.
func (c *Cluster) removeNode(ctx context.Context, n int) error {
	name := NodeName(n)
	volumes, err := c.volumes(ctx)
	if err != nil {
		return err
	}
	for _, v := range volumes {
		if v.Node == name && v.Phase == "Bound" {
			return fmt.Errorf("%s holds the volume of the claim %s: delete the claim (and what uses it) first, its data goes with the node", name, v.Claim)
		}
	}
	if c.pid(name) != 0 && c.plugged(n) {
		if _, err := c.kubectl(ctx, nil, "drain", name, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s"); err != nil {
			return err
		}
	}
	if err := c.powerOff(n); err != nil {
		return err
	}
	if _, err := c.kubectl(ctx, nil, "delete", "node", name, "--ignore-not-found"); err != nil {
		return err
	}
	if _, err := c.kubectl(ctx, nil, "delete", "persistentvolume", "--selector=kubernetes.io/hostname="+name); err != nil {
		return err
	}
	if err := inOrder(c.unmountAll, func() error { return os.RemoveAll(c.nodeDir(n)) }); err != nil {
		return err
	}
	c.rec.Nodes = n - 1
	return c.save()
}

// unmountAll unmounts what this namespace sees below the cluster's folder. Nodes mount in their own namespaces, which
// end with them, so that is nothing unless something went wrong.
func (c *Cluster) unmountAll() error {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer f.Close()
	var below []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > 4 && strings.HasPrefix(fields[4], c.Dir+"/") {
			below = append(below, fields[4])
		}
	}
	for _, path := range slices.Backward(below) {
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	return nil
}
