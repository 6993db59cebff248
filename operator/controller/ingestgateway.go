// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

const kindIngestGateway = "IngestGateway"

// gatewayReconciler makes the objects of pools and keeps their status.
type gatewayReconciler struct {
	*applier
	links    *links
	secrets  *secretReader
	statuses *statusWriter
	spaces   *spaces
	image    string
	pull     workload.Pulling
	scalers  *scalers
}

// Reconcile applies a pool's objects and plans its status.
func (r *gatewayReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	name := resource{kindIngestGateway, req.NamespacedName}
	gateway := &v1alpha1.IngestGateway{}
	if err := r.client.Get(ctx, req.NamespacedName, gateway); apierrors.IsNotFound(err) {
		r.statuses.forget(name)
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, err
	}
	if finding.Unreadable(gateway) != "" {
		return r.keepPool(ctx, name, gateway) // objects that were made for it stay as they are
	}
	restoreNewestStatus(r.statuses, name, gateway, &gateway.Status)
	view, err := r.read(ctx, gateway)
	if err != nil {
		return ctrl.Result{}, err
	}
	if view.Site != nil && finding.Unreadable(view.Site) != "" {
		return r.keepPool(ctx, name, gateway)
	}
	// How many pods there are decides, with their spools, how few there may be.
	if err := r.readPods(ctx, &view); err != nil {
		return ctrl.Result{}, err
	}
	if view.Scaling.Ceiling, err = r.spaces.ceiling(ctx, view.SpacePool()); err != nil {
		return ctrl.Result{}, err
	}
	var failed error
	if plan.GatewayAccepted(view).OK() {
		view.Failed, failed = r.apply(ctx, &view)
	} else {
		failed = r.keep(ctx, &view)
	}
	if err := r.readPods(ctx, &view); err != nil {
		return ctrl.Result{}, err
	}
	r.scalers.note(kindIngestGateway, req.NamespacedName, view.Scale())
	status, wait := plan.GatewayStatus(view)
	site := types.NamespacedName{Namespace: gateway.Namespace, Name: gateway.Spec.SiteRef.Name}
	r.links.facts(site).settle(kindIngestGateway, gateway.Name, finding.Of(status.Conditions, v1alpha1.ConditionProgrammed).OK())
	p := planned{
		resource: name, object: gateway, site: site,
		was: &gateway.Status, is: &status, wasConds: gateway.Status.Conditions, isConds: status.Conditions,
		urgency: plan.GatewayUrgency(&gateway.Status, &status), expiresAt: expiry(view.Credentials),
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

// keep renews the credentials and certificates that the pods of a pool use which is not accepted now, or cannot be read.
func (r *gatewayReconciler) keep(ctx context.Context, view *plan.GatewayView) error {
	if view.Site == nil || view.Site.Spec.JetStream.AccountKeySecretRef != nil {
		var err error
		user := bus.GatewayUserName(view.Gateway.Namespace, view.Gateway.Name)
		if view.Credentials, err = r.keepCredentials(ctx, r.secrets, view.Gateway, workload.JetStreamSecret(view.Gateway.Name), user, view.Now); err != nil {
			return err
		}
	}
	peers, err := r.secrets.read(ctx, view.Gateway.Namespace, workload.PeersSecrets(view.Gateway.Name))
	if err != nil || len(peers) == 0 {
		return err
	}
	_, err = r.applyPeers(ctx, *view, workload.Pool{Gateway: view.Gateway})
	return err
}

func (r *gatewayReconciler) keepPool(ctx context.Context, name resource, gateway *v1alpha1.IngestGateway) (ctrl.Result, error) {
	view := plan.GatewayView{Now: r.links.now(), Gateway: gateway}
	if err := r.keep(ctx, &view); err != nil {
		return ctrl.Result{}, err
	}
	return r.statuses.noteExpiry(name, view.Credentials, view.Now), nil
}

// read reads everything except the state of the pool's own objects.
func (r *gatewayReconciler) read(ctx context.Context, gateway *v1alpha1.IngestGateway) (plan.GatewayView, error) {
	key := types.NamespacedName{Namespace: gateway.Namespace, Name: gateway.Spec.SiteRef.Name}
	site, err := siteView(ctx, r.client, r.links, key)
	if err != nil {
		return plan.GatewayView{}, err
	}
	var others v1alpha1.IngestGatewayList
	if err := r.client.List(ctx, &others, client.UnsafeDisableDeepCopy); err != nil {
		return plan.GatewayView{}, err
	}
	f := r.links.facts(key)
	view := plan.GatewayView{Now: r.links.now(), Gateway: gateway, Site: site.Site, Others: others.Items,
		Registry: site.Registry, Reports: f.reports.ofGateways(), Image: r.image}
	_, view.Bus, _, _ = f.snapshot()
	view.Replicated, view.Judged = f.replicatedOn(gateway.Name)
	view.Scaling.Loop = r.scalers.loopOf(kindIngestGateway, client.ObjectKeyFromObject(gateway))
	if site.Site == nil {
		return view, nil
	}
	view.SiteAccepted = plan.SiteAccepted(site)
	view.Secrets, err = r.secrets.read(ctx, gateway.Namespace, workload.GatewaySecrets(site.Site, gateway))
	return view, err
}

func (r *gatewayReconciler) readPods(ctx context.Context, view *plan.GatewayView) error {
	var sets appsv1.StatefulSetList
	if err := r.client.List(ctx, &sets, client.InNamespace(view.Gateway.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	view.StatefulSet, view.OtherSets = nil, map[string]*appsv1.StatefulSet{}
	for i := range sets.Items {
		set := &sets.Items[i]
		switch owner := metav1.GetControllerOf(set); {
		case owner == nil || owner.Kind != kindIngestGateway:
		case owner.UID == view.Gateway.UID:
			view.StatefulSet = set
		default:
			view.OtherSets[owner.Name] = set
		}
	}
	var pods corev1.PodList
	err := r.client.List(ctx, &pods, client.InNamespace(view.Gateway.Namespace),
		client.MatchingLabels(workload.PodLabels(view.Gateway.Name)), client.UnsafeDisableDeepCopy)
	view.Pods = pods.Items
	return err
}

// apply brings the pool's objects into their planned state. A refusal by the API server is a finding; any other failure is an error and
// worth another try.
func (r *gatewayReconciler) apply(ctx context.Context, view *plan.GatewayView) (*finding.Finding, error) {
	pool := workload.Pool{Gateway: view.Gateway, Site: view.Site, Replicas: view.Replicas(), Image: r.image, Pull: r.pull, Apart: view.PodsApart(), Secrets: view.Secrets}
	if view.WaitsForTurn() != "" {
		var err error
		if pool.Keeps, err = plan.TemplateAsItIs(&view.StatefulSet.Spec.Template); err != nil {
			return nil, err
		}
	}
	if view.Site.Spec.JetStream.AccountKeySecretRef != nil {
		finding, err := r.applyUser(ctx, view, &pool)
		if finding != nil || err != nil {
			return finding, err
		}
	}
	if finding, err := r.applyPeers(ctx, *view, pool); finding != nil || err != nil {
		return finding, err
	}
	objects := pool.Objects()
	for _, o := range objects {
		finding, err := r.applyObject(ctx, view.Gateway, o, plan.NotOurs)
		if finding != nil || err != nil {
			return finding, err
		}
	}
	return nil, r.prune(ctx, view.Gateway, objects)
}

// prune removes Services that the pool no longer needs.
func (r *gatewayReconciler) prune(ctx context.Context, gateway *v1alpha1.IngestGateway, objects []workload.Object) error {
	needed := map[string]bool{}
	for _, o := range objects {
		needed[o.Name] = needed[o.Name] || o.Kind == "Service"
	}
	var services corev1.ServiceList
	if err := r.client.List(ctx, &services, client.InNamespace(gateway.Namespace), client.MatchingLabels(workload.PodLabels(gateway.Name))); err != nil {
		return err
	}
	for i := range services.Items {
		svc := &services.Items[i]
		if needed[svc.Name] || !metav1.IsControlledBy(svc, gateway) {
			continue
		}
		if err := r.client.Delete(ctx, svc); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete Service %s/%s: %w", svc.Namespace, svc.Name, err)
		}
	}
	return nil
}

// applyUser keeps the pool's credentials in a Secret, and reissues them if the plan says so. While the account's key is missing, the
// existing credentials stay in use.
func (r *gatewayReconciler) applyUser(ctx context.Context, view *plan.GatewayView, pool *workload.Pool) (*finding.Finding, error) {
	name := workload.JetStreamSecret(view.Gateway.Name)
	have, err := r.secrets.read(ctx, view.Gateway.Namespace, []workload.SecretNeed{{Name: name}})
	if err != nil {
		return nil, err
	}
	current := have[name]
	if current != nil && !metav1.IsControlledBy(current, view.Gateway) {
		return new(plan.NotOurs("Secret", name)), nil
	}
	view.Credentials = issued(current)
	ref := view.Site.Spec.JetStream.AccountKeySecretRef.Name
	if view.Secrets[ref] == nil {
		if current != nil {
			pool.Permissions = current.Annotations[workload.AnnotationPermissions]
		}
		return nil, nil // the status reports the missing Secret anyway
	}
	key, err := readAccountKey(view.Secrets[ref])
	if err != nil {
		return unreadable(ref, "spec.jetStream.accountKeySecretRef of Site "+view.Site.Name, err), nil
	}
	user := bus.GatewayUser(view.Site, view.Gateway.Name)
	pool.Permissions = user.Hash(key.account, key.issuer)
	creds, is, err := key.credentials(user, current, view.Gateway.Annotations[v1alpha1.AnnotationRotateCredentials], view.Now)
	if err != nil || creds == nil {
		return nil, err
	}
	defer r.secrets.forget(types.NamespacedName{Namespace: view.Gateway.Namespace, Name: name})
	finding, err := r.applySecret(ctx, view.Gateway, current, pool.CredentialsSecret(creds))
	if finding == nil && err == nil {
		view.Credentials = is
	}
	return finding, err
}
