// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/hack/cluster/bare"
	"github.com/substorm/substorm/hack/paths"
)

// clusterName keeps this test's cluster apart from the demo's and the other tests'.
const clusterName = "hacktest"

// patience is how long the test waits for what must come. It says nothing about how long that takes.
const patience = 3 * time.Minute

// lab is the cluster under test, worked by its command line as a person would.
type lab struct {
	t          testing.TB
	binary     string
	kubeconfig string
	kubectl    string
}

// call returns the words of a probe's answer, and the caller's own address. It asks again for a while: a pod is Ready before each node forwards
// the ports of its Service.
func call(t testing.TB, network, address string) (words []string, local string) {
	t.Helper()
	eventually(t, func() (err error) {
		if words, local, err = tryCall(network, address); err != nil {
			return fmt.Errorf("%s %s: %w", network, address, err)
		}
		return nil
	})
	return words, local
}

func tryCall(network, address string) (words []string, local string, err error) {
	conn, err := net.DialTimeout(network, address, 5*time.Second)
	if err != nil {
		return nil, "", err
	}
	defer conn.Close()
	if network == "udp" {
		fmt.Fprint(conn, "hello")
	}
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return nil, "", err
	}
	buf := make([]byte, 200)
	n, err := conn.Read(buf)
	if err != nil {
		return nil, "", err
	}
	words = strings.Fields(string(buf[:n]))
	if len(words) != 3 {
		return nil, "", fmt.Errorf("the answer is %q", buf[:n])
	}
	local, _, err = net.SplitHostPort(conn.LocalAddr().String())
	return words, local, err
}

// address returns a node's address, from its status.
func (l lab) address(n int) string {
	l.t.Helper()
	return l.kube("get", "node", bare.NodeName(n), "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
}

func (l lab) podOn(node string) string {
	l.t.Helper()
	return l.kube("get", "pods", "-l", "app=server", "--field-selector=spec.nodeName="+node, "-o", "name")
}

func (l lab) apply(manifest string) {
	l.t.Helper()
	file := filepath.Join(l.t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		l.t.Fatal(err)
	}
	l.kube("apply", "-f", file)
}

func (l lab) cluster(args ...string) string {
	l.t.Helper()
	return l.run(l.binary, append([]string{"--name", clusterName}, args...)...)
}

func (l lab) kube(args ...string) string {
	l.t.Helper()
	return l.run(l.kubectl, args...)
}

func (l lab) run(name string, args ...string) string {
	l.t.Helper()
	out, err := l.try(name, args...)
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

func (l lab) try(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = l.env()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(name), strings.Join(args, " "), err, out, errs.String())
	} else if name == l.binary {
		l.t.Logf("cluster %s\n%s", strings.Join(args, " "), errs.String())
	}
	return strings.TrimSpace(string(out)), err
}

func (l lab) env() []string { return append(os.Environ(), "KUBECONFIG="+l.kubeconfig) }

func (l lab) eventually(check func() error) {
	l.t.Helper()
	eventually(l.t, check)
}

// eventually checks again and again until there is no error.
func eventually(t testing.TB, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %v", patience, err)
		}
	}
}

// traces lists what bears the cluster's name on this machine, and what it changes: links, namespaces, routes, mounts,
// cgroups, processes, files, settings.
func traces(t testing.TB) map[string]string {
	t.Helper()
	found := map[string]string{}
	add := func(kind, text string) {
		var lines []string
		for line := range strings.Lines(text) {
			if strings.Contains(line, clusterName) {
				lines = append(lines, line)
			}
		}
		found[kind] = strings.Join(lines, "")
	}
	output := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).Output()
		if err != nil {
			t.Fatalf("%s %v: %v", name, args, err)
		}
		return string(out)
	}
	add("links", output("ip", "-oneline", "link"))
	add("namespaces", output("ip", "netns", "list"))
	add("routes", output("ip", "route"))
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	add("mounts", string(mounts))
	var processes []string
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		if words, err := os.ReadFile(path); err == nil {
			processes = append(processes, strings.ReplaceAll(string(words), "\x00", " "))
		}
	}
	add("processes", strings.Join(processes, "\n"))
	cgroups, _ := filepath.Glob("/sys/fs/cgroup/*/" + clusterName)
	add("cgroups", strings.Join(cgroups, "\n"))
	cache, err := paths.Cache()
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(cache, "cluster", clusterName+"*"))
	add("files", strings.Join(files, "\n"))
	found["settings"] = output("sysctl", "vm.overcommit_memory", "kernel.panic", "kernel.panic_on_oops", "net.ipv4.ip_forward")
	return found
}
