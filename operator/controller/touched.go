// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
)

// touched collects, by Site, the objects of events since the registry's controller last looked.
type touched struct {
	mu    sync.Mutex
	sites map[types.NamespacedName]touch
}

// touch is all of a Site, or these Instruments; nothing where there was no event.
type touch struct {
	all   bool
	names map[string]bool
}

func (t *touched) add(site types.NamespacedName, more touch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sites == nil {
		t.sites = map[types.NamespacedName]touch{}
	}
	is := t.sites[site]
	is.all = is.all || more.all
	if is.names == nil {
		is.names = map[string]bool{}
	}
	maps.Copy(is.names, more.names)
	t.sites[site] = is
}

func (t *touched) addAll(site types.NamespacedName) { t.add(site, touch{all: true}) }

func (t *touched) take(site types.NamespacedName) touch {
	t.mu.Lock()
	defer t.mu.Unlock()
	is := t.sites[site]
	delete(t.sites, site)
	return is
}

// hasEvent says whether there was an event of all of a Site, or of one of the named ones.
func (t *touched) hasEvent(site types.NamespacedName, names []string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	is := t.sites[site]
	return is.all || slices.ContainsFunc(names, func(name string) bool { return is.names[name] })
}

// byInstrument notes an Instrument, and names its Site.
func (t *touched) byInstrument(_ context.Context, o client.Object) []reconcile.Request {
	site := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.(*v1alpha1.Instrument).Spec.SiteRef.Name}
	t.add(site, touch{names: map[string]bool{o.GetName(): true}})
	return []reconcile.Request{{NamespacedName: site}}
}

// addAllOf notes all of the Sites that something is about.
func (t *touched) addAllOf(sites func(context.Context, client.Object) []reconcile.Request) func(context.Context, client.Object) []reconcile.Request {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		all := sites(ctx, o)
		for _, site := range all {
			t.addAll(site.NamespacedName)
		}
		return all
	}
}

// judgedSite is the state that other verdicts depended on when a Site was last judged.
type judgedSite struct {
	instruments map[string]judgedInstrument
	byPort      map[accept.Port]map[string]bool
}

type judgedInstrument struct {
	ports []accept.Port
	// Feeds and FeedConsumers depend on the fields that follow.
	labels map[string]string
	access v1alpha1.Access
	listed bool
	// unreadable: it cannot be decoded.
	unreadable bool
	// receives: it has listeners, so that no MirrorPartner pulls into it.
	receives bool
}

func newJudgedSite() *judgedSite {
	return &judgedSite{instruments: map[string]judgedInstrument{}, byPort: map[accept.Port]map[string]bool{}}
}

func (j *judgedSite) put(name string, is judgedInstrument) {
	for _, port := range j.instruments[name].ports {
		delete(j.byPort[port], name)
		if len(j.byPort[port]) == 0 {
			delete(j.byPort, port)
		}
	}
	j.instruments[name] = is
	for _, port := range is.ports {
		if j.byPort[port] == nil {
			j.byPort[port] = map[string]bool{}
		}
		j.byPort[port][name] = true
	}
}

// neighbours are the named Instruments and those that share a port with them, or with one
// of these, and so on; asks are the ports that the named ones ask for now.
func (j *judgedSite) neighbours(names map[string]bool, asks []accept.Port) map[string]bool {
	all, seen := maps.Clone(names), map[accept.Port]bool{}
	next := slices.Clone(asks)
	for name := range names {
		next = append(next, j.instruments[name].ports...)
	}
	for len(next) > 0 {
		port := next[len(next)-1]
		next = next[:len(next)-1]
		if seen[port] {
			continue
		}
		seen[port] = true
		for name := range j.byPort[port] {
			if !all[name] {
				all[name] = true
				next = append(next, j.instruments[name].ports...)
			}
		}
	}
	return all
}
