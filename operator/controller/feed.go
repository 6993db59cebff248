// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/feeds"
	"github.com/substorm/substorm/operator/plan/finding"
)

const kindFeed = "Feed"

// feedReconciler keeps the status of Feeds. Their registry entries are the
// registryReconciler's, their streams the link's.
type feedReconciler struct {
	client     client.Client
	links      *links
	statuses   *statusWriter
	finalizers finalizers
	// deletionLimit is how long a deletion waits; 0: the default.
	deletionLimit time.Duration
}

// Reconcile plans the status of one Feed.
func (r *feedReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	name := resource{kindFeed, req.NamespacedName}
	feed := &v1alpha1.Feed{}
	if err := r.client.Get(ctx, req.NamespacedName, feed); apierrors.IsNotFound(err) {
		r.statuses.forget(name)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, err
	}
	restoreNewestStatus(r.statuses, name, feed, &feed.Status)
	key := types.NamespacedName{Namespace: feed.Namespace, Name: feed.Spec.SiteRef.Name}
	site, err := optional(ctx, r.client, key, &v1alpha1.Site{})
	if err != nil {
		return ctrl.Result{}, err
	}
	f := r.links.facts(key)
	if feed.DeletionTimestamp != nil {
		return r.reconcileDeletion(ctx, name, feed, site, f)
	}
	if finding.Unreadable(feed) != "" {
		return ctrl.Result{}, nil // objects that were made for it stay as they are
	}
	if err := r.finalizers.keep(ctx, kindFeed, feed, plan.FeedDeletion(plan.FeedDeletionView{Feed: feed})); err != nil {
		return ctrl.Result{}, err
	}
	view := feeds.FeedView{Now: r.links.now(), Feed: feed, Site: site, Consumers: map[string]time.Duration{}}
	if !f.readFeed(&view) {
		return ctrl.Result{}, nil // the registry's controller has not come to it yet, and wakes this one
	}
	var consumers v1alpha1.FeedConsumerList
	if err := r.client.List(ctx, &consumers, client.InNamespace(feed.Namespace), client.MatchingFields{feedField: feed.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, err
	}
	for i := range consumers.Items {
		name := consumers.Items[i].Name
		view.Consumers[name] = feeds.MergeConsumer(f.reports.ofConsumer(name), f.reports.ofFeedServers(), view.Now).Lag
	}
	status, wait := feeds.FeedStatus(view)
	p := planned{
		resource: name, object: feed, site: key,
		was: &feed.Status, is: &status, wasConds: feed.Status.Conditions, isConds: status.Conditions,
		urgency: plan.FeedUrgency(&feed.Status, &status),
	}
	if site != nil {
		p.code = site.Spec.Code
	}
	r.statuses.submit(p)
	return ctrl.Result{RequeueAfter: wait}, nil
}

// reconcileDeletion looks after a Feed that is being deleted.
func (r *feedReconciler) reconcileDeletion(ctx context.Context, name resource, feed *v1alpha1.Feed, site *v1alpha1.Site, f *facts) (ctrl.Result, error) {
	_, bus, _, _ := f.snapshot()
	view := plan.FeedDeletionView{DeletionClock: plan.DeletionClock{Now: r.links.now(), Begun: f.begun, Limit: r.deletionLimit},
		Feed: feed, Site: site, Bus: bus, Removed: f.removed(feed.Name)}
	d := plan.FeedDeletion(view)
	if !d.Finalizer {
		return ctrl.Result{}, r.finalizers.keep(ctx, kindFeed, feed, d)
	}
	if finding.Unreadable(feed) == "" {
		status := plan.FeedDeletionStatus(view, d)
		p := planned{resource: name, object: feed, site: types.NamespacedName{Namespace: feed.Namespace, Name: feed.Spec.SiteRef.Name},
			was: &feed.Status, is: &status, wasConds: feed.Status.Conditions, isConds: status.Conditions, urgency: plan.FeedUrgency(&feed.Status, &status)}
		if site != nil {
			p.code = site.Spec.Code
		}
		r.statuses.submit(p)
	}
	return ctrl.Result{RequeueAfter: d.Wait}, nil
}

// optional reads an object; nil if it does not exist.
func optional[T any, O interface {
	*T
	client.Object
}](ctx context.Context, c client.Client, key types.NamespacedName, into O) (O, error) {
	if err := c.Get(ctx, key, into); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return into, nil
}
