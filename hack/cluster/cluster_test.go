// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestBareCluster takes a cluster once from start to end. The steps build on each other.
func TestBareCluster(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the bare cluster makes network namespaces and so needs root")
	}
	if _, err := os.Stat("/sys/fs/cgroup/memory/cgroup.procs"); err != nil {
		t.Skip("the bare cluster needs the cgroup v1 hierarchies")
	}
	l := lab{t: t, binary: filepath.Join(t.TempDir(), "cluster")}
	l.run("go", "build", "-o", l.binary, ".")
	l.cluster("down") // of a run that was interrupted
	before := traces(t)
	t.Cleanup(func() { l.cluster("down") })
	l.cluster("up", "--on", "bare")
	l.kubeconfig = l.cluster("kubeconfig")
	for line := range strings.Lines(l.cluster("env")) {
		if dir, ok := strings.CutPrefix(line, "export PATH="); ok {
			l.kubectl = filepath.Join(strings.TrimSuffix(strings.TrimSpace(dir), ":$PATH"), "kubectl")
		}
	}
	l.cluster("nodes", "3")
	l.cluster("load", "probe")
	l.apply(probes)
	l.kube("rollout", "status", "daemonset/server", "--timeout=3m")
	l.kube("rollout", "status", "statefulset/keeper", "--timeout=3m")

	t.Run("DNS answers in a pod", l.dns)
	t.Run("pods reach pods, Services and the API server", l.egress)
	t.Run("node ports show the caller", l.nodePorts)
	t.Run("the host reaches Services and pods", l.fromHost)
	t.Run("a volume keeps what a pod wrote", l.volume)
	t.Run("kubectl logs, exec, port-forward", l.streams)
	t.Run("a killed node returns", l.kill)
	t.Run("a cut node goes on alone", l.cut)
	t.Run("a node is removed", l.shrink)
	t.Run("a second up changes nothing", l.upAgain)

	l.cluster("down")
	if diff := cmp.Diff(before, traces(t)); diff != "" {
		t.Errorf("down left something behind (-before +after):\n%s", diff)
	}
}

