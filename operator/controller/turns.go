// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
)

// A pool that waits for its turn with a new image is woken by changes of the others, see plan.GatewayView.WaitsForTurn.

// turnChanges: a StatefulSet has another image, or lacks something else of its plan.
var turnChanges = builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return plan.Turn(e.ObjectOld.(*appsv1.StatefulSet)) != plan.Turn(e.ObjectNew.(*appsv1.StatefulSet))
}})

// standstillChanges: a pool began or ceased to stand still. Others do not wait for a pool that needs a correction by its owner.
var standstillChanges = builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return plan.StandsStill(e.ObjectOld.(*v1alpha1.IngestGateway)) != plan.StandsStill(e.ObjectNew.(*v1alpha1.IngestGateway))
}})

// waitForTurn names the pools of a namespace that may wait: those whose pods run another image than the operator's.
func (r *gatewayReconciler) waitForTurn(ctx context.Context, o client.Object) []reconcile.Request {
	var sets appsv1.StatefulSetList
	if err := r.client.List(ctx, &sets, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var all []reconcile.Request
	for i := range sets.Items {
		owner := metav1.GetControllerOf(&sets.Items[i])
		if owner != nil && owner.Kind == kindIngestGateway && plan.HasAnotherImage(&sets.Items[i], r.image) {
			all = append(all, request(o.GetNamespace(), owner.Name))
		}
	}
	return all
}
