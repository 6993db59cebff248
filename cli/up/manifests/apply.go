// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// fieldOwner owns what files declare.
const fieldOwner = client.FieldOwner("substorm-up")

// labelFromFile is on objects that a file declares: one that no file declares any more is deleted. Objects that kubectl applied stay.
const labelFromFile = "substorm.dev/from-file"

// Apply has the API server hold what files declare, and removes what files declared before and none does now: the resources, never an
// observation. Each change is logged. It returns what was created or changed. An error of one object does not keep the others from being
// applied; the returned error names all objects with errors.
func Apply(ctx context.Context, c client.Client, objects []*Object, log *slog.Logger) (changed []*Object, err error) {
	var errs []error
	declared := map[string]bool{}
	for _, o := range inOrder(objects) {
		declared[key(o.Unstructured)] = true
		differs, err := apply(ctx, c, o, log)
		if err != nil {
			errs = append(errs, err)
		}
		if differs {
			changed = append(changed, o)
		}
	}
	return changed, errors.Join(append(errs, prune(ctx, c, declared, log))...)
}

// SiteBefore is the Site that was declared when files were last applied; nil for none.
func SiteBefore(ctx context.Context, c client.Client) (*unstructured.Unstructured, error) {
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Site"))
	if err := c.List(ctx, &list, client.MatchingLabels{labelFromFile: "true"}); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if list.Items[i].GetDeletionTimestamp() == nil {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// inOrder puts Namespaces and Secrets before what names them, and Sites before what is of them.
func inOrder(objects []*Object) []*Object {
	rank := func(o *Object) int {
		switch o.GetKind() {
		case "Namespace":
			return 0
		case "Secret":
			return 1
		case "Site":
			return 2
		default:
			return 3
		}
	}
	var all []*Object
	for r := range 4 {
		for _, o := range objects {
			if rank(o) == r {
				all = append(all, o)
			}
		}
	}
	return all
}

func key(o *unstructured.Unstructured) string {
	return o.GroupVersionKind().GroupKind().String() + "/" + o.GetNamespace() + "/" + o.GetName()
}

func apply(ctx context.Context, c client.Client, o *Object, log *slog.Logger) (changed bool, err error) {
	wanted := encoded(o.Unstructured)
	labels := wanted.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[labelFromFile] = "true"
	wanted.SetLabels(labels)

	current := &unstructured.Unstructured{}
	current.SetGroupVersionKind(o.GroupVersionKind())
	err = c.Get(ctx, client.ObjectKeyFromObject(o.Unstructured), current)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("%s: %w", o, err)
	}
	before := current.GetResourceVersion()
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), fieldOwner, client.ForceOwnership); err != nil {
		return false, o.refused(err)
	}
	if err := dropUnowned(ctx, c, wanted, log); err != nil {
		return false, fmt.Errorf("%s:%d: %w", o.File, o.Line, err)
	}
	changed = wanted.GetResourceVersion() != before
	if changed {
		log.Info("applied", "kind", o.GetKind(), "name", o.GetName(), "file", o.File)
	}
	return changed, nil
}

// plain is an error of the API server in plain words.
type plain struct{ error }

func (p plain) Error() string { return kube.Plain(p.error.Error()) }
func (p plain) Unwrap() error { return p.error }

// Problems are the lines of what is wrong, one for each thing.
func Problems(err error) []string {
	if err == nil {
		return nil
	}
	var all []string
	if many, ok := err.(interface{ Unwrap() []error }); ok { // of errors.Join itself
		for _, one := range many.Unwrap() {
			all = append(all, Problems(one)...)
		}
		return all
	}
	return []string{err.Error()}
}

// prunable are the kinds whose resources are removed with their files. A Namespace stays: it may hold others'.
func prunable() []schema.GroupVersionKind {
	all := []schema.GroupVersionKind{{Version: "v1", Kind: "Secret"}}
	for _, kind := range []string{"MirrorPartner", "FeedConsumer", "Feed", "Instrument", "FeedServer", "IngestGateway", "Site"} {
		all = append(all, v1alpha1.GroupVersion.WithKind(kind))
	}
	return all
}

func prune(ctx context.Context, c client.Client, declared map[string]bool, log *slog.Logger) error {
	var errs []error
	for _, kind := range prunable() {
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(kind)
		if err := c.List(ctx, &list, client.MatchingLabels{labelFromFile: "true"}); err != nil {
			errs = append(errs, err)
			continue
		}
		for i := range list.Items {
			o := &list.Items[i]
			if declared[key(o)] || o.GetDeletionTimestamp() != nil {
				continue
			}
			if err := client.IgnoreNotFound(c.Delete(ctx, o)); err != nil {
				errs = append(errs, err)
				continue
			}
			log.Info("deleted, since no file declares it any more; what it received stays", "kind", kind.Kind, "name", o.GetName())
		}
	}
	return errors.Join(errs...)
}
