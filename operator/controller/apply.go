// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

// applier brings objects into their planned state, and leaves those of other owners alone.
type applier struct {
	client client.Client
	// reader reads past the cache.
	reader client.Reader
	now    func() time.Time

	mu sync.Mutex
	// ours are the owners of objects that were seen to be theirs.
	ours map[ownedObject]ownerOf
	// applied is the configuration that was last applied of each object.
	applied map[ownedObject]applied
}

type ownedObject struct {
	kind string
	types.NamespacedName
}

// ownerOf is who has an object made.
type ownerOf struct {
	uid types.UID
	types.NamespacedName
}

func asOwner(o client.Object) ownerOf { return ownerOf{o.GetUID(), client.ObjectKeyFromObject(o)} }

// forget drops the known state of the objects of an owner that is gone. An owner of another kind with the same name determines its own
// state again.
func (r *applier) forget(owner types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.ours, func(_ ownedObject, of ownerOf) bool { return of.NamespacedName == owner })
	maps.DeleteFunc(r.applied, func(_ ownedObject, is applied) bool { return is.owner.NamespacedName == owner })
}

func newApplier(c client.Client, reader client.Reader, now func() time.Time) *applier {
	return &applier{client: c, reader: reader, now: now, ours: map[ownedObject]ownerOf{}, applied: map[ownedObject]applied{}}
}

// applyObject applies one object of an owner, unless it is already as it should be. A refusal by the API server is a finding too; another
// object of that name is notOurs.
func (r *applier) applyObject(ctx context.Context, owner client.Object, o workload.Object, notOurs func(kind, name string) finding.Finding) (*finding.Finding, error) {
	key := ownedObject{o.Kind, types.NamespacedName{Namespace: owner.GetNamespace(), Name: o.Name}}
	want, err := json.Marshal(o.Apply)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", o.Kind, key.NamespacedName, err)
	}
	if stands, err := r.isApplied(ctx, owner, key, want); stands || err != nil {
		return nil, err
	}
	ours, err := r.isOurs(ctx, owner, key)
	if err != nil {
		return nil, err
	}
	if !ours {
		return new(notOurs(o.Kind, o.Name)), nil
	}
	err = r.client.Apply(ctx, o.Apply, client.FieldOwner(workload.FieldOwner), client.ForceOwnership)
	if isRefused(err) {
		return new(plan.ApplyFailed(o.Kind, o.Name, err.Error())), fmt.Errorf("apply %s %s: %w", o.Kind, key.NamespacedName, err)
	}
	if err != nil {
		return nil, fmt.Errorf("apply %s %s: %w", o.Kind, key.NamespacedName, err)
	}
	r.mu.Lock()
	r.applied[key] = applied{owner: asOwner(owner), digest: sha256.Sum256(want), at: r.now()}
	r.mu.Unlock()
	return nil, nil
}

// amend has an object of an owner hold some fields, where there is one, and leaves its other fields as they are.
func (r *applier) amend(ctx context.Context, owner client.Object, o workload.Object) error {
	key := ownedObject{o.Kind, types.NamespacedName{Namespace: owner.GetNamespace(), Name: o.Name}}
	want, err := json.Marshal(o.Apply)
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", o.Kind, key.NamespacedName, err)
	}
	object, err := r.cached(ctx, o.Kind, key.NamespacedName)
	if err != nil || object == nil || !metav1.IsControlledBy(object, owner) {
		return err
	}
	if holds, err := holdsAll(object, want); holds || err != nil {
		return err
	}
	err = r.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, want), client.FieldOwner(workload.FieldOwner))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("change %s %s: %w", o.Kind, key.NamespacedName, err)
	}
	r.mu.Lock()
	delete(r.applied, key) // it no longer has the applied configuration
	r.mu.Unlock()
	return nil
}

// remove removes objects where they are the owner's. Secrets with credentials go with the owner.
func (r *applier) remove(ctx context.Context, owner client.Object, objects []workload.Object) error {
	for _, o := range objects {
		object, err := r.cached(ctx, o.Kind, types.NamespacedName{Namespace: owner.GetNamespace(), Name: o.Name})
		if err != nil {
			return err
		}
		if object == nil || !metav1.IsControlledBy(object, owner) || object.GetDeletionTimestamp() != nil {
			continue
		}
		uid := object.GetUID()
		err = r.client.Delete(ctx, object, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s %s/%s: %w", o.Kind, owner.GetNamespace(), o.Name, err)
		}
	}
	return nil
}

