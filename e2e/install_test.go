// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// install puts the quickstart's store on the first node, and a server of NATS and a
// gateway pod on each, with Helm as a user would.
func (l *lab) install() error {
	nodes, err := l.nodes()
	if err != nil {
		return err
	}
	if len(nodes) != 3 {
		return fmt.Errorf("the cluster has %d nodes, want 3", len(nodes))
	}
	first := nodes[0].Labels["kubernetes.io/hostname"]
	err = l.show(l.helmBin, "upgrade", "--install", "substorm-quickstart", "charts/substorm-quickstart",
		"--namespace", namespace, "--create-namespace", "--set", "image.tag=dev",
		"--set", "nats.replicas=3",
		"--set", "nats.leafnodes.enabled=true",
		"--set", "networkPolicy.monitoringFrom[0].ipBlock.cidr=0.0.0.0/0", // tests read it through the API server
		"--set", `s3.nodeSelector.kubernetes\.io/hostname=`+first,
		"--wait", "--timeout", patienceText)
	if err != nil {
		return err
	}
	if err := l.installSubstorm(); err != nil {
		return err
	}
	return l.helmTest()
}

// helmTest runs the charts' own tests, as a user would once all is installed.
func (l *lab) helmTest() error {
	if err := l.show(l.kubectlBin, "wait", "-n", namespace, "site/demo", "ingestgateway/demo", "feedserver/demo", "--for=condition=Ready", "--timeout="+patienceText); err != nil {
		return err
	}
	for _, release := range []string{"substorm", "demo"} {
		if err := l.show(l.helmBin, "test", release, "--namespace", namespace, "--logs", "--timeout", patienceText); err != nil {
			return err
		}
	}
	return nil
}

// installSubstorm installs the operator, and a Site with three gateway pods, whose
// streams have three replicas.
func (l *lab) installSubstorm() error {
	err := l.show(l.helmBin, "upgrade", "--install", "substorm", "charts/substorm",
		"--namespace", namespace, "--set", "image.tag=dev", "--wait", "--timeout", patienceText)
	if err != nil {
		return err
	}
	return l.show(l.helmBin, "upgrade", "--install", "demo", "charts/substorm-site",
		"--namespace", namespace, "--set", "image.tag=dev", "--set", "ingestGateway.spec.replicas=3", "--set", "feedServer.spec.replicas=2", "--set", "site.spec.jetStream.replicas=3",
		"--wait", "--timeout", patienceText)
}

// nodes returns the cluster's nodes in the order in which hack/cluster counts them.
func (l *lab) nodes() ([]corev1.Node, error) {
	out, err := l.tryKubectl("get", "nodes", "--sort-by=.metadata.name", "-o", "json")
	if err != nil {
		return nil, err
	}
	var list corev1.NodeList
	return list.Items, json.Unmarshal([]byte(out), &list)
}

// nodeAddresses returns the address of each node, in order.
func (l *lab) nodeAddresses(t testing.TB) []string {
	t.Helper()
	nodes, err := l.nodes()
	if err != nil {
		t.Fatal(err)
	}
	var addresses []string
	for _, node := range nodes {
		addresses = append(addresses, internalIP(node))
	}
	return addresses
}

func internalIP(node corev1.Node) string {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}

// gateways returns the gateway pods.
func (l *lab) gateways(t testing.TB) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	l.getJSON(t, &list, "pods", "-l", "app.kubernetes.io/name=ingest-gateway")
	return list.Items
}

// gatewayOn returns the name of the gateway pod on the n-th node, counted from 1.
func (l *lab) gatewayOn(t testing.TB, n int) string {
	t.Helper()
	pods := l.podsOn(t, "app.kubernetes.io/name=ingest-gateway", n)
	if len(pods) == 0 {
		t.Fatalf("no gateway pod on node %d", n)
	}
	return pods[0]
}

// podsOn returns the names of the pods with a label on the n-th node, counted from 1.
func (l *lab) podsOn(t testing.TB, label string, n int) (names []string) {
	t.Helper()
	nodes, err := l.nodes()
	if err != nil {
		t.Fatal(err)
	}
	var list corev1.PodList
	l.getJSON(t, &list, "pods", "-l", label)
	for _, pod := range list.Items {
		if pod.Spec.NodeName == nodes[n-1].Name {
			names = append(names, pod.Name)
		}
	}
	return names
}

// waitRestarted waits until a gateway's container runs for the second time.
func (l *lab) waitRestarted(t testing.TB, pod string) {
	t.Helper()
	eventually(t, func() error {
		for _, p := range l.gateways(t) {
			if p.Name == pod && len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].RestartCount > 0 {
				return nil
			}
		}
		return fmt.Errorf("pod %s was not restarted", pod)
	})
}

// readyGateway returns a gateway pod that receives, and its node's address.
func (l *lab) readyGateway(t testing.TB) (podIP, nodeIP string) {
	t.Helper()
	eventually(t, func() error {
		for _, pod := range l.gateways(t) {
			if podReady(&pod) && pod.DeletionTimestamp == nil {
				podIP, nodeIP = pod.Status.PodIP, pod.Status.HostIP
				return nil
			}
		}
		return errors.New("no gateway pod is ready")
	})
	return podIP, nodeIP
}

// waitReady waits for the condition Ready of resources.
func (l *lab) waitReady(t testing.TB, resources ...string) {
	t.Helper()
	l.kubectl(t, append([]string{"wait", "--for=condition=Ready", "--timeout=" + patienceText}, resources...)...)
}

// instrumentTCP is the manifest of a camera.
func instrumentTCP(name string, port int) string {
	return instrument(name, "AllSkyCamera", fmt.Sprintf("{name: tcp, protocol: TCP, port: %d}", port))
}

// instrumentUDP is the manifest of a magnetometer. Its segments are short, so
// that the test need not wait for ten minutes.
func instrumentUDP(name string, port int) string {
	return instrument(name, "Magnetometer", fmt.Sprintf("{name: udp, protocol: UDP, port: %d}", port)) +
		"  archive: {segment: {maxAge: 15s}}\n"
}

func instrument(name, kind, listener string) string {
	return strings.Join([]string{
		"apiVersion: substorm.dev/v1alpha1",
		"kind: Instrument",
		"metadata: {name: " + name + "}",
		"spec:",
		"  siteRef: {name: demo}",
		"  type: " + kind,
		"  listeners: [" + listener + "]",
		"",
	}, "\n")
}

// waitRefused waits until no process listens on address any more.
func waitRefused(t testing.TB, address string) {
	t.Helper()
	eventually(t, func() error {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return nil
		}
		_ = conn.Close()
		return fmt.Errorf("%s still accepts", address)
	})
}
