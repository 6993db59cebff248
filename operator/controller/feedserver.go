// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"

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
	objects := func(s plan.SiteProgram) []plan.Object { return plan.FeedServer{SiteProgram: s}.Objects() }
	p := &siteProgram{r.program(view, plan.FeedServerProgram, r.images.FeedServer), plan.FeedServerUser(site), objects, &view.FeedServer.SiteProgramView}
	var failed error
	switch {
	case !acceptedAlone(*view):
		if site.Spec.FeedServer != nil {
			failed = r.keepProgramCredentials(ctx, p, view)
		}
	case site.Spec.FeedServer == nil:
		failed = r.removeFeedServer(ctx, site)
	default:
		view.FeedServer.Failed, failed = r.applyProgram(ctx, view, p)
	}
	view.FeedServer.Reports = r.links.facts(client.ObjectKeyFromObject(site)).reports.ofFeedServers()
	var services corev1.ServiceList
	err := r.client.List(ctx, &services, client.InNamespace(site.Namespace), client.MatchingLabels(p.Selector()), client.UnsafeDisableDeepCopy)
	view.FeedServer.Services = services.Items
	return errors.Join(failed, err, r.readProgram(ctx, site, p))
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
