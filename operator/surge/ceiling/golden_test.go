// SPDX-License-Identifier: Apache-2.0

package ceiling_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/substorm/substorm/operator/surge/ceiling"
	"github.com/substorm/substorm/operator/surge/surgetest"
)

// look is what a test's .in.yaml holds: a cluster, and pools that are counted one after the other, each beside the ones before it.
type look struct {
	Nodes []corev1.Node `json:"nodes"`
	// Unread: the operator may not read nodes, classes and volumes.
	Unread  bool                           `json:"unread"`
	Classes []storagev1.StorageClass       `json:"classes"`
	Volumes []corev1.PersistentVolume      `json:"volumes"`
	Pods    []corev1.Pod                   `json:"pods"`
	Quotas  []corev1.ResourceQuota         `json:"quotas"`
	Claims  []corev1.PersistentVolumeClaim `json:"claims"`
	Pools   []ceiling.Pool                 `json:"pools"`
	// Most is how far pods are counted.
	Most int32 `json:"most"`
}

func TestGolden(t *testing.T) {
	surgetest.Golden(t, func(_ *testing.T, l *look) any {
		space := &ceiling.Space{Quotas: l.Quotas, Claims: l.Claims, Pods: l.Pods, Unread: "the operator may not read nodes"}
		if !l.Unread {
			space.Nodes = ceiling.NewNodes(l.Nodes, l.Pods, l.Classes, l.Volumes)
		}
		told := map[string]any{}
		for i := range l.Pools {
			fits := space.Fit(&l.Pools[i], l.Most)
			told[l.Pools[i].Name] = fits
			space = space.With(&l.Pools[i], fits.Replicas)
		}
		return told
	})
}
