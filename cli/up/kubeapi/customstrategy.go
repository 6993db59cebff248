// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/operation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage/names"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// customStrategy is what apiextensions-apiserver's registry/customresource does, in its
// order, so that messages and their order are the API server's. That package itself imports
// etcd's client.
type customStrategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	kind         schema.GroupVersionKind
	namespaced   bool
	status       bool
	scale        *scalePaths
	structural   *structuralschema.Structural
	schema       validation.SchemaValidator
	statusSchema validation.SchemaValidator
	rules        *rules
	selectable   []selectable
}

func (s *customStrategy) NamespaceScoped() bool                       { return s.namespaced }
func (*customStrategy) Canonicalize(runtime.Object)                   {}
func (*customStrategy) AllowCreateOnUpdate(context.Context) bool      { return false }
func (*customStrategy) AllowUnconditionalUpdate(context.Context) bool { return false }

func (s *customStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if !s.status {
		return map[fieldpath.APIVersion]*fieldpath.Set{}
	}
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(s.kind.GroupVersion().String()): fieldpath.NewSet(fieldpath.MakePathOrDie("status"))}
}

func (s *customStrategy) PrepareForCreate(_ context.Context, object runtime.Object) {
	u := object.(*unstructured.Unstructured)
	if s.status {
		delete(u.Object, "status")
	}
	u.SetGeneration(1)
}

func (s *customStrategy) PrepareForUpdate(_ context.Context, object, old runtime.Object) {
	u, before := object.(*unstructured.Unstructured), old.(*unstructured.Unstructured)
	if s.status {
		if status, ok := before.Object["status"]; ok {
			u.Object["status"] = status
		} else {
			delete(u.Object, "status")
		}
	}
	if !apiequality.Semantic.DeepEqual(withoutMetadata(u.Object), withoutMetadata(before.Object)) {
		u.SetGeneration(before.GetGeneration() + 1)
	}
}

func withoutMetadata(object map[string]any) map[string]any {
	rest := maps.Clone(object)
	delete(rest, "metadata")
	return rest
}

func (s *customStrategy) Validate(ctx context.Context, object runtime.Object) field.ErrorList {
	u := object.(*unstructured.Unstructured)
	errs := s.validateKind(u)
	if len(errs) == 0 {
		errs = append(errs, s.validateMeta(ctx, u, nil)...)
		errs = append(errs, validation.ValidateCustomResource(nil, u.Object, s.schema)...)
		errs = append(errs, s.validateReplicas(u)...)
		errs = append(errs, s.validateScaleStatus(u)...)
	}
	errs = append(errs, objectmeta.Validate(ctx, nil, u.Object, s.structural, false)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, u.Object)...)
	return append(errs, s.rules.created(ctx, errs, u)...)
}

func (s *customStrategy) ValidateUpdate(ctx context.Context, object, old runtime.Object) field.ErrorList {
	u, before := object.(*unstructured.Unstructured), old.(*unstructured.Unstructured)
	both := common.NewCorrelatedObject(u.Object, before.Object, &model.Structural{Structural: s.structural})
	errs := s.validateKind(u)
	if len(errs) == 0 {
		errs = append(errs, s.validateMeta(ctx, u, before)...)
		errs = append(errs, validation.ValidateCustomResourceUpdate(nil, u.Object, before.Object, s.schema, validation.WithRatcheting(both))...)
		errs = append(errs, s.validateReplicas(u)...)
		errs = append(errs, s.validateScaleStatus(u)...)
	}
	errs = append(errs, objectmeta.Validate(ctx, nil, u.Object, s.structural, false)...)
	errs = append(errs, s.validateLists(u, before)...)
	return append(errs, s.rules.updated(ctx, errs, u, before, both)...)
}

// validateLists lets pass what was wrong before.
func (s *customStrategy) validateLists(u, before *unstructured.Unstructured) field.ErrorList {
	if len(listtype.ValidateListSetsAndMaps(nil, s.structural, before.Object)) > 0 {
		return nil
	}
	return listtype.ValidateListSetsAndMaps(nil, s.structural, u.Object)
}

func (s *customStrategy) validateKind(u *unstructured.Unstructured) field.ErrorList {
	var errs field.ErrorList
	if u.GetKind() != s.kind.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), u.GetKind(), fmt.Sprintf("must be %v", s.kind.Kind)))
	}
	if version := s.kind.GroupVersion().String(); u.GetAPIVersion() != version {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), u.GetAPIVersion(), fmt.Sprintf("must be %v", version)))
	}
	return errs
}

func (s *customStrategy) validateMeta(ctx context.Context, u, before *unstructured.Unstructured) field.ErrorList {
	now, errs := objectMeta(u)
	if len(errs) > 0 {
		return errs
	}
	path, declarative := field.NewPath("metadata"), utilfeature.DefaultFeatureGate.Enabled(features.DeclarativeValidationBeta)
	if before == nil {
		return apivalidation.ValidateObjectMetaDeclaratively(ctx, operation.Create, now, nil, s.namespaced, apivalidation.NameIsDNSSubdomain, path, declarative)
	}
	old, errs := objectMeta(before)
	if len(errs) > 0 {
		return errs
	}
	return apivalidation.ValidateObjectMetaDeclaratively(ctx, operation.Update, now, old, s.namespaced, nil, path, declarative)
}

