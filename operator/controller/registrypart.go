// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/entries"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

// judgedAs is the state that decides whether some Instruments can be judged alone.
func judgedAs(instruments []v1alpha1.Instrument, gateways []v1alpha1.IngestGateway, listed map[string]bool) *judgedSite {
	j := newJudgedSite()
	for i := range instruments {
		j.put(instruments[i].Name, judgedInstrumentOf(&instruments[i], gateways, listed))
	}
	return j
}

func judgedInstrumentOf(inst *v1alpha1.Instrument, gateways []v1alpha1.IngestGateway, listed map[string]bool) judgedInstrument {
	return judgedInstrument{
		ports: accept.Ports(inst, gateways), labels: inst.Labels, access: inst.Spec.Access, listed: listed[inst.Name],
		unreadable: finding.Unreadable(inst) != "", receives: len(inst.Spec.Listeners) > 0,
	}
}

// judgeSome judges the named Instruments, and those whose verdicts depend on theirs. It returns false if more depends on them: Feeds and
// FeedConsumers, which follow labels that a Feed selects by, access and the content of the registry.
func (r *registryReconciler) judgeSome(ctx context.Context, site types.NamespacedName, was *judgedSite, names map[string]bool) (done bool, err error) {
	view, err := siteView(ctx, r.client, r.links, site)
	if err != nil || view.Site == nil || finding.Unreadable(view.Site) != "" {
		return false, err
	}
	accepted := plan.SiteAccepted(view)
	f := r.links.facts(site)
	_, bus, stands, complete := f.snapshot()
	if !accepted.OK() || !bus.Up || complete == nil {
		return false, nil
	}
	gateways, err := gatewaysOf(ctx, r.client, site)
	if err != nil {
		return false, err
	}
	in := entries.Input{Site: view.Site}
	if in.Instruments, err = r.closure(ctx, site, was, names, gateways); err != nil || in.Instruments == nil {
		return false, err
	}
	if in.Secrets, err = r.secrets.read(ctx, site.Namespace, tokenSecrets(in.Instruments)); err != nil {
		return false, err
	}
	in.Verdicts = accept.Instruments(view.Site, accepted, gateways, in.Instruments, in.Secrets)
	listed := accept.Listed(in.Instruments, in.Verdicts, stands.Entries)
	var all []string
	next := map[string]judgedInstrument{}
	for i := range in.Instruments {
		inst := &in.Instruments[i]
		is, before := judgedInstrumentOf(inst, gateways, listed), was.instruments[inst.Name]
		if alike, err := r.selectedAlike(ctx, site, before.labels, is.labels); err != nil || !alike || !is.readAlike(before) {
			return false, err
		}
		next[inst.Name], all = is, append(all, inst.Name)
	}
	change, err := r.writeChange(ctx, site, entries.PlanPart(in, all, stands, *complete, r.newest(site, view)))
	if err != nil {
		return false, err
	}
	for name, is := range next {
		was.put(name, is)
	}
	changed := f.judgeSome(in.Instruments, in.Verdicts)
	for _, entry := range change.Put {
		changed = append(changed, entry.Instrument)
	}
	wakeAllOf(&r.wakers.instruments, site.Namespace, changed)
	wakeAllOf(&r.wakers.gateways, site.Namespace, f.updateReplicated(gateways))
	return true, nil
}

// readAlike returns whether an Instrument is unchanged for FeedConsumers of Feeds that select it.
func (after judgedInstrument) readAlike(before judgedInstrument) bool {
	return after.listed == before.listed && after.receives == before.receives && !after.unreadable && !before.unreadable && reflect.DeepEqual(after.access, before.access)
}

// selectedAlike says whether the Feeds and MirrorPartners of a Site select an Instrument whose labels were others as they did.
func (r *registryReconciler) selectedAlike(ctx context.Context, site types.NamespacedName, before, after map[string]string) (bool, error) {
	if maps.Equal(before, after) {
		return true, nil
	}
	var feeds v1alpha1.FeedList
	err := r.client.List(ctx, &feeds, client.InNamespace(site.Namespace), client.MatchingFields{siteField: site.Name}, client.UnsafeDisableDeepCopy)
	if err != nil || !accept.SelectAlike(feeds.Items, before, after) {
		return false, err
	}
	mirrors, err := mirrorsOfSite(ctx, r.client, site)
	return accept.MirrorsSelectAlike(mirrors, before, after), err
}

// changedInstruments returns the Instruments by which Feeds and FeedConsumers may be judged otherwise than they were.
func (j *judgedSite) changedInstruments(next *judgedSite) (names []string) {
	if next == nil {
		return nil
	}
	for name, is := range next.instruments {
		if was, known := j.instruments[name]; !known || !is.readAlike(was) || !maps.Equal(is.labels, was.labels) {
			names = append(names, name)
		}
	}
	for name := range j.instruments {
		if _, stays := next.instruments[name]; !stays {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// closure reads the named Instruments and all whose verdicts depend on theirs; nil if one of them is new or gone.
func (r *registryReconciler) closure(ctx context.Context, site types.NamespacedName, was *judgedSite, names map[string]bool, gateways []v1alpha1.IngestGateway) ([]v1alpha1.Instrument, error) {
	read := map[string]*v1alpha1.Instrument{}
	get := func(name string) (bool, error) {
		inst, err := optional(ctx, r.client, types.NamespacedName{Namespace: site.Namespace, Name: name}, &v1alpha1.Instrument{})
		if err != nil || inst == nil || inst.Spec.SiteRef.Name != site.Name {
			return false, err
		}
		read[name] = inst
		_, known := was.instruments[name]
		return known, nil
	}
	var asks []accept.Port
	for name := range names {
		if known, err := get(name); err != nil || !known {
			return nil, err
		}
		asks = append(asks, accept.Ports(read[name], gateways)...)
	}
	for name := range was.neighbours(names, asks) {
		if read[name] != nil {
			continue
		}
		if known, err := get(name); err != nil || !known {
			return nil, err
		}
	}
	all := make([]v1alpha1.Instrument, 0, len(read))
	for _, name := range slices.Sorted(maps.Keys(read)) {
		all = append(all, *read[name])
	}
	return all, nil
}

func tokenSecrets(instruments []v1alpha1.Instrument) (needs []workload.SecretNeed) {
	for i := range instruments {
		needs = append(needs, accept.TokenSecrets(&instruments[i])...)
	}
	return needs
}

// gatewaysOf reads the pools that name a Site. They must not be changed: they are the
// cache's own.
func gatewaysOf(ctx context.Context, c client.Client, site types.NamespacedName) ([]v1alpha1.IngestGateway, error) {
	var gateways v1alpha1.IngestGatewayList
	err := c.List(ctx, &gateways, client.InNamespace(site.Namespace), client.MatchingFields{siteField: site.Name}, client.UnsafeDisableDeepCopy)
	return gateways.Items, err
}