// probes is a server on each node, with a node port that keeps the caller's address, and one with a volume.
const probes = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: server}
spec:
  selector: {matchLabels: {app: server}}
  template:
    metadata: {labels: {app: server}}
    spec:
      tolerations: [{operator: Exists, effect: NoExecute}]
      securityContext: &pod {runAsNonRoot: true, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: probe
        image: substorm/probe:dev
        args: [serve]
        readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
        securityContext: &container {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
---
apiVersion: v1
kind: Service
metadata: {name: server}
spec:
  type: NodePort
  externalTrafficPolicy: Local
  selector: {app: server}
  ports:
  - {name: tcp, port: 80, targetPort: 8080, nodePort: 30180, protocol: TCP}
  - {name: udp, port: 80, targetPort: 8081, nodePort: 30181, protocol: UDP}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: keeper}
spec:
  serviceName: keeper
  selector: {matchLabels: {app: keeper}}
  template:
    metadata: {labels: {app: keeper}}
    spec:
      securityContext: {runAsNonRoot: true, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
      terminationGracePeriodSeconds: 2
      containers:
      - name: probe
        image: substorm/probe:dev
        args: [serve]
        securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

func (l lab) dns(t *testing.T) {
	l.t = t
	want := l.kube("get", "service", "server", "-o", "jsonpath={.spec.clusterIP}")
	l.eventually(func() error { // DNS is a Service, too, and new on two of the nodes
		got, err := l.try(l.kubectl, "exec", "keeper-0", "--", "/probe", "lookup", "server.default.svc.cluster.local")
		if err == nil && got != want {
			err = fmt.Errorf("the name of the Service is %q, its address %q", got, want)
		}
		return err
	})
}

func (l lab) egress(t *testing.T) {
	l.t = t
	// One Service has an endpoint on every node, so that ten calls go to the caller's node and to others.
	callers := map[string]bool{}
	l.eventually(func() error {
		_, err := l.try(l.kubectl, "exec", "keeper-0", "--", "/probe", "dial", "server:80")
		return err
	})
	for range 10 {
		fields := strings.Fields(l.kube("exec", "keeper-0", "--", "/probe", "dial", "server:80"))
		callers[fields[0]] = true
	}
	if len(callers) < 2 {
		t.Errorf("ten calls to a Service with three endpoints met %d of them", len(callers))
	}
	l.kube("exec", "keeper-0", "--", "/probe", "connect", "kubernetes.default.svc.cluster.local:443")
}

func (l lab) nodePorts(t *testing.T) {
	for n := 1; n <= 3; n++ {
		for _, network := range []string{"tcp", "udp"} {
			port := map[string]string{"tcp": ":30180", "udp": ":30181"}[network]
			got, local := call(t, network, l.address(n)+port)
			if seen, _, _ := net.SplitHostPort(got[2]); seen != local {
				t.Errorf("node %d, %s: the pod saw %s, the caller is %s", n, network, seen, local)
			}
		}
	}
}

func (l lab) fromHost(t *testing.T) {
	l.t = t
	call(t, "tcp", net.JoinHostPort(l.kube("get", "service", "server", "-o", "jsonpath={.spec.clusterIP}"), "80"))
	for ip := range strings.FieldsSeq(l.kube("get", "pods", "-l", "app=server", "-o", "jsonpath={.items[*].status.podIP}")) {
		call(t, "tcp", net.JoinHostPort(ip, "8080"))
	}
}

func (l lab) volume(t *testing.T) {
	l.t = t
	l.kube("exec", "keeper-0", "--", "/probe", "append", "/data/notes", "first")
	node := l.kube("get", "pod", "keeper-0", "-o", "jsonpath={.spec.nodeName}")
	l.kube("delete", "pod", "keeper-0")
	l.kube("wait", "--for=create", "pod/keeper-0", "--timeout=3m")
	l.kube("wait", "--for=condition=Ready", "pod/keeper-0", "--timeout=3m")
	if got := l.kube("exec", "keeper-0", "--", "/probe", "append", "/data/notes", "second"); got != "first\nsecond" {
		t.Errorf("the file holds %q", got)
	}
	if now := l.kube("get", "pod", "keeper-0", "-o", "jsonpath={.spec.nodeName}"); now != node {
		t.Errorf("the pod left its volume on %s for %s", node, now)
	}
	l.kube("delete", "statefulset", "keeper")
	l.kube("wait", "--for=delete", "pod/keeper-0", "--timeout=3m")
	l.kube("delete", "persistentvolumeclaim", "data-keeper-0")
	l.eventually(func() error {
		if list := l.cluster("volumes"); !strings.Contains(list, "Released") {
			return fmt.Errorf("no volume is released:\n%s", list)
		}
		return nil
	})
	if list := l.cluster("volumes", "--clear"); strings.Count(list, "Available") != 18 {
		t.Errorf("after clearing, not all 18 volumes are available:\n%s", list)
	}
	l.apply(probes)
	l.kube("wait", "--for=create", "pod/keeper-0", "--timeout=3m")
	l.kube("wait", "--for=condition=Ready", "pod/keeper-0", "--timeout=3m")
	if got := l.kube("exec", "keeper-0", "--", "/probe", "append", "/data/notes", "anew"); got != "anew" {
		t.Errorf("the new claim's volume holds %q", got)
	}
}

func (l lab) streams(t *testing.T) {
	l.t = t
	if got := l.kube("logs", "keeper-0"); got != "serving" {
		t.Errorf("logs: %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	forward := exec.CommandContext(ctx, l.kubectl, "port-forward", "pod/keeper-0", ":8080")
	forward.Env = l.env()
	out, err := forward.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := forward.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = forward.Wait() // says that it was killed
	}()
	buf := make([]byte, 200)
	n, err := out.Read(buf) // Forwarding from 127.0.0.1:PORT -> 8080
	if err != nil {
		t.Fatal(err)
	}
	call(t, "tcp", strings.Fields(string(buf[:n]))[2])
}

func (l lab) kill(t *testing.T) {
	l.t = t
	if out, err := l.try(l.binary, "--name", clusterName, "kill"); err == nil || !strings.Contains(out+err.Error(), "1 (node1), 2 (node2), 3 (node3)") {
		t.Errorf("kill without a node does not name the nodes: %v\n%s", err, out)
	}
	old := l.podOn("node2")
	l.cluster("kill", "2")
	l.kube("wait", "--for=condition=Ready=Unknown", "node/node2", "--timeout=3m")
	if state := l.cluster("status"); !strings.Contains(state, "off") {
		t.Errorf("status does not say that a node is off:\n%s", state)
	}
	l.cluster("start", "2")
	l.eventually(func() error {
		_, err := l.try(l.kubectl, "exec", old, "--", "/probe", "lookup", "server.default.svc.cluster.local")
		return err
	})
}

func (l lab) cut(t *testing.T) {
	l.t = t
	answers := func() error { // a node that comes back does so in a moment
		conn, err := net.DialTimeout("tcp", l.address(2)+":30180", time.Second)
		if err == nil {
			conn.Close()
		}
		return err
	}
	l.eventually(answers)
	was, _ := call(t, "tcp", l.address(2)+":30180")
	l.cluster("cut", "2")
	if conn, err := net.DialTimeout("tcp", l.address(2)+":30180", time.Second); err == nil {
		conn.Close()
		t.Error("a cut node still answers")
	}
	l.kube("wait", "--for=condition=Ready=Unknown", "node/node2", "--timeout=3m")
	if state := l.cluster("status"); !strings.Contains(state, "cut off") {
		t.Errorf("status does not say that a node is cut off:\n%s", state)
	}
	l.cluster("join", "node2")
	l.eventually(answers)
	is, _ := call(t, "tcp", l.address(2)+":30180")
	if is[0] != was[0] {
		t.Error("the pod on the cut node was started anew")
	}
	ticksWas, err1 := strconv.Atoi(was[1])
	ticksIs, err2 := strconv.Atoi(is[1])
	if err1 != nil || err2 != nil || ticksIs-ticksWas < 50 {
		t.Errorf("the pod on the cut node did not go on: %q before, %q after", was, is)
	}
}

func (l lab) shrink(t *testing.T) {
	l.t = t
	l.kube("delete", "statefulset", "keeper")
	l.kube("delete", "persistentvolumeclaim", "data-keeper-0")
	l.cluster("nodes", "2")
	if nodes := l.kube("get", "nodes", "-o", "name"); nodes != "node/node1\nnode/node2" {
		t.Errorf("the nodes are %q", nodes)
	}
}

func (l lab) upAgain(t *testing.T) {
	l.t = t
	was, _ := call(t, "tcp", l.address(1)+":30180")
	l.cluster("up")
	if is, _ := call(t, "tcp", l.address(1)+":30180"); is[0] != was[0] {
		t.Error("a second up started a pod anew")
	}
}
