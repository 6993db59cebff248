// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// builtinStrategy is the strategy of kinds whose rules are in Kubernetes' own code, which is not available as a library: it validates
// names alone.
type builtinStrategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	kind       schema.GroupVersionKind
	namespaced bool
	status     bool // the kind has a status subresource
	generation bool // the kind counts changes of its spec
}

func (s builtinStrategy) NamespaceScoped() bool { return s.namespaced }

func (s builtinStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if !s.status {
		return nil
	}
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(s.kind.GroupVersion().String()): fieldpath.NewSet(fieldpath.MakePathOrDie("status"))}
}

func (s builtinStrategy) PrepareForCreate(_ context.Context, object runtime.Object) {
	if s.status {
		part(object, "Status").SetZero()
	}
	switch o := object.(type) {
	case *corev1.Secret:
		mergeStringData(o)
	case *corev1.Namespace:
		o.Status.Phase = corev1.NamespaceActive
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		o.Labels[corev1.LabelMetadataName] = o.Name
	}
	if accessor, err := meta.Accessor(object); err == nil && s.generation {
		accessor.SetGeneration(1)
	}
}

func (s builtinStrategy) PrepareForUpdate(_ context.Context, object, old runtime.Object) {
	if s.status {
		part(object, "Status").Set(part(old.DeepCopyObject(), "Status"))
	}
	if secret, ok := object.(*corev1.Secret); ok {
		mergeStringData(secret)
	}
	if !s.generation || apiequality.Semantic.DeepEqual(part(object, "Spec").Interface(), part(old, "Spec").Interface()) {
		return
	}
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetGeneration(accessor.GetGeneration() + 1)
	}
}

// mergeStringData is what the API server does to Secrets. A Secret without a type is Opaque.
func mergeStringData(secret *corev1.Secret) {
	if len(secret.StringData) > 0 && secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	for key, value := range secret.StringData {
		secret.Data[key] = []byte(value)
	}
	secret.StringData = nil
	if secret.Type == "" {
		secret.Type = corev1.SecretTypeOpaque
	}
}

func (builtinStrategy) Validate(context.Context, runtime.Object) field.ErrorList { return nil }
func (builtinStrategy) ValidateUpdate(_ context.Context, object, old runtime.Object) field.ErrorList {
	secret, ok := object.(*corev1.Secret)
	before, ok2 := old.(*corev1.Secret)
	if ok && ok2 && before.Immutable != nil && *before.Immutable &&
		!(secret.Immutable != nil && *secret.Immutable && apiequality.Semantic.DeepEqual(secret.Data, before.Data)) {
		return field.ErrorList{field.Forbidden(field.NewPath("data"), "field is immutable when `immutable` is set")}
	}
	return nil
}
func (builtinStrategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }
func (builtinStrategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}
func (builtinStrategy) Canonicalize(runtime.Object)                   {}
func (builtinStrategy) AllowCreateOnUpdate(context.Context) bool      { return false }
func (builtinStrategy) AllowUnconditionalUpdate(context.Context) bool { return true }

// builtinStatus changes the status alone.
type builtinStatus struct{ builtinStrategy }

func (s builtinStatus) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(s.kind.GroupVersion().String()): fieldpath.NewSet(
			fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("metadata"))}
}

func (s builtinStatus) PrepareForUpdate(_ context.Context, object, old runtime.Object) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return
	}
	managed, status := accessor.GetManagedFields(), part(object.DeepCopyObject(), "Status")
	reflect.ValueOf(object).Elem().Set(reflect.ValueOf(old.DeepCopyObject()).Elem())
	part(object, "Status").Set(status)
	accessor.SetManagedFields(managed)
}

// part is a field of a typed object, which its kind has.
func part(object runtime.Object, name string) reflect.Value {
	return reflect.ValueOf(object).Elem().FieldByName(name)
}
