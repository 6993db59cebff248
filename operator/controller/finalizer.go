// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/workload"
)

// finalizers keep the finalizers of Feeds and Sites as planned.
type finalizers struct {
	client   client.Client
	recorder recorder.EventRecorder
}

// keep adds or removes the finalizer of an object, and first reports what its deletion leaves behind. Only the metadata are read and
// written: the object may be one that cannot be decoded.
func (f finalizers) keep(ctx context.Context, kind string, o client.Object, d plan.Deletion) error {
	has := controllerutil.ContainsFinalizer(o, v1alpha1.FinalizerStream)
	if has == d.Finalizer || !has && o.GetDeletionTimestamp() != nil {
		return nil
	}
	if d.Left != "" {
		f.recorder.Eventf(o, nil, corev1.EventTypeWarning, v1alpha1.ReasonStreamLeft, "Delete", "%s", d.Left)
	}
	is := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: o.GetName(), Namespace: o.GetNamespace(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(), Finalizers: o.GetFinalizers(),
	}}
	is.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	was := is.DeepCopy()
	if d.Finalizer {
		controllerutil.AddFinalizer(is, v1alpha1.FinalizerStream)
	} else {
		controllerutil.RemoveFinalizer(is, v1alpha1.FinalizerStream)
	}
	err := f.client.Patch(ctx, is, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}), client.FieldOwner(workload.FieldOwner))
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