func objectMeta(u *unstructured.Unstructured) (*metav1.ObjectMeta, field.ErrorList) {
	result := &metav1.ObjectMeta{}
	raw := u.Object["metadata"]
	if raw == nil {
		return result, nil
	}
	fields, ok := raw.(map[string]any)
	if !ok {
		return nil, field.ErrorList{field.Invalid(field.NewPath("metadata"), raw, fmt.Sprintf("expected map[string]interface{}, got %T", raw))}
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, result); err != nil {
		return nil, field.ErrorList{field.Invalid(field.NewPath("metadata"), raw, err.Error())}
	}
	return result, nil
}

func (s *customStrategy) validateReplicas(u *unstructured.Unstructured) field.ErrorList {
	if s.scale == nil {
		return nil
	}
	return validateCount(u, s.scale.spec)
}

func (s *customStrategy) validateScaleStatus(u *unstructured.Unstructured) field.ErrorList {
	if s.scale == nil {
		return nil
	}
	errs := validateCount(u, s.scale.status)
	if s.scale.selector != "" {
		if value, _, err := unstructured.NestedString(u.Object, splitPath(s.scale.selector)...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(s.scale.selector), value, err.Error()))
		}
	}
	return errs
}

func validateCount(u *unstructured.Unstructured, path string) field.ErrorList {
	n, _, err := unstructured.NestedInt64(u.Object, splitPath(path)...)
	var message string
	switch {
	case err != nil:
		message = err.Error()
	case n < 0:
		message = "should be a non-negative integer"
	case n > math.MaxInt32:
		message = fmt.Sprintf("should be less than or equal to %v", math.MaxInt32)
	default:
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath(path), n, message)}
}

func (*customStrategy) WarningsOnCreate(_ context.Context, object runtime.Object) []string {
	return finalizerWarnings(object.(*unstructured.Unstructured).GetFinalizers(), nil)
}

func (*customStrategy) WarningsOnUpdate(_ context.Context, object, old runtime.Object) []string {
	return finalizerWarnings(object.(*unstructured.Unstructured).GetFinalizers(), old.(*unstructured.Unstructured).GetFinalizers())
}

func finalizerWarnings(now, before []string) []string {
	var warnings []string
	known := append(slices.Clone(before), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents, string(corev1.FinalizerKubernetes))
	for _, name := range slices.Sorted(slices.Values(now)) {
		if slices.Contains(before, name) {
			continue
		}
		for _, message := range utilvalidation.IsQualifiedName(name) {
			warnings = append(warnings, fmt.Sprintf("metadata.finalizers: %q: %s", name, message))
		}
		if strings.Contains(name, "/") || slices.Contains(known, name) {
			continue
		}
		path := ""
		if strings.Contains(name, ".") {
			path = " including a path (/)"
		}
		warnings = append(warnings, fmt.Sprintf(
			"metadata.finalizers: %q: prefer a domain-qualified finalizer name%s to avoid accidental conflicts with other finalizer writers", name, path))
	}
	return warnings
}

// customStatus changes the status alone.
type customStatus struct{ *customStrategy }

func (s customStatus) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(s.kind.GroupVersion().String()): fieldpath.NewSet(
			fieldpath.MakePathOrDie("metadata"), fieldpath.MakePathOrDie("spec"))}
}

func (s customStatus) PrepareForUpdate(_ context.Context, object, old runtime.Object) {
	u := object.(*unstructured.Unstructured)
	status, ok := u.Object["status"]
	managed := u.GetManagedFields()
	*u = *old.(*unstructured.Unstructured).DeepCopy()
	u.SetManagedFields(managed)
	if ok {
		u.Object["status"] = status
	} else {
		delete(u.Object, "status")
	}
}

func (s customStatus) ValidateUpdate(ctx context.Context, object, old runtime.Object) field.ErrorList {
	u, before := object.(*unstructured.Unstructured), old.(*unstructured.Unstructured)
	both := common.NewCorrelatedObject(u.Object, before.Object, &model.Structural{Structural: s.structural})
	errs := s.validateKind(u)
	if len(errs) == 0 {
		errs = append(errs, s.validateMeta(ctx, u, before)...)
		if status, ok := u.Object["status"]; ok {
			errs = append(errs, validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, before.Object["status"], s.statusSchema,
				validation.WithRatcheting(both.Key("status")))...)
		}
		errs = append(errs, s.validateScaleStatus(u)...)
	}
	errs = append(errs, s.validateLists(u, before)...)
	return append(errs, s.rules.statusUpdated(ctx, errs, u, before, both)...)
}

func (customStatus) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}
