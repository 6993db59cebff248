// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// ample is a FeedServer whose pods are so large that a node has space for one.
const ample = "ample"

const ampleManifest = `apiVersion: substorm.dev/v1alpha1
kind: FeedServer
metadata: {name: %[1]s}
spec:
  siteRef: {name: demo}
  replicas: 1
  podTemplate:
    resources:
      requests: {cpu: 10m, memory: %[2]s}
      limits: {memory: %[2]s}
    affinity:
      nodeAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions: [{key: kubernetes.io/hostname, operator: NotIn, values: [%[3]s]}]
`

// TestCeiling asks for more pods than two nodes have memory for, as kube-scheduler sees it. An operator that may not read nodes makes all of
// them, and those that find no node are Pending until fewer are asked for. One that may (operator.readNodes) makes those that fit, says what
// is short, and no pod is without a node at any time.
func TestCeiling(t *testing.T) {
	skipUnlessAll(t)
	l := theLab
	nodes, err := l.nodes()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.kubectl(t, "delete", "feedserver", ample, "--ignore-not-found")
		l.readNodes(t, false)
		eventually(t, func() error { return l.amplePods(t, 0, 0) })
	})
	l.apply(t, fmt.Sprintf(ampleManifest, ample, threeFifthsOf(nodes), nodes[0].Labels[corev1.LabelHostname]))
	l.waitReady(t, "feedserver/"+ample)
	two := []string{nodes[1].Name, nodes[2].Name}

	l.scaleAmple(t, 4)
	eventually(t, func() error { return l.amplePods(t, 2, 2, two...) })
	eventually(t, func() error {
		return l.limited(t, "there are to be 4 pods, and the cluster has space for 2: 2 run, and no node takes ", "Insufficient memory",
			"This is all that is known: the operator may not read nodes (operator.readNodes of the chart)")
	})
	l.scaleAmple(t, 2)
	eventually(t, func() error { return l.notLimited(t, ample) })
	eventually(t, func() error { return l.amplePods(t, 2, 0, two...) })
	l.scaleAmple(t, 1)
	eventually(t, func() error { return l.amplePods(t, 1, 0, two...) })

	l.readNodes(t, true)
	placed := l.start(t, l.kubectlBin, "-n", namespace, "get", "pods", "-l", ampleLabels, "--watch", "-o",
		`jsonpath={.metadata.name} {.status.conditions[?(@.type=="PodScheduled")].reason}{"\n"}`)
	l.scaleAmple(t, 4)
	eventually(t, func() error {
		return l.limited(t, "there are to be 4 pods, and the cluster has space for 2: the nodes can take ", "memory is short on "+strings.Join(two, ", "),
			"nodeSelector and affinity leave out "+nodes[0].Name, "Add a node, or ask for less in spec.podTemplate.resources (each pod requests cpu 10m, memory ")
	})
	eventually(t, func() error { return l.amplePods(t, 2, 0, two...) })
	l.waitReady(t, "feedserver/"+ample) // it has what fits
	if err := l.notLimited(t, "demo"); err != nil {
		t.Errorf("a pool that has all its pods: %v", err)
	}
	l.scaleAmple(t, 2)
	eventually(t, func() error { return l.notLimited(t, ample) })
	if err := l.amplePods(t, 2, 0, two...); err != nil {
		t.Error(err)
	}
	if told := placed.out.String(); strings.Contains(told, corev1.PodReasonUnschedulable) || strings.Count(told, "\n") < 2 {
		t.Errorf("a pod found no node for a while, or none was seen:\n%s", told)
	}

	// There is no space for a third pod, so one goes before the next one comes.
	l.kubectl(t, "patch", "feedserver", ample, "--type=merge", "-p", `{"spec":{"podTemplate":{"annotations":{"example.org/build":"next"}}}}`)
	eventually(t, func() error {
		out, err := l.tryKubectl("get", "pods", "-l", ampleLabels, "-o", `jsonpath={.items[*].metadata.annotations.example\.org/build}`)
		if err != nil || out != "next next" {
			return fmt.Errorf("the pods have the builds %q, error %v", out, err)
		}
		return l.amplePods(t, 2, 0, two...)
	})
}

