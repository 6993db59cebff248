// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

const kindFeedServer = "FeedServer"

// serverReconciler makes the objects of FeedServers and keeps their status.
type serverReconciler struct {
	*applier
	links    *links
	secrets  *secretReader
	statuses *statusWriter
	spaces   *spaces
	image    string
	pull     workload.Pulling
	scalers  *scalers
}

// Reconcile applies a FeedServer's objects and plans its status.
func (r *serverReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	name := resource{kindFeedServer, req.NamespacedName}
	server := &v1alpha1.FeedServer{}
	if err := r.client.Get(ctx, req.NamespacedName, server); apierrors.IsNotFound(err) {
		r.statuses.forget(name)
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, err
	}
	user := secretOfUser{workload.JetStreamSecret(workload.FeedServerName(server.Name)), bus.FeedServerUserName(server.Namespace, server.Name)}
	if finding.Unreadable(server) != "" { // objects that were made for it stay as they are
		return r.keepUnreadable(ctx, r.secrets, r.statuses, name, server, r.links.now(), user)
	}
	restoreNewestStatus(r.statuses, name, server, &server.Status)
	view, err := r.read(ctx, server)
	if err != nil {
		return ctrl.Result{}, err
	}
	if view.Site != nil && finding.Unreadable(view.Site) != "" {
		return r.keepUnreadable(ctx, r.secrets, r.statuses, name, server, view.Now, user)
	}
	// How many pods there are decides how few there may be.
	if err := r.readObjects(ctx, &view); err != nil {
		return ctrl.Result{}, err
	}
	if view.Scaling.Ceiling, err = r.spaces.ceiling(ctx, view.SpacePool()); err != nil {
		return ctrl.Result{}, err
	}
	failed := r.applyObjects(ctx, &view)
	if err := r.readObjects(ctx, &view); err != nil {
		return ctrl.Result{}, errors.Join(failed, err)
	}
	r.scalers.note(kindFeedServer, req.NamespacedName, view.Scale())
	status, wait := plan.FeedServerStatus(view)
	p := planned{
		resource: name, object: server, site: types.NamespacedName{Namespace: server.Namespace, Name: server.Spec.SiteRef.Name},
		was: &server.Status, is: &status, wasConds: server.Status.Conditions, isConds: status.Conditions,
		urgency: plan.FeedServerUrgency(&server.Status, &status), expiresAt: expiry(view.Credentials),
	}
	if view.Site != nil {
		p.code = view.Site.Spec.Code
	}
	r.statuses.submit(p)
	if failed != nil {
		return ctrl.Result{}, failed
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// read reads everything except the state of the FeedServer's own objects.
func (r *serverReconciler) read(ctx context.Context, server *v1alpha1.FeedServer) (plan.FeedServerView, error) {
	key := types.NamespacedName{Namespace: server.Namespace, Name: server.Spec.SiteRef.Name}
	site, err := siteView(ctx, r.client, r.links, key)
	if err != nil {
		return plan.FeedServerView{}, err
	}
	f := r.links.facts(key)
	view := plan.FeedServerView{Now: r.links.now(), Server: server, Site: site.Site}
	_, view.Bus, _, _ = f.snapshot()
	view.Scaling.Loop = r.scalers.loopOf(kindFeedServer, client.ObjectKeyFromObject(server))
	view.Reports, view.Consumers = f.reports.ofFeedServers(), f.reports.ofConsumers()
	if site.Site == nil {
		return view, nil
	}
	view.SiteAccepted = plan.SiteAccepted(site)
	if finding.Unreadable(site.Site) == "" {
		view.Secrets, err = r.secrets.read(ctx, server.Namespace, workload.FeedServerSecrets(site.Site, server))
	}
	return view, err
}

// applyObjects brings the FeedServer's objects into their planned state. Without its Site there are none: there is nothing to serve. While the
// Site is not accepted they stay as they are.
func (r *serverReconciler) applyObjects(ctx context.Context, view *plan.FeedServerView) error {
	server := view.Server
	program := &siteProgram{SiteProgram: workload.FeedServerOf(view.Site, server), owner: server, site: view.Site, view: &view.SiteProgramView, notOurs: plan.ServerObjectNotOurs}
	if view.Site == nil {
		return r.remove(ctx, server, workload.FeedServerObjects(server.Name))
	}
	program.Image, program.Pull, program.Secrets = r.image, r.pull, view.Secrets
	program.user = bus.FeedServerUser(view.Site, server.Name)
	if !plan.FeedServerAccepted(*view).OK() {
		return r.keepProgramCredentials(ctx, r.secrets, program, view.Now)
	}
	all, err := serversOf(ctx, r.client, client.ObjectKeyFromObject(view.Site))
	if err != nil {
		return err
	}
	program.objects = func(s workload.SiteProgram) []workload.Object {
		return workload.FeedServer{SiteProgram: s, Server: server, Replicas: view.Replicas(), Tight: view.Tight(), Addressed: accept.AddressedServer(all)}.Objects()
	}
	view.Failed, err = r.applyProgram(ctx, r.secrets, program, view.Now)
	return err
}

// readObjects reads the state of the FeedServer's objects.
func (r *serverReconciler) readObjects(ctx context.Context, view *plan.FeedServerView) error {
	program := &siteProgram{SiteProgram: workload.FeedServerOf(view.Site, view.Server), owner: view.Server, view: &view.SiteProgramView}
	services, err := servicesOf(ctx, r.client, view.Server)
	view.Services = services
	return errors.Join(err, r.readProgram(ctx, program))
}

// serversOf reads the FeedServers that name a Site. They must not be changed: they are the
// cache's own.
func serversOf(ctx context.Context, c client.Client, site types.NamespacedName) ([]v1alpha1.FeedServer, error) {
	var servers v1alpha1.FeedServerList
	err := c.List(ctx, &servers, client.InNamespace(site.Namespace), client.MatchingFields{siteField: site.Name}, client.UnsafeDisableDeepCopy)
	return servers.Items, err
}

// servicesOf reads the Services of a FeedServer.
func servicesOf(ctx context.Context, c client.Client, server *v1alpha1.FeedServer) ([]corev1.Service, error) {
	var services corev1.ServiceList
	err := c.List(ctx, &services, client.InNamespace(server.Namespace),
		client.MatchingLabels(workload.FeedServerOf(nil, server).Selector()), client.UnsafeDisableDeepCopy)
	return services.Items, err
}
