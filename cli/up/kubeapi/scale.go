// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// scalePaths say where a kind has its replicas.
type scalePaths struct{ spec, status, selector string }

// scaleResource is the scale subresource, as of apiextensions' registry/customresource, for
// typed kinds too.
type scaleResource struct {
	of      *resource
	paths   scalePaths
	group   schema.GroupVersion
	managed managedfields.ResourcePathMappings
}

var _ rest.Patcher = (*scaleResource)(nil)

func newScale(k *kind, paths *scalePaths) *scaleResource {
	path := fieldpath.Path{}
	for _, element := range splitPath(paths.spec) {
		path = append(path, fieldpath.PathElement{FieldName: &element})
	}
	return &scaleResource{k.main, *paths, k.gvk.GroupVersion(),
		managedfields.ResourcePathMappings{k.gvk.GroupVersion().String(): path}}
}

func (s *scaleResource) New() runtime.Object { return &autoscalingv1.Scale{} }
func (s *scaleResource) Destroy()            {}

func (s *scaleResource) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return autoscalingv1.SchemeGroupVersion.WithKind("Scale")
}

func (s *scaleResource) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	object, err := s.of.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	scale, found, err := s.scaleOf(object)
	if err == nil && !found {
		return nil, apierrors.NewInternalError(fmt.Errorf("the spec replicas field %q does not exist", s.paths.spec))
	}
	return scale, err
}

func (s *scaleResource) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	object, _, err := s.of.Update(ctx, name, &scaleInfo{info, s}, nil, func(ctx context.Context, object, old runtime.Object) error {
		now, _, err := s.scaleOf(object)
		if err != nil {
			return err
		}
		before, _, err := s.scaleOf(old)
		if err != nil || update == nil {
			return err
		}
		return update(ctx, now, before)
	}, false, options)
	if err != nil {
		return nil, false, err
	}
	scale, _, err := s.scaleOf(object)
	return scale, false, err
}

// scaleOf is an object's Scale, and whether it has replicas.
func (s *scaleResource) scaleOf(object runtime.Object) (*autoscalingv1.Scale, bool, error) {
	u, err := content(object)
	if err != nil {
		return nil, false, err
	}
	replicas, found, err := unstructured.NestedInt64(u.Object, splitPath(s.paths.spec)...)
	if err != nil {
		return nil, false, err
	}
	current, _, err := unstructured.NestedInt64(u.Object, splitPath(s.paths.status)...)
	if err != nil {
		return nil, false, err
	}
	scale := &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"},
		ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(),
			ResourceVersion: u.GetResourceVersion(), CreationTimestamp: u.GetCreationTimestamp()},
		Spec:   autoscalingv1.ScaleSpec{Replicas: int32(replicas)},  //nolint:gosec // the schema and validateScale bound it
		Status: autoscalingv1.ScaleStatus{Replicas: int32(current)}, //nolint:gosec // likewise
	}
	scale.Status.Selector, err = s.selectorOf(u)
	return scale, found, err
}

// selectorOf: a custom resource has it as text, a built-in kind as an object.
func (s *scaleResource) selectorOf(u *unstructured.Unstructured) (string, error) {
	if s.paths.selector == "" {
		return "", nil
	}
	value, _, err := unstructured.NestedFieldNoCopy(u.Object, splitPath(s.paths.selector)...)
	if err != nil {
		return "", err
	}
	switch v := value.(type) {
	case string:
		return v, nil
	case map[string]any:
		selector := &metav1.LabelSelector{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(v, selector); err != nil {
			return "", err
		}
		return metav1.FormatLabelSelector(selector), nil
	}
	return "", nil
}

// content is an object without a Go type. It shares nothing with a typed one.
func content(object runtime.Object) (*unstructured.Unstructured, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		return u, nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	return &unstructured.Unstructured{Object: fields}, err
}

// scaleInfo turns an update of a Scale into one of the object that it scales.
type scaleInfo struct {
	of    rest.UpdatedObjectInfo
	scale *scaleResource
}

func (i *scaleInfo) Preconditions() *metav1.Preconditions { return i.of.Preconditions() }

func (i *scaleInfo) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	u, err := content(old.DeepCopyObject())
	if err != nil {
		return nil, err
	}
	managed := managedfields.NewScaleHandler(u.GetManagedFields(), i.scale.group, i.scale.managed)
	before, found, err := i.scale.scaleOf(u)
	if err != nil {
		return nil, err
	}
	const none = -1 << 31
	if !found {
		before.Spec.Replicas = none // tells that it was not set before
	}
	if before.ManagedFields, err = managed.ToSubresource(); err != nil {
		return nil, err
	}
	object, err := i.of.UpdatedObject(ctx, before)
	if err != nil {
		return nil, err
	}
	after, ok := object.(*autoscalingv1.Scale)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("wrong object passed to Scale update: %v", object))
	}
	if after.Spec.Replicas == none {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the spec replicas field %q cannot be empty", i.scale.paths.spec))
	}
	if err := unstructured.SetNestedField(u.Object, int64(after.Spec.Replicas), splitPath(i.scale.paths.spec)...); err != nil {
		return nil, err
	}
	if after.ResourceVersion != "" {
		u.SetResourceVersion(after.ResourceVersion)
	}
	entries, err := managed.ToParent(after.ManagedFields)
	if err != nil {
		return nil, err
	}
	u.SetManagedFields(entries)
	if _, ok := old.(*unstructured.Unstructured); ok {
		return u, nil
	}
	typed := i.scale.of.newFunc()
	return typed, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed)
}