// threeFifthsOf is three fifths of the memory of the smallest node: two such pods do not fit, whatever else runs there.
func threeFifthsOf(nodes []corev1.Node) string {
	smallest := slices.MinFunc(nodes, func(a, b corev1.Node) int { return a.Status.Allocatable.Memory().Cmp(*b.Status.Allocatable.Memory()) })
	return resource.NewQuantity(smallest.Status.Allocatable.Memory().Value()/5*3>>20<<20, resource.BinarySI).String()
}

// readNodes gives the operator the right to read nodes, or takes it away.
func (l *lab) readNodes(t testing.TB, may bool) {
	t.Helper()
	if err := l.show(l.helmBin, "upgrade", "substorm", "charts/substorm", "--namespace", namespace, "--reuse-values",
		"--set", fmt.Sprintf("operator.readNodes=%t", may), "--wait", "--timeout", patienceText); err != nil {
		t.Fatal(err)
	}
}

// scaleAmple asks for pods through /scale, as an HPA does.
func (l *lab) scaleAmple(t testing.TB, replicas int) {
	t.Helper()
	l.kubectl(t, "scale", "feedserver", ample, fmt.Sprintf("--replicas=%d", replicas))
}

const ampleLabels = "app.kubernetes.io/name=feed-server,app.kubernetes.io/instance=" + ample

// amplePods is nil once so many pods are ready, each on another one of some nodes, and so many wait because no node takes them, and there are no others.
func (l *lab) amplePods(t testing.TB, ready, waiting int, nodes ...string) error {
	var pods corev1.PodList
	l.getJSON(t, &pods, "pods", "-l", ampleLabels)
	var on []string
	var without int
	for i := range pods.Items {
		switch p := &pods.Items[i]; {
		case podReady(p) && p.DeletionTimestamp == nil && slices.Contains(nodes, p.Spec.NodeName) && !slices.Contains(on, p.Spec.NodeName):
			on = append(on, p.Spec.NodeName)
		case unschedulable(p):
			without++
		default:
			return fmt.Errorf("pod %s on %q is %s, ready: %t", p.Name, p.Spec.NodeName, p.Status.Phase, podReady(p))
		}
	}
	if len(on) != ready || without != waiting {
		return fmt.Errorf("pods are ready on %v, and no node takes %d, want %d and %d", on, without, ready, waiting)
	}
	return nil
}

func unschedulable(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
}

// limited is nil once the FeedServer says all of this in HardwareLimited.
func (l *lab) limited(t testing.TB, all ...string) error {
	return l.serverTells(t, ample, v1alpha1.ConditionHardwareLimited, v1alpha1.ReasonPodsDoNotFit, all...)
}

// serverTells is nil once a condition of a FeedServer has a reason, and its message all of this.
func (l *lab) serverTells(t testing.TB, name, condition, reason string, all ...string) error {
	var server v1alpha1.FeedServer
	l.getJSON(t, &server, "feedserver", name)
	c := meta.FindStatusCondition(server.Status.Conditions, condition)
	if c == nil || c.Reason != reason {
		return fmt.Errorf("%s of %s is %+v", condition, name, c)
	}
	for _, text := range all {
		if !strings.Contains(c.Message, text) {
			return fmt.Errorf("%s of %s says %q, which does not have %q", condition, name, c.Message, text)
		}
	}
	return nil
}

// notLimited is nil once the cluster is not in the way of a FeedServer.
func (l *lab) notLimited(t testing.TB, name string) error {
	var server v1alpha1.FeedServer
	l.getJSON(t, &server, "feedserver", name)
	if c := meta.FindStatusCondition(server.Status.Conditions, v1alpha1.ConditionHardwareLimited); c != nil {
		return fmt.Errorf("HardwareLimited of %s: %s", name, c.Message)
	}
	return nil
}
