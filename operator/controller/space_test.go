// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/workload"
)

// TestHardwareLimited: a FeedServer has as many pods as a ResourceQuota allows and its nodes have space for, and says why there are not more; with a
// larger node it has all. Pods that run stay when the node shrinks. Quotas and nodes come to the operator by different watches, so the later change
// of the two may be seen first: each step waits for what follows from it before the next one.
func TestHardwareLimited(t *testing.T) {
	w := newWorld(t)
	w.readNodes = true
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.namespace, Labels: map[string]string{"world": w.namespace}}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: w.namespace, Effect: corev1.TaintEffectNoSchedule}}}}
	w.create(node)
	t.Cleanup(func() { _ = w.Delete(context.Background(), node) })
	memory := func(size string) {
		t.Helper()
		node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse(size), "pods": resource.MustParse("110")}
		node.Status.Capacity = node.Status.Allocatable
		if err := w.Status().Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	memory("1200Mi") // a feed server requests 256Mi
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "team", Namespace: w.namespace}}
	allow := func(size string) { quota.Spec.Hard = corev1.ResourceList{"requests.memory": resource.MustParse(size)} }
	allow("512Mi")
	w.create(quota)
	w.startFeedWorld()
	server := w.object("FeedServer", "hub")
	patch := fmt.Sprintf(`{"spec":{"replicas":5,"podTemplate":{"tolerations":[{"operator":"Exists"}],"nodeSelector":{"world":%q}}}}`, w.namespace)
	if err := w.Patch(t.Context(), server, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
	limited := func(words ...string) {
		t.Helper()
		w.awaits("FeedServer", "hub", v1alpha1.ConditionHardwareLimited, "True/"+v1alpha1.ReasonPodsDoNotFit, words...)
	}
	w.awaitServers(2)
	limited("5 pods", "space for 2", "ResourceQuota team allows 2")
	allow("768Mi")
	if err := w.Update(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	w.awaitServers(3)
	limited("space for 3", "ResourceQuota team allows 3")
	w.remove(quota)
	w.awaitServers(4)
	limited("space for 4", "memory is short on "+w.namespace, "256Mi")
	memory("8Gi")
	w.awaitServers(5)
	eventually(t, "nothing limits it", func() error {
		server := &v1alpha1.FeedServer{}
		if err := w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "hub"}, server); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(server.Status.Conditions, v1alpha1.ConditionHardwareLimited); c != nil {
			return fmt.Errorf("%s", c.Message)
		}
		return nil
	})
	memory("300Mi")
	limited("space for 1")
	w.awaitServers(5)
}

// awaitServers waits until the Deployment of the FeedServer hub has so many pods.
func (w *world) awaitServers(want int32) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%d feed servers", want), func() error {
		var d appsv1.Deployment
		if err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: workload.FeedServerName("hub")}, &d); err != nil {
			return err
		}
		if *d.Spec.Replicas != want {
			return fmt.Errorf("%d pods are asked for", *d.Spec.Replicas)
		}
		return nil
	})
}
