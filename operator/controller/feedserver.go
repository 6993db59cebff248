// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"reflect"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
)

// applyFeedServer makes the objects of a Site's feed servers what they should be, or
// removes them where the Site has none, and reads what became of them.
func (r *siteReconciler) applyFeedServer(ctx context.Context, view *plan.SiteView) error {
	site := view.Site
	alone := *view
	alone.Backends = plan.Backends{}
	var failed error
	switch {
	case !plan.SiteAccepted(alone).OK():
		if site.Spec.FeedServer != nil && site.Spec.JetStream.AccountKeySecretRef != nil {
			view.FeedServer.Credentials, failed = r.keepCredentials(ctx, r.secrets, site, plan.JetStreamSecret(plan.FeedServerName(site)), plan.FeedServerUserName(site), view.Now)
		}
	case site.Spec.FeedServer == nil:
		failed = r.removeFeedServer(ctx, site)
	default:
		view.FeedServer.Failed, failed = r.applyFeedServerObjects(ctx, view)
	}
	if err := r.readFeedServer(ctx, view); err != nil {
		return err
	}
	return failed
}

func (r *siteReconciler) readFeedServer(ctx context.Context, view *plan.SiteView) error {
	site := view.Site
	view.FeedServer.Reports = r.links.facts(client.ObjectKeyFromObject(site)).reports.ofFeedServers()
	d, err := optional(ctx, r.client, types.NamespacedName{Namespace: site.Namespace, Name: plan.FeedServerName(site)}, &appsv1.Deployment{})
	if err != nil {
		return err
	}
	if d != nil && metav1.IsControlledBy(d, site) {
		view.FeedServer.Deployment = d
	}
	var pods corev1.PodList
	var services corev1.ServiceList
	for _, list := range []client.ObjectList{&pods, &services} {
		if err := r.client.List(ctx, list, client.InNamespace(site.Namespace), client.MatchingLabels(plan.FeedServerLabels(site.Name)), client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
	}
	view.FeedServer.Pods, view.FeedServer.Services = pods.Items, services.Items
	return nil
}

func (r *siteReconciler) applyFeedServerObjects(ctx context.Context, view *plan.SiteView) (*plan.Finding, error) {
	s := plan.FeedServer{Site: view.Site, Image: r.feedServerImage, PullSecrets: r.pull, Secrets: view.Secrets}
	if view.Site.Spec.JetStream.AccountKeySecretRef != nil {
		finding, err := r.applyFeedServerUser(ctx, view, &s)
		if finding != nil || err != nil {
			return finding, err
		}
	}
	objects := s.Objects()
	if r.appliedLately(ctx, view, objects) {
		return nil, nil
	}
	for _, o := range objects {
		finding, err := r.applyObject(ctx, view.Site, o, plan.SiteObjectNotOurs)
		if finding != nil || err != nil {
			return finding, err
		}
	}
	r.applied.Store(view.Site.UID, appliedObjects{objects, view.Now})
	return nil, nil
}

// applyAgain is after how long objects are applied again that should be as they are:
// what others change in them is put right.
const applyAgain = time.Minute

// appliedObjects are what was applied for a Site, and when.
type appliedObjects struct {
	objects []plan.Object
	at      time.Time
}

// appliedLately says whether these very objects were applied and are all there: a
// Site is looked at far more often than they change.
func (r *siteReconciler) appliedLately(ctx context.Context, view *plan.SiteView, objects []plan.Object) bool {
	last, known := r.applied.Load(view.Site.UID)
	if !known || view.Now.Sub(last.(appliedObjects).at) > applyAgain || !reflect.DeepEqual(last.(appliedObjects).objects, objects) {
		return false
	}
	for _, o := range objects {
		object, err := r.cached(ctx, o.Kind, types.NamespacedName{Namespace: view.Site.Namespace, Name: o.Name})
		if err != nil || object == nil {
			return false
		}
	}
	return true
}

// applyFeedServerUser keeps their credentials in a Secret, as those of a pool are.
func (r *siteReconciler) applyFeedServerUser(ctx context.Context, view *plan.SiteView, s *plan.FeedServer) (*plan.Finding, error) {
	name := plan.JetStreamSecret(plan.FeedServerName(view.Site))
	have, err := r.secrets.read(ctx, view.Site.Namespace, []plan.SecretNeed{{Name: name}})
	if err != nil {
		return nil, err
	}
	current := have[name]
	if current != nil && !metav1.IsControlledBy(current, view.Site) {
		f := plan.SiteObjectNotOurs("Secret", name)
		return &f, nil
	}
	view.FeedServer.Credentials = issued(current)
	ref := view.Site.Spec.JetStream.AccountKeySecretRef.Name
	if view.Secrets[ref] == nil {
		if current != nil {
			s.Permissions = current.Annotations[plan.AnnotationPermissions]
		}
		return nil, nil // the status tells of the missing Secret anyway
	}
	key, err := readAccountKey(view.Secrets[ref])
	if err != nil {
		return unreadable(ref, "spec.jetStream.accountKeySecretRef", err), nil
	}
	user := plan.FeedServerUser(view.Site)
	s.Permissions = user.Hash(key.account, key.issuer)
	creds, is, err := key.credentials(user, current, view.Site.Annotations[v1alpha1.AnnotationRotateCredentials], view.Now)
	if err != nil || creds == nil {
		return nil, err
	}
	defer r.secrets.forget(types.NamespacedName{Namespace: view.Site.Namespace, Name: name})
	finding, err := r.applySecret(ctx, name, s.CredentialsSecret(creds))
	if finding == nil && err == nil {
		view.FeedServer.Credentials = is
	}
	return finding, err
}

// removeFeedServer removes what a Site's feed servers were made of. The Secret with
// their credentials goes with the Site.
func (r *siteReconciler) removeFeedServer(ctx context.Context, site *v1alpha1.Site) error {
	for _, o := range plan.FeedServerObjects(site) {
		object, err := r.cached(ctx, o.Kind, types.NamespacedName{Namespace: site.Namespace, Name: o.Name})
		if err != nil {
			return err
		}
		if object == nil || !metav1.IsControlledBy(object, site) || object.GetDeletionTimestamp() != nil {
			continue
		}
		uid := object.GetUID()
		err = r.client.Delete(ctx, object, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s %s/%s: %w", o.Kind, site.Namespace, o.Name, err)
		}
	}
	return nil
}

// cached reads an object of a kind that the cache holds; nil where there is none.
func (r *siteReconciler) cached(ctx context.Context, kind string, key types.NamespacedName) (client.Object, error) {
	typed, err := r.client.Scheme().New(kinds[kind])
	if err != nil {
		return nil, err
	}
	object := typed.(client.Object)
	if err := r.client.Get(ctx, key, object); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return object, nil
}