func isRefused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsConflict(err)
}

var kinds = map[string]schema.GroupVersionKind{
	"ServiceAccount":      corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	"Service":             corev1.SchemeGroupVersion.WithKind("Service"),
	"Secret":              corev1.SchemeGroupVersion.WithKind("Secret"),
	"StatefulSet":         appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
	"PodDisruptionBudget": policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
	"Deployment":          appsv1.SchemeGroupVersion.WithKind("Deployment"),
	"CronJob":             batchv1.SchemeGroupVersion.WithKind("CronJob"),
}

// isOurs: an object of another owner that has the name is never taken over.
// One that was seen to be the owner's is not looked at again.
func (r *applier) isOurs(ctx context.Context, owner client.Object, key ownedObject) (bool, error) {
	r.mu.Lock()
	seen, known := r.ours[key]
	r.mu.Unlock()
	if known && seen == asOwner(owner) {
		return true, nil
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kinds[key.kind])
	err := r.reader.Get(ctx, key.NamespacedName, object)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for %s %s: %w", key.kind, key.NamespacedName, err)
	}
	if !metav1.IsControlledBy(object, owner) {
		return false, nil
	}
	r.mu.Lock()
	r.ours[key] = asOwner(owner)
	r.mu.Unlock()
	return true, nil
}

// applySecret writes an owner's Secret. Current is the existing one.
func (r *applier) applySecret(ctx context.Context, owner client.Object, current *corev1.Secret, secret *coreac.SecretApplyConfiguration) (*finding.Finding, error) {
	if current == nil {
		if f, err := r.mayCreateSecret(ctx, owner, *secret.Name); f != nil || err != nil {
			return f, err
		}
	}
	err := r.client.Apply(ctx, secret, client.FieldOwner(workload.FieldOwner), client.ForceOwnership)
	if isRefused(err) {
		return new(plan.ApplyFailed("Secret", *secret.Name, err.Error())), err
	}
	return nil, err
}

// mayCreateSecret: a Secret is created only under a name to which nothing else refers, and which none has. One that was
// created since the owner's was looked for is left alone, and is looked at again.
func (r *applier) mayCreateSecret(ctx context.Context, owner client.Object, name string) (*finding.Finding, error) {
	at := types.NamespacedName{Namespace: owner.GetNamespace(), Name: name}
	references, err := r.secretReferences(ctx, at)
	if err != nil {
		return nil, err
	}
	if f, referred := accept.SecretReferred(kindOf(owner), name, references); referred {
		return &f, fmt.Errorf("create Secret %s: %s", at, f.Message)
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kinds["Secret"])
	if err := r.reader.Get(ctx, at, object); err == nil {
		return nil, fmt.Errorf("create Secret %s: it was created meanwhile; checking it again", at)
	} else if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("look for Secret %s: %w", at, err)
	}
	return nil, nil
}

// secretReferences are the fields of objects of a namespace that name a Secret.
func (r *applier) secretReferences(ctx context.Context, secret types.NamespacedName) (all []accept.SecretReference, err error) {
	for _, list := range []client.ObjectList{
		&v1alpha1.SiteList{}, &v1alpha1.IngestGatewayList{}, &v1alpha1.FeedServerList{}, &v1alpha1.MirrorPartnerList{}, &v1alpha1.InstrumentList{},
	} {
		if err := r.client.List(ctx, list, client.InNamespace(secret.Namespace), client.MatchingFields{secretsField: secret.Name}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list references to Secret %s: %w", secret, err)
		}
		err = errors.Join(err, meta.EachListItem(list, func(o runtime.Object) error {
			all = append(all, accept.SecretReferences(o.(client.Object))...)
			return nil
		}))
	}
	return slices.DeleteFunc(all, func(ref accept.SecretReference) bool { return ref.Secret != secret.Name }), err
}

// kindOf names the kind of an object that has Secrets written for it.
func kindOf(owner client.Object) string {
	return reflect.Indirect(reflect.ValueOf(owner)).Type().Name()
}
