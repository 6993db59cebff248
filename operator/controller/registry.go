// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
)

// registryReconciler is the one writer of each Site's registry. It is named by
// a Site, which need not exist: its Instruments must be judged all the same.
// What changes while it writes becomes the next revision, all at once.
type registryReconciler struct {
	client  client.Client
	links   *links
	secrets *secretReader
	wakers  *wakers
	log     *slog.Logger
}

// Reconcile judges a Site's Instruments and writes what changed at once; it
// waits for no status and no gateway.
func (r *registryReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	view, err := siteView(ctx, r.client, r.links, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	gateways, instruments, err := ofSite(ctx, r.client, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	var accepted plan.Finding
	if view.Site != nil {
		accepted = plan.SiteAccepted(view)
	}
	secrets, err := r.secrets.read(ctx, req.Namespace, tokenSecrets(instruments))
	if err != nil {
		return ctrl.Result{}, err
	}
	verdicts := plan.Accept(view.Site, accepted, gateways, instruments, secrets)

	var change plan.RegistryChange
	if view.Site != nil && accepted.OK() {
		change, err = r.write(ctx, req.NamespacedName, view, instruments, verdicts, secrets)
	}
	changed, gone := r.links.facts(req.NamespacedName).judge(instruments, verdicts)
	for _, entry := range change.Put {
		changed = append(changed, entry.Instrument)
	}
	changed = append(changed, change.Delete...)
	for _, name := range changed {
		r.wakers.instruments.wake(types.NamespacedName{Namespace: req.Namespace, Name: name})
	}
	if gone || change.Complete != nil {
		r.wakers.sites.wake(req.NamespacedName)
	}
	return ctrl.Result{}, err
}

// write brings the registry up to date where JetStream is connected. Where it
// isn't, its return wakes this controller.
func (r *registryReconciler) write(ctx context.Context, site types.NamespacedName, view plan.SiteView,
	instruments []v1alpha1.Instrument, verdicts map[string]plan.Verdict, secrets plan.Secrets,
) (plan.RegistryChange, error) {
	f := r.links.facts(site)
	_, bus, registry, complete := f.snapshot()
	if !bus.Up {
		return plan.RegistryChange{}, nil
	}
	seen := max(view.Site.Status.RegistryRevision, f.newestRevision(), f.reports.newestRevision())
	change := plan.Registry(instruments, verdicts, secrets, registry.Entries, complete, seen)
	if change.Complete == nil {
		return change, nil
	}
	err := r.links.write(ctx, site, change)
	if errors.Is(err, errNotConnected) {
		return plan.RegistryChange{}, nil
	}
	if err != nil {
		return plan.RegistryChange{}, err
	}
	r.log.Info("wrote the registry", "site", site.String(), "revision", change.Complete.Revision,
		"changed", len(change.Put), "removed", len(change.Delete), "entries", change.Complete.Count)
	return change, nil
}

func tokenSecrets(instruments []v1alpha1.Instrument) []plan.SecretNeed {
	var needs []plan.SecretNeed
	for i := range instruments {
		needs = append(needs, plan.TokenSecrets(&instruments[i])...)
	}
	return needs
}

// siteView reads what planners ask for about a Site; its Site is nil where
// there is none.
func siteView(ctx context.Context, c client.Client, l *links, key types.NamespacedName) (plan.SiteView, error) {
	var sites v1alpha1.SiteList
	if err := c.List(ctx, &sites, client.UnsafeDisableDeepCopy); err != nil {
		return plan.SiteView{}, err
	}
	f := l.facts(key)
	view := plan.SiteView{Now: l.now(), Sites: sites.Items}
	view.Flowing, view.Counted = f.flowing()
	view.Backends, _, view.Registry, _ = f.snapshot()
	site := &v1alpha1.Site{}
	if err := c.Get(ctx, key, site); err == nil {
		view.Site = site
	} else if !apierrors.IsNotFound(err) {
		return plan.SiteView{}, err
	}
	return view, nil
}

// ofSite reads the pools and Instruments that name a Site. They must not be
// changed: they are the cache's own.
func ofSite(ctx context.Context, c client.Client, site types.NamespacedName) ([]v1alpha1.IngestGateway, []v1alpha1.Instrument, error) {
	var gateways v1alpha1.IngestGatewayList
	var instruments v1alpha1.InstrumentList
	options := []client.ListOption{client.InNamespace(site.Namespace), client.MatchingFields{siteField: site.Name}, client.UnsafeDisableDeepCopy}
	if err := c.List(ctx, &gateways, options...); err != nil {
		return nil, nil, err
	}
	if err := c.List(ctx, &instruments, options...); err != nil {
		return nil, nil, err
	}
	return gateways.Items, instruments.Items, nil
}
