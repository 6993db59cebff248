// SPDX-License-Identifier: Apache-2.0

package bare

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// The machine and its nodes hang on one bridge. A node's end of its cable is eth0 in a network namespace; the other end
// is plugged into the bridge, or pulled out of it (see Cut).
func (c *Cluster) bridge() string         { return c.Name + "-br" }
func (c *Cluster) cable(n int) string     { return fmt.Sprintf("%s-n%d", c.Name, n) }
func (c *Cluster) namespace(n int) string { return fmt.Sprintf("%s-node%d", c.Name, n) }

// NodeName returns the Kubernetes name of a node.
func NodeName(n int) string { return fmt.Sprintf("node%d", n) }

func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func linkExists(name string) bool {
	_, err := os.Lstat(filepath.Join("/sys/class/net", name))
	return err == nil
}

func (c *Cluster) makeBridge() error {
	a := addresses{c.rec.Base}
	if !linkExists(c.bridge()) {
		if err := ip("link", "add", c.bridge(), "type", "bridge"); err != nil {
			return err
		}
	}
	return errors.Join(
		ip("address", "replace", a.api()+"/24", "dev", c.bridge()),
		ip("link", "set", c.bridge(), "up"))
}

// makeNodeNetwork makes a node's namespace and cable, and the routes to its pods. Services are reached through node 1.
func (c *Cluster) makeNodeNetwork(n int) error {
	a, space := addresses{c.rec.Base}, c.namespace(n)
	if err := c.removeNodeNetwork(n); err != nil {
		return err
	}
	steps := [][]string{
		{"netns", "add", space},
		{"link", "add", c.cable(n), "type", "veth", "peer", "name", "eth0", "netns", space},
		{"link", "set", c.cable(n), "master", c.bridge(), "up"},
		{"-n", space, "link", "set", "lo", "up"},
		{"-n", space, "address", "add", a.node(n) + "/24", "dev", "eth0"},
		{"-n", space, "link", "set", "eth0", "up"},
		{"-n", space, "route", "add", "default", "via", a.api()},
		{"route", "replace", a.podsOf(n), "via", a.node(n)},
	}
	for other := 1; other <= MaxNodes; other++ {
		if other != n {
			steps = append(steps, []string{"-n", space, "route", "add", a.podsOf(other), "via", a.node(other)})
		}
	}
	if n == 1 {
		steps = append(steps, []string{"route", "replace", a.services(), "via", a.node(1)})
	}
	for _, args := range steps {
		if err := ip(args...); err != nil {
			return err
		}
	}
	return nil
}

// removeNodeNetwork removes namespace and cable. The machine's routes through the node stay: to what is gone, they lead
// nowhere, as to a machine without power. They end with the bridge.
func (c *Cluster) removeNodeNetwork(n int) error {
	if linkExists(c.cable(n)) {
		if err := ip("link", "delete", c.cable(n)); err != nil {
			return err
		}
	}
	if _, err := os.Stat(c.namespacePath(n)); err == nil {
		return ip("netns", "delete", c.namespace(n))
	}
	return nil
}

func (c *Cluster) namespacePath(n int) string { return filepath.Join("/run/netns", c.namespace(n)) }

func (c *Cluster) removeBridge() error {
	if !linkExists(c.bridge()) {
		return nil
	}
	return ip("link", "delete", c.bridge())
}

// plugged tells whether a node's cable is in the bridge.
func (c *Cluster) plugged(n int) bool {
	_, err := os.Lstat(filepath.Join("/sys/class/net", c.cable(n), "master"))
	return err == nil
}

func (c *Cluster) unplug(n int) error { return ip("link", "set", c.cable(n), "nomaster") }
func (c *Cluster) plug(n int) error   { return ip("link", "set", c.cable(n), "master", c.bridge()) }

// inNetwork calls f on a thread that is in the node's network namespace: what f starts is born there.
func (c *Cluster) inNetwork(n int, f func() error) error {
	space, err := os.Open(c.namespacePath(n))
	if err != nil {
		return err
	}
	defer space.Close()
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine and takes the namespace along
		if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("enter the network of node %d: %w", n, err)
			return
		}
		result <- f()
	}()
	return <-result
}
