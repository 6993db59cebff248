// SPDX-License-Identifier: Apache-2.0

package ceiling

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/volume"
)

// noProvisioner is the provisioner of classes whose volumes are created by hand.
const noProvisioner = "kubernetes.io/no-provisioner"

// isDefault is the annotation of the class of claims that name none.
const isDefault = "storageclass.kubernetes.io/is-default-class"

// claimName is the name of the claim of a pod.
func (p *Pool) claimName(ordinal int32) string {
	return p.Claim.Name + "-" + p.Name + "-" + strconv.Itoa(int(ordinal))
}

// claimOf returns the claim that a pod has; nil: none yet.
func (s *Space) claimOf(pool *Pool, ordinal int32) *corev1.PersistentVolumeClaim {
	i := slices.IndexFunc(s.Claims, func(c corev1.PersistentVolumeClaim) bool { return c.Name == pool.claimName(ordinal) })
	if i < 0 {
		return nil
	}
	return &s.Claims[i]
}

// supply is where new volumes of a pool come from.
type supply struct {
	all   *Nodes
	claim *corev1.PersistentVolumeClaim
	class *storagev1.StorageClass
	// name of the class; empty: none is named, and none is the default.
	name string
	// free are the volumes without a claim, and taken those of them that were assigned here.
	free  []*corev1.PersistentVolume
	taken map[string]*corev1.PersistentVolume
}

func (n *Nodes) supplyFor(pool *Pool) *supply {
	if pool.Claim == nil {
		return nil
	}
	s := &supply{all: n, claim: pool.Claim.DeepCopy(), taken: map[string]*corev1.PersistentVolume{}}
	s.name = volume.GetPersistentVolumeClaimClass(s.claim)
	for i := range n.classes {
		c := &n.classes[i]
		if pool.Claim.Spec.StorageClassName == nil && c.Annotations[isDefault] == "true" && (s.class == nil || newer(c, s.class)) || s.name != "" && c.Name == s.name {
			s.class = c
		}
	}
	if s.class != nil {
		s.name = s.class.Name
	}
	s.claim.Spec.StorageClassName = &s.name
	s.claim.Namespace = pool.Namespace
	for _, v := range n.volumes {
		if v.Status.Phase == corev1.VolumeAvailable && v.Spec.ClaimRef == nil {
			s.free = append(s.free, v)
		}
	}
	return s
}

// newer: of several default classes the newest is taken.
func newer(a, b *storagev1.StorageClass) bool {
	return b.CreationTimestamp.Before(&a.CreationTimestamp)
}

// provisions says whether volumes are made when they are asked for.
func (s *supply) provisions() bool {
	return s.class != nil && s.class.Provisioner != noProvisioner && s.class.Provisioner != ""
}

// reaches says whether a pod with this claim can have its volume on a node; found is the free one that it would take, if it takes one.
func (s *supply) reaches(n *node, claim *corev1.PersistentVolumeClaim) (found *corev1.PersistentVolume, why refusal) {
	if s == nil {
		return nil, refusal{}
	}
	if claim != nil && claim.Spec.VolumeName != "" {
		return nil, s.bound(n, claim)
	}
	if s.provisions() {
		if !inTopology(s.class, n) {
			return nil, refusal{volumeAway, fmt.Sprintf("StorageClass %s makes no volumes for %%s", s.name)}
		}
		return nil, refusal{}
	}
	found, err := volume.FindMatchingVolume(s.claim, s.free, n.Node, s.taken, false, true)
	if err != nil || found == nil {
		return nil, refusal{volumeAway, s.none()}
	}
	return found, refusal{}
}

// bound: a volume that is there may be reached from some nodes only.
func (s *supply) bound(n *node, claim *corev1.PersistentVolumeClaim) refusal {
	i := slices.IndexFunc(s.all.volumes, func(v *corev1.PersistentVolume) bool { return v.Name == claim.Spec.VolumeName })
	if i >= 0 && volume.CheckNodeAffinity(s.all.volumes[i], n.Labels) != nil {
		return refusal{volumeAway, fmt.Sprintf("the volume of claim %s is not reached from %%s", claim.Name)}
	}
	return refusal{}
}

// none explains what is missing.
func (s *supply) none() string {
	size := s.claim.Spec.Resources.Requests[corev1.ResourceStorage]
	switch {
	case s.name == "":
		return "no StorageClass is the cluster's default, and spec.storage names none, for %s"
	case s.class == nil:
		return fmt.Sprintf("StorageClass %s does not exist, and no free PersistentVolume names it, for %%s", s.name)
	default:
		return fmt.Sprintf("no PersistentVolume of StorageClass %s with %s is free for %%s", s.name, size.String())
	}
}

// inTopology says whether a class makes volumes for a node.
func inTopology(class *storagev1.StorageClass, n *node) bool {
	if len(class.AllowedTopologies) == 0 || class.VolumeBindingMode == nil || *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer {
		return true
	}
	return slices.ContainsFunc(class.AllowedTopologies, func(t corev1.TopologySelectorTerm) bool {
		return !slices.ContainsFunc(t.MatchLabelExpressions, func(e corev1.TopologySelectorLabelRequirement) bool {
			return !slices.Contains(e.Values, n.Labels[e.Key])
		})
	})
}
