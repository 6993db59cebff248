// SPDX-License-Identifier: Apache-2.0

// Package ceiling counts how many pods of a pool a cluster can give, before any of them is Pending.
//
//	ResourceQuotas, claims of the namespace ─┐
//	nodes, what runs on them, volumes ───────┴─► Space ─► Fit(pool) ─► Count{replicas, why}
//
// It is pure: the operator and `substorm plan` ask the same functions. It places pods one after the other on the nodes that a pod's
// template allows, as kube-scheduler does: by requests (CPU, memory, ephemeral storage, devices, huge pages, the number of pods), node
// selectors and affinity, taints, required (anti-)affinity to other pods, spread constraints with DoNotSchedule, and volumes. Pods that
// run stay where they are. Pods of others that wait for a node take their space first, unless their priority is lower.
//
// It does not know everything that kube-scheduler does: how many volumes a node may attach, how much a storage system still has, LimitRanges,
// resource claims (DRA), and pods that could be evicted in favor of others are not looked at. Its result is a bound for growth, and no promise.
package ceiling

import (
	corev1 "k8s.io/api/core/v1"
)

// Pool is one whose pods are counted.
type Pool struct {
	Name, Namespace string
	// Selector has the labels of its pods, which no other pods of the namespace have.
	Selector map[string]string
	Template corev1.PodTemplateSpec
	// Claim is the template of the claim that each pod of a StatefulSet has for its volume; nil: the pods have none.
	Claim *corev1.PersistentVolumeClaim
}

// Space is the known space for the pools of a namespace.
type Space struct {
	// Quotas are the ResourceQuotas of the namespace, and Claims its claims for volumes.
	Quotas []corev1.ResourceQuota
	Claims []corev1.PersistentVolumeClaim
	// Nodes is nil if they may not be read; Unread then says who lacks the permission, and what to do.
	Nodes  *Nodes
	Unread string
	// Pods are those of the pools.
	Pods []corev1.Pod
}
