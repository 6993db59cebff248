// SPDX-License-Identifier: Apache-2.0

package ceiling

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Nodes are the nodes of a cluster, with their free resources. They are not changed once they are made.
type Nodes struct {
	nodes []node
	// waiting are pods without a node.
	waiting []*corev1.Pod
	classes []storagev1.StorageClass
	volumes []*corev1.PersistentVolume
}

// node is a node with its free resources.
type node struct {
	*corev1.Node
	free amounts
	pods []*corev1.Pod
}

// NewNodes sums up the pods on the nodes: pods are all of the cluster. The objects stay as they are and must not be changed.
func NewNodes(nodes []corev1.Node, pods []corev1.Pod, classes []storagev1.StorageClass, volumes []corev1.PersistentVolume) *Nodes {
	all := &Nodes{classes: classes}
	at := map[string]int{}
	for i := range nodes {
		at[nodes[i].Name] = i
		all.nodes = append(all.nodes, node{Node: &nodes[i], free: amountsOf(nodes[i].Status.Allocatable)})
	}
	for i := range pods {
		pod := &pods[i]
		n, has := at[pod.Spec.NodeName]
		switch {
		case ended(pod):
		case has:
			all.nodes[n].free.sub(needs(pod))
			all.nodes[n].pods = append(all.nodes[n].pods, pod)
		case pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0:
			all.waiting = append(all.waiting, pod)
		}
	}
	for i := range volumes {
		all.volumes = append(all.volumes, &volumes[i])
	}
	slices.SortFunc(all.nodes, func(a, b node) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// ended: it takes no space any more.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func (n node) clone() node {
	return node{n.Node, maps.Clone(n.free), slices.Clip(n.pods)}
}

// refusal is why a node takes no pod.
type refusal struct {
	rank rank
	// why is a format for the names of the nodes: "memory is short on %s".
	why string
}

// rank orders refusals by how close a node is to accepting the pod. The refusal of the closest node is reported.
type rank int

const (
	takes rank = iota
	short
	crowded
	volumeAway
	closed
	tainted
	unselected
)

// allows says whether a node may take such a pod, whatever runs there.
func (n *node) allows(spec *corev1.PodSpec) refusal {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return refusal{closed, "not ready: %s"}
		}
	}
	if n.Spec.Unschedulable && !toleratesCordon(spec) {
		return refusal{closed, "cordoned: %s"}
	}
	repels := func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}
	if taint, is := scheduling.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, spec.Tolerations, repels, true); is {
		if strings.HasPrefix(taint.Key, ofKubernetes) {
			return refusal{closed, fmt.Sprintf("%s: %%s", strings.TrimPrefix(taint.Key, ofKubernetes))}
		}
		return refusal{tainted, fmt.Sprintf("the taint %s is not tolerated on %%s", taint.ToString())}
	}
	if ok, err := nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity).Match(n.Node); !ok || err != nil {
		return refusal{unselected, "nodeSelector and affinity leave out %s"}
	}
	return refusal{}
}

// ofKubernetes begins the taints of nodes that cannot be used now: node.kubernetes.io/disk-pressure, say.
const ofKubernetes = "node.kubernetes.io/"

func toleratesCordon(spec *corev1.PodSpec) bool {
	taint := &corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	return scheduling.TolerationsTolerateTaint(klog.Background(), spec.Tolerations, taint, true)
}

// maxWaiting bounds how many pods that wait for a node are looked at.
const maxWaiting = 500

// seat puts the pods of others that wait for a node, and are not less important than the pool's, where there is space for them.
func seat(nodes []node, waiting []*corev1.Pod, pool *Pool, priority int32) {
	tried := 0
	for _, pod := range waiting {
		if pool.owns(pod) || scheduling.PodPriority(pod) < priority {
			continue
		}
		if tried++; tried > maxWaiting {
			return
		}
		need := needs(pod)
		best := -1
		for i := range nodes {
			n := &nodes[i]
			if n.free.short(need) == "" && n.allows(&pod.Spec).rank == takes &&
				(best < 0 || n.free[corev1.ResourceMemory] > nodes[best].free[corev1.ResourceMemory]) {
				best = i
			}
		}
		if best >= 0 {
			nodes[best].free.sub(need)
			nodes[best].pods = append(nodes[best].pods, pod)
		}
	}
}
