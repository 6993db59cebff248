// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/entries"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

// registryReconciler is the one writer of each Site's registry. A Site is its key, and need not exist: its Instruments must be judged all
// the same. Changes that come while it writes become the next revision, all at once.
type registryReconciler struct {
	client  client.Client
	links   *links
	secrets *secretReader
	wakers  *wakers
	log     *slog.Logger
	touched *touched
	// auditEvery is how often all of a Site is judged again without an event; the differences that this finds are counted in differences,
	// and should be none.
	auditEvery  time.Duration
	differences prometheus.Counter

	mu     sync.Mutex
	judged map[types.NamespacedName]*judgedSite
}

// Reconcile judges the objects that events were about, and writes what changed at once; it waits for no status and no gateway.
func (r *registryReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	what := r.touched.take(req.NamespacedName)
	if err := r.judge(ctx, req.NamespacedName, what); err != nil {
		r.touched.addAll(req.NamespacedName)
		if errors.Is(err, errHeld) && ctx.Err() == nil {
			r.log.Warn("cannot close Instruments or Feeds yet; retrying", "site", req.String(), "error", err)
			return ctrl.Result{RequeueAfter: retryEvery}, nil
		}
		return ctrl.Result{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.judged[req.NamespacedName] == nil { // the Site is gone, or not accepted
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: r.auditEvery}, nil
}

func (r *registryReconciler) judge(ctx context.Context, site types.NamespacedName, what touch) error {
	r.mu.Lock()
	was := r.judged[site]
	r.mu.Unlock()
	switch {
	case what.all || was == nil:
	case len(what.names) > 0:
		if done, err := r.judgeSome(ctx, site, was, what.names); done || err != nil {
			return err
		}
	default:
		return r.audit(ctx, site, was)
	}
	_, err := r.judgeAll(ctx, site)
	return err
}

// audit judges all of a Site though there was no event, and counts the differences from before.
func (r *registryReconciler) audit(ctx context.Context, site types.NamespacedName, before *judgedSite) error {
	f := r.links.facts(site)
	was := f.judgements()
	change, err := r.judgeAll(ctx, site)
	if err != nil {
		return err
	}
	names := differingKeys(was, f.judgements())
	for _, entry := range change.Put {
		names = append(names, entry.Instrument)
	}
	names = append(names, change.Delete...)
	for _, entry := range change.PutFeeds {
		names = append(names, entry.Feed)
	}
	for _, entry := range change.PutConsumers {
		names = append(names, entry.Consumer)
	}
	for _, entry := range change.PutMirrors {
		names = append(names, entry.Partner)
	}
	names = slices.Concat(names, change.DeleteFeeds, change.DeleteConsumers, change.DeleteMirrors, change.DeleteReaders)
	r.mu.Lock()
	after := r.judged[site]
	r.mu.Unlock()
	if len(names) == 0 || r.eventFollows(ctx, site, slices.Concat(names, before.changedInstruments(after))) {
		return nil
	}
	r.differences.Add(float64(len(names)))
	r.log.Warn("the audit found differences in the registry: please report this", "site", site.String(), "names", names)
	return nil
}

// eventFollows waits for an event that explains an audit's differences, of one of the named Instruments or of all: the cache has an object
// before the handlers of its event have run, on a busy machine seconds before.
func (r *registryReconciler) eventFollows(ctx context.Context, site types.NamespacedName, names []string) bool {
	for end := time.Now().Add(min(eventWait, r.auditEvery)); time.Now().Before(end); {
		if r.touched.hasEvent(site, names) || !retry.Sleep(ctx, eventPoll) {
			return true
		}
	}
	return false
}

const (
	eventWait = 10 * time.Second
	eventPoll = 20 * time.Millisecond
)

// judgeAll judges all of a Site.
func (r *registryReconciler) judgeAll(ctx context.Context, site types.NamespacedName) (change entries.Change, err error) {
	r.remember(site, nil)
	view, err := siteView(ctx, r.client, r.links, site)
	if err != nil {
		return change, err
	}
	gateways, instruments, err := ofSite(ctx, r.client, site)
	if err != nil {
		return change, err
	}
	var accepted finding.Finding
	if view.Site != nil {
		accepted = plan.SiteAccepted(view)
	}
	of, err := feedsOfSite(ctx, r.client, site)
	if err != nil {
		return change, err
	}
	in := entries.Input{Site: view.Site, Instruments: instruments, Feeds: of.feeds, Consumers: of.consumers}
	if in.Mirrors, err = mirrorsOfSite(ctx, r.client, site); err != nil {
		return change, err
	}
	servers, err := serversOf(ctx, r.client, site)
	if err != nil {
		return change, err
	}
	if view.Site == nil && len(gateways)+len(servers)+len(instruments)+len(in.Feeds)+len(in.Mirrors) == 0 {
		if r.links.drop(site) {
			r.wakers.sites.wake(site)
		}
		return change, nil
	}
	f := r.links.open(site)
	if f.setUnreadable(entries.UnreadableObjects(in, gateways, servers)) {
		r.wakers.sites.wake(site)
	}
	if in.Secrets, err = r.secrets.read(ctx, site.Namespace, registrySecrets(in)); err != nil {
		return change, err
	}
	if view.Site != nil && finding.Unreadable(view.Site) != "" {
		return r.write(ctx, site, view, in) // existing entries stay; entries of deleted objects are revoked
	}
	_, bus, stands, _ := f.snapshot()
	in.Verdicts = accept.Instruments(view.Site, accepted, gateways, instruments, in.Secrets)
	listed := accept.Listed(instruments, in.Verdicts, stands.Entries)
	in.FeedsAre = accept.Feeds(view.Site, accepted, in.Feeds, instruments, listed, f.foundStreams())
	may := accept.AccessOf(instruments, listed, stands)
	in.ConsumersAre = accept.Consumers(view.Site, in.Feeds, in.FeedsAre, in.Consumers, servers, may, view.Now)

	others, err := pushesOfOthers(ctx, r.client, site)
	if err != nil {
		return change, err
	}
	in.MirrorsAre = accept.Mirrors(view.Site, accepted, in.Mirrors, others, instruments, listed)

	if view.Site != nil && accepted.OK() {
		if bus.Up { // else it is not known who could read the Instruments that left the registry
			f.wantBus(busOf(in, of, may, view.Now))
		}
		change, err = r.write(ctx, site, view, in)
		if err == nil {
			r.remember(site, judgedAs(instruments, gateways, listed))
		}
	}
	r.wake(site, f, in, change)
	wakeAllOf(&r.wakers.gateways, site.Namespace, f.updateReplicated(gateways))
	return change, err
}

// busOf is the plan for the streams and durables of a Site's Feeds and FeedConsumers.
func busOf(in entries.Input, of siteFeeds, may *accept.SiteAccess, now time.Time) bus.Plan {
	durables := bus.ConsumerDurables(in.Consumers, in.Secrets)
	p := bus.MakePlan(in.Site, in.Feeds, in.FeedsAre, in.Consumers, in.ConsumersAre, durables)
	p.Mirrors = mirrorNames(in.Mirrors)
	p.Leaving, p.Withheld = of.leaving, append(p.Withheld, of.orphans...)
	p.MayRead = bus.MayRead(p, in.Feeds, in.Consumers, in.Instruments, may, now)
	return p
}

// remember keeps the state that later verdicts depend on; nil: all of the Site must be judged.
func (r *registryReconciler) remember(site types.NamespacedName, is *judgedSite) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if is == nil {
		delete(r.judged, site)
		return
	}
	if r.judged == nil {
		r.judged = map[types.NamespacedName]*judgedSite{}
	}
	r.judged[site] = is
}

// wake wakes all resources whose verdict or entry is new.
func (r *registryReconciler) wake(site types.NamespacedName, f *facts, in entries.Input, change entries.Change) {
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
	mirrors := f.judgeMirrors(in)
	for _, entry := range change.PutMirrors {
		mirrors = append(mirrors, entry.Partner)
	}
	wakeAllOf(&r.wakers.mirrors, site.Namespace, mirrors, change.DeleteMirrors)
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

// errHeld: durables still deliver data that is being closed.
var errHeld = errors.New("closing waits until no durable delivers the data")

// write brings the registry up to date if JetStream is connected. If it is not, its return
// wakes this controller. Before an entry that closes something is written, no durable may
// deliver that any more; if this cannot be achieved, the entry waits, and the rest does not.
func (r *registryReconciler) write(ctx context.Context, site types.NamespacedName, view plan.SiteView, in entries.Input) (entries.Change, error) {
	_, bus, registry, complete := r.links.facts(site).snapshot()
	if !bus.Up {
		return entries.Change{}, nil
	}
	newest := r.newest(site, view)
	change := entries.Plan(in, registry, complete, newest)
	var held error
	if closing := change.Closes(registry); closing.Any() {
		if _, err := r.writeChange(ctx, site, entries.Change{}); err != nil { // who led before opens nothing from now on
			return entries.Change{}, err
		}
		if err := r.links.narrow(ctx, site); err != nil {
			held = fmt.Errorf("%w: Instruments %q, Feeds %q: %w", errHeld, closing.Instruments, closing.Feeds, err)
			in.Held = closing
			change = entries.Plan(in, registry, complete, newest)
		}
	}
	change, err := r.writeChange(ctx, site, change)
	return change, errors.Join(err, held)
}

// newest is the newest revision that was ever seen.
func (r *registryReconciler) newest(site types.NamespacedName, view plan.SiteView) int64 {
	f := r.links.facts(site)
	return max(view.Site.Status.RegistryRevision, f.newestRevision(), f.reports.newestRevision())
}

// writeChange writes a change, and returns the part that was written: nothing while JetStream is away. An operator that leads writes the marker
// even if nothing changes: from then on the previous leader can write nothing.
func (r *registryReconciler) writeChange(ctx context.Context, site types.NamespacedName, change entries.Change) (entries.Change, error) {
	if change.Complete == nil {
		_, _, _, stands := r.links.facts(site).snapshot()
		if stands == nil || stands.Writer == r.links.writer {
			return change, nil
		}
		change.Complete = stands
	}
	err := r.links.write(ctx, site, change)
	if errors.Is(err, errNotConnected) {
		return entries.Change{}, nil
	}
	if err != nil {
		return entries.Change{}, err
	}
	r.log.Info("wrote the registry", "site", site.String(), "revision", change.Complete.Revision,
		"changed", len(slices.Concat(puts(change)...)), "removed", len(slices.Concat(deletes(change)...)), "instruments", change.Complete.Count,
		"feeds", change.Complete.Feeds, "consumers", change.Complete.Consumers, "readers", change.Complete.Readers, "mirrors", change.Complete.Mirrors)
	return change, nil
}

// registrySecrets are the Secrets whose tokens are in the registry.
func registrySecrets(in entries.Input) []workload.SecretNeed {
	needs := append(accept.ReadersSecrets(in.Site), tokenSecrets(in.Instruments)...)
	ofSite := map[string]bool{}
	for i := range in.Feeds {
		ofSite[in.Feeds[i].Name] = true
	}
	for i := range in.Consumers {
		if ofSite[in.Consumers[i].Spec.FeedRef.Name] || finding.Unreadable(&in.Consumers[i]) != "" {
			needs = append(needs, bus.ConsumerSecrets(in.Consumers[i:i+1])...)
		}
	}
	return needs
}

// siteFeeds are the Feeds of a Site and all FeedConsumers of its namespace. They must not be
// changed: they are the cache's own.
type siteFeeds struct {
	// feeds that name the Site, without those that are being deleted.
	feeds []v1alpha1.Feed
	// leaving are Feeds that are being deleted, and whose streams go.
	leaving   []string
	consumers []v1alpha1.FeedConsumer
	// orphans are FeedConsumers that have no Feed.
	orphans []string
}

func feedsOfSite(ctx context.Context, c client.Client, site types.NamespacedName) (found siteFeeds, err error) {
	var feeds v1alpha1.FeedList
	var consumers v1alpha1.FeedConsumerList
	if err := c.List(ctx, &feeds, client.InNamespace(site.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return found, err
	}
	if err := c.List(ctx, &consumers, client.InNamespace(site.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return found, err
	}
	var ofSite []v1alpha1.Feed
	for i := range feeds.Items {
		if feeds.Items[i].Spec.SiteRef.Name != site.Name {
			continue
		}
		ofSite = append(ofSite, feeds.Items[i])
		if feeds.Items[i].DeletionTimestamp == nil {
			found.feeds = append(found.feeds, feeds.Items[i])
		}
	}
	found.leaving, found.consumers = plan.LeavingFeeds(ofSite), consumers.Items
	found.orphans = bus.Orphans(feeds.Items, consumers.Items)
	return found, nil
}

// siteView reads what planners need of a Site, except what flows; its Site is nil if it does not exist.
func siteView(ctx context.Context, c client.Client, l *links, key types.NamespacedName) (plan.SiteView, error) {
	var sites v1alpha1.SiteList
	if err := c.List(ctx, &sites, client.UnsafeDisableDeepCopy); err != nil {
		return plan.SiteView{}, err
	}
	f := l.facts(key)
	view := plan.SiteView{Now: l.now(), Sites: sites.Items}
	view.Backends, _, view.Registry, _ = f.snapshot()
	view.Ledger = f.reports.ofLedger()
	view.Expiry, view.Pullers = f.reports.ofExpiry(), f.reports.ofPullers()
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
	gateways, err := gatewaysOf(ctx, c, site)
	if err != nil {
		return nil, nil, err
	}
	var instruments v1alpha1.InstrumentList
	err = c.List(ctx, &instruments, client.InNamespace(site.Namespace), client.MatchingFields{siteField: site.Name}, client.UnsafeDisableDeepCopy)
	return gateways, instruments.Items, err
}
