// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"log/slog"
	"slices"

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
	in := plan.RegistryInput{Site: view.Site, Instruments: instruments}
	if in.Feeds, in.Consumers, err = feedsOfSite(ctx, r.client, req.NamespacedName); err != nil {
		return ctrl.Result{}, err
	}
	if r.links.facts(req.NamespacedName).setUnreadable(plan.UnreadableObjects(in, gateways)) {
		r.wakers.sites.wake(req.NamespacedName)
	}
	if in.Secrets, err = r.secrets.read(ctx, req.Namespace, registrySecrets(in)); err != nil {
		return ctrl.Result{}, err
	}
	if view.Site != nil && plan.Unreadable(view.Site) != "" {
		_, err := r.write(ctx, req.NamespacedName, view, in) // what stands, stays; what is deleted is revoked
		return ctrl.Result{}, err
	}
	f := r.links.facts(req.NamespacedName)
	_, _, stands, _ := f.snapshot()
	in.Verdicts = plan.Accept(view.Site, accepted, gateways, instruments, in.Secrets)
	in.FeedsAre = plan.AcceptFeeds(view.Site, accepted, in.Feeds, instruments, plan.Listed(instruments, in.Verdicts, stands.Entries), f.foundStreams())
	in.ConsumersAre = plan.AcceptConsumers(view.Site, in.Feeds, in.FeedsAre, in.Consumers, instruments, view.Now)

	var change plan.RegistryChange
	if view.Site != nil && accepted.OK() {
		change, err = r.write(ctx, req.NamespacedName, view, in)
		bus := plan.PlanBus(view.Site, in.Feeds, in.FeedsAre, in.Consumers, in.ConsumersAre, plan.ConsumerDurables(in.Consumers, in.Secrets))
		bus.MayRead = plan.MayRead(bus, in.Feeds, in.Consumers, instruments, view.Now)
		f.wantBus(bus)
	}
	r.wake(req.NamespacedName, f, in, change)
	return ctrl.Result{}, err
}

// wake wakes everybody whose verdict or entry is new.
func (r *registryReconciler) wake(site types.NamespacedName, f *facts, in plan.RegistryInput, change plan.RegistryChange) {
	changed, gone := f.judge(in.Instruments, in.Verdicts)
	for _, entry := range change.Put {
		changed = append(changed, entry.Instrument)
	}
	wakeAllOf(&r.wakers.instruments, site.Namespace, changed, change.Delete)
	feeds, consumers := f.judgeFeeds(in)
	for _, entry := range change.PutFeeds {
		feeds = append(feeds, entry.Feed)
	}
	for _, entry := range change.PutConsumers {
		consumers = append(consumers, entry.Consumer)
	}
	wakeAllOf(&r.wakers.feeds, site.Namespace, feeds, change.DeleteFeeds)
	wakeAllOf(&r.wakers.consumers, site.Namespace, consumers, change.DeleteConsumers)
	if gone || change.Complete != nil {
		r.wakers.sites.wake(site)
	}
}

func wakeAllOf(w *waker, namespace string, lists ...[]string) {
	for _, names := range lists {
		for _, name := range names {
			w.wake(types.NamespacedName{Namespace: namespace, Name: name})
		}
	}
}

// write brings the registry up to date where JetStream is connected. Where it
// isn't, its return wakes this controller.
func (r *registryReconciler) write(ctx context.Context, site types.NamespacedName, view plan.SiteView, in plan.RegistryInput) (plan.RegistryChange, error) {
	f := r.links.facts(site)
	_, bus, registry, complete := f.snapshot()
	if !bus.Up {
		return plan.RegistryChange{}, nil
	}
	seen := max(view.Site.Status.RegistryRevision, f.newestRevision(), f.reports.newestRevision())
	change := plan.Registry(in, registry, complete, seen)
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
		"changed", len(slices.Concat(puts(change)...)), "removed", len(slices.Concat(deletes(change)...)), "instruments", change.Complete.Count,
		"feeds", change.Complete.Feeds, "consumers", change.Complete.Consumers, "readers", change.Complete.Readers)
	return change, nil
}

// registrySecrets are those whose tokens stand in the registry.
func registrySecrets(in plan.RegistryInput) []plan.SecretNeed {
	needs := plan.ReadersSecrets(in.Site)
	for i := range in.Instruments {
		needs = append(needs, plan.TokenSecrets(&in.Instruments[i])...)
	}
	ofSite := map[string]bool{}
	for i := range in.Feeds {
		ofSite[in.Feeds[i].Name] = true
	}
	for i := range in.Consumers {
		if ofSite[in.Consumers[i].Spec.FeedRef.Name] || plan.Unreadable(&in.Consumers[i]) != "" {
			needs = append(needs, plan.ConsumerSecrets(in.Consumers[i:i+1])...)
		}
	}
	return needs
}

// feedsOfSite reads the Feeds that name a Site, and all FeedConsumers of its
// namespace. They must not be changed: they are the cache's own.
func feedsOfSite(ctx context.Context, c client.Client, site types.NamespacedName) ([]v1alpha1.Feed, []v1alpha1.FeedConsumer, error) {
	var feeds v1alpha1.FeedList
	var consumers v1alpha1.FeedConsumerList
	if err := c.List(ctx, &feeds, client.InNamespace(site.Namespace), client.MatchingFields{siteField: site.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, err
	}
	if err := c.List(ctx, &consumers, client.InNamespace(site.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, err
	}
	return feeds.Items, consumers.Items, nil
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
	view.Ledger = f.reports.ofLedger()
	view.Expiry = f.reports.ofExpiry()
	view.Scrub, view.Damage = f.reports.ofScrub()
	view.Unreadable = f.unreadableObjects()
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
