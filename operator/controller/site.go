// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

const kindSite = "Site"

// siteReconciler links Sites to their backends and keeps their status.
type siteReconciler struct {
	*applier
	links      *links
	wakers     *wakers
	secrets    *secretReader
	statuses   *statusWriter
	finalizers finalizers
	// deletionLimit is how long a deletion waits; 0: the default.
	deletionLimit time.Duration
	// cluster is Config.ClusterID, or the uid of the namespace kube-system.
	cluster string
	// image is the archivist's image, pulled with the Secrets of pull.
	image string
	pull  workload.Pulling
	// upstream is the link to a hub, of a Site without a cluster.
	upstream *upstream
	// disk is Config.Disk.
	disk func() plan.Disk
	// manifests is Config.Manifests.
	manifests func() *plan.Manifests
	// weathers ask for space weather.
	weathers *weathers
}

// Reconcile has the Site's link connect as the Site declares, and plans its status from what the link found so far.
func (r *siteReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	name := resource{kindSite, req.NamespacedName}
	view, err := siteView(ctx, r.client, r.links, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if view.Site == nil {
		if r.links.forget(req.NamespacedName) {
			r.wakers.registries.wake(req.NamespacedName) // its Instruments are judged again
		}
		r.statuses.forget(name)
		r.forget(req.NamespacedName)
		r.upstream.keep(req.NamespacedName, nil)
		r.weathers.keep(req.NamespacedName, nil)
		r.weathers.tell(req.NamespacedName, nil)
		return ctrl.Result{}, nil
	}
	if view.Deletion, err = r.deletion(ctx, &view); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.finalizers.keep(ctx, kindSite, view.Site, view.Deletion); err != nil || view.Site.DeletionTimestamp != nil && !view.Deletion.Finalizer {
		return ctrl.Result{}, err // in the latter case it is gone by now
	}
	if finding.Unreadable(view.Site) != "" { // objects that were made for it stay as they are
		r.links.noteExists(req.NamespacedName)
		return r.keepUnreadable(ctx, r.secrets, r.statuses, name, view.Site, view.Now,
			secretOfUser{workload.JetStreamSecret(workload.ArchivistName(view.Site)), bus.ArchivistUserName(view.Site)})
	}
	restoreNewestStatus(r.statuses, name, view.Site, &view.Site.Status)
	if view.Secrets, err = r.secrets.read(ctx, view.Site.Namespace, siteSecrets(view.Site)); err != nil {
		return ctrl.Result{}, err
	}
	if view.Gateways, err = gatewaysOf(ctx, r.client, req.NamespacedName); err != nil {
		return ctrl.Result{}, err
	}
	if view.FeedServers, err = serversOf(ctx, r.client, req.NamespacedName); err != nil {
		return ctrl.Result{}, err
	}
	view.Flowing, view.Counted = r.links.facts(req.NamespacedName).flowing()
	r.link(&view)
	view.Link = r.upstream.keep(req.NamespacedName, plan.UpstreamLink(view))
	view.Weather = r.weathers.keep(req.NamespacedName, &view.Site.Spec.SpaceWeather)
	if r.disk != nil {
		view.Disk = new(r.disk())
	}
	if r.manifests != nil {
		view.Manifests = r.manifests()
	}
	failed := errors.Join(r.applyArchivist(ctx, &view), r.applyLeafUsers(ctx, &view))

	status, wait := plan.SiteStatus(view)
	r.weathers.planned(req.NamespacedName, status.Surge)
	level := plan.SurgeLevel(view)
	again := r.tellLevel(ctx, req.NamespacedName, view.Site.Spec.Code, level, view.Site.Status.Surge != nil)
	r.statuses.submit(planned{
		resource: name, object: view.Site, site: req.NamespacedName, code: view.Site.Spec.Code,
		was: &view.Site.Status, is: &status, wasConds: view.Site.Status.Conditions, isConds: status.Conditions, level: level,
		urgency: plan.SiteUrgency(&view.Site.Status, &status), expiresAt: expiry(view.Archivist.Credentials),
	})
	if failed != nil {
		return ctrl.Result{}, failed
	}
	if again > 0 && (wait == 0 || again < wait) {
		wait = again
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// deletion plans the Site's finalizer.
func (r *siteReconciler) deletion(ctx context.Context, view *plan.SiteView) (plan.Deletion, error) {
	key := client.ObjectKeyFromObject(view.Site)
	var feeds v1alpha1.FeedList
	if err := r.client.List(ctx, &feeds, client.InNamespace(key.Namespace), client.MatchingFields{siteField: key.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return plan.Deletion{}, err
	}
	f := r.links.facts(key)
	_, bus, _, _ := f.snapshot()
	return plan.SiteDeletion(plan.SiteDeletionView{
		DeletionClock: plan.DeletionClock{Now: view.Now, Begun: f.begun, Limit: r.deletionLimit},
		Site:          view.Site, Feeds: feeds.Items, Accepted: plan.SiteAccepted(*view), Bus: bus, Doomed: f.doomed(),
	}), nil
}

func siteSecrets(site *v1alpha1.Site) []workload.SecretNeed {
	return slices.Concat(workload.ObjectStoreSecrets(site), workload.JetStreamSecrets(site), workload.LeavesAccountSecrets(site), plan.UpstreamSecrets(site), accept.ReadersSecrets(site))
}

// link connects the Site unless its code is an older Site's. A Site that is refused because of its marker keeps trying: the marker may be
// removed.
func (r *siteReconciler) link(view *plan.SiteView) {
	alone := *view
	alone.Backends = plan.Backends{}
	if !plan.SiteAccepted(alone).OK() {
		r.links.refuse(client.ObjectKeyFromObject(view.Site))
		view.Backends = plan.Backends{}
		return
	}
	r.links.connect(client.ObjectKeyFromObject(view.Site), newWanted(view.Site, view.Secrets, r.cluster))
	view.Backends, _, view.Registry, _ = r.links.facts(client.ObjectKeyFromObject(view.Site)).snapshot()
}
