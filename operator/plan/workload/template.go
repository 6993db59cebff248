// SPDX-License-Identifier: Apache-2.0

package workload

import corev1 "k8s.io/api/core/v1"

// Template returns the template of the pool's pods, for a count of the pods that a cluster has space for.
func (p Pool) Template() *corev1.PodTemplateSpec {
	return applied[corev1.PodTemplateSpec](p.podTemplate())
}

// Claim returns the claim that each of these pods makes of a volume.
func (p Pool) Claim() *corev1.PersistentVolumeClaim {
	return applied[corev1.PersistentVolumeClaim](p.volumeClaim())
}

// Template is Pool.Template of a FeedServer.
func (s FeedServer) Template() *corev1.PodTemplateSpec {
	return applied[corev1.PodTemplateSpec](s.deployment(0, s.podSpec(feedDrain, s.mounts(), s.container())).Spec.Template)
}
