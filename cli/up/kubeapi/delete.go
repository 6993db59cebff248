// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Delete deletes an object, or marks it deleted where finalizers hold it. There is no
// grace: no kubelet ends anything.
func (r *resource) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	if options == nil {
		options = metav1.NewDeleteOptions(0)
	}
	key := r.key(ctx, name)
	if r.table == r.spaces.resource.table && slices.Contains(lastingNamespaces, name) {
		return nil, false, apierrors.NewForbidden(r.name, name, errors.New("this namespace may not be deleted"))
	}
	for {
		object, version, err := r.read(key)
		if err != nil {
			return nil, false, err
		}
		if _, _, err := rest.BeforeDelete(r.strategy, ctx, object, options); err != nil {
			return nil, false, err
		}
		if validate != nil {
			if err := validate(ctx, object.DeepCopyObject()); err != nil {
				return nil, false, err
			}
		}
		accessor, err := meta.Accessor(object)
		if err != nil {
			return nil, false, err
		}
		accessor.SetFinalizers(r.finalizers(accessor, options))
		var result runtime.Object
		held := len(accessor.GetFinalizers()) > 0
		if held {
			markDeleted(accessor)
			result, err = r.write(key, version, object, options.DryRun)
		} else if _, err = r.write(key, version, nil, options.DryRun); err == nil {
			result = r.deleted(accessor)
		}
		if !errors.Is(err, errChanged) {
			return result, !held, err
		}
	}
}

func (r *resource) deleted(accessor metav1.Object) *metav1.Status {
	return &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{
		Name: accessor.GetName(), Group: r.name.Group, Kind: r.name.Resource, UID: accessor.GetUID()}}
}

// finalizers are those of a deleted object, with the garbage collector's as the options ask.
// A Namespace keeps one until it is empty.
func (r *resource) finalizers(accessor metav1.Object, options *metav1.DeleteOptions) []string {
	var orphan, foreground bool
	old := options.OrphanDependents //nolint:staticcheck // clients may still send it
	switch policy := options.PropagationPolicy; {
	case old != nil:
		orphan = *old
	case policy != nil:
		orphan, foreground = *policy == metav1.DeletePropagationOrphan, *policy == metav1.DeletePropagationForeground
	default:
		orphan = slices.Contains(accessor.GetFinalizers(), metav1.FinalizerOrphanDependents)
		foreground = !orphan && slices.Contains(accessor.GetFinalizers(), metav1.FinalizerDeleteDependents)
	}
	kept := slices.DeleteFunc(slices.Clone(accessor.GetFinalizers()), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	if orphan {
		kept = append(kept, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		kept = append(kept, metav1.FinalizerDeleteDependents)
	}
	if r.table == r.spaces.resource.table && !r.spaces.empty(accessor.GetName()) && !slices.Contains(kept, namespaceFinalizer) {
		kept = append(kept, namespaceFinalizer)
	}
	return kept
}

// DeleteCollection deletes what is selected, one after the other.
func (r *resource) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, listOptions *internalversion.ListOptions) (runtime.Object, error) {
	list, err := r.List(ctx, listOptions)
	if err != nil {
		return nil, err
	}
	err = meta.EachListItem(list, func(object runtime.Object) error {
		accessor, err := meta.Accessor(object)
		if err != nil {
			return err
		}
		_, _, err = r.Delete(inNamespace(ctx, accessor.GetNamespace()), accessor.GetName(), validate, options.DeepCopy())
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	return list, err
}
