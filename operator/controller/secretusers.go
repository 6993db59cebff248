// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/workload"
)

// secretUsers are who a Secret is for: Sites, pools, FeedServers, MirrorPartners, FeedConsumers, the registries of Sites
// that depend on it as a whole, and, by Site, the Instruments whose tokens it holds.
type secretUsers struct {
	sites, pools, servers, mirrors, registries, consumers []types.NamespacedName
	instruments                                           map[types.NamespacedName]map[string]bool
}

// ofSites says whether Sites, pools or FeedServers need a Secret to work at all.
func (u *secretUsers) ofSites() bool { return len(u.sites)+len(u.pools)+len(u.servers) > 0 }

// ofOthers says whether none does: the Secret holds tokens, or is a FeedConsumer's.
func (u *secretUsers) ofOthers() bool { return !u.ofSites() }

func (u *secretUsers) add(site types.NamespacedName, instrument string) {
	if u.instruments == nil {
		u.instruments = map[types.NamespacedName]map[string]bool{}
	}
	if u.instruments[site] == nil {
		u.instruments[site] = map[string]bool{}
	}
	u.instruments[site][instrument] = true
}

// users returns who uses which Secret.
func (p *secretPoller) users(ctx context.Context) (map[types.NamespacedName]*secretUsers, error) {
	var sites v1alpha1.SiteList
	var pools v1alpha1.IngestGatewayList
	var servers v1alpha1.FeedServerList
	var instruments v1alpha1.InstrumentList
	var feeds v1alpha1.FeedList
	var consumers v1alpha1.FeedConsumerList
	var mirrors v1alpha1.MirrorPartnerList
	for _, list := range []client.ObjectList{&sites, &pools, &servers, &feeds, &consumers, &mirrors} {
		if err := p.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
	}
	if err := p.client.List(ctx, &instruments, client.MatchingFields{tokensField: hasTokens}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	users := map[types.NamespacedName]*secretUsers{}
	of := func(namespace, name string) *secretUsers {
		key := types.NamespacedName{Namespace: namespace, Name: name}
		if users[key] == nil {
			users[key] = &secretUsers{}
		}
		return users[key]
	}
	needs := map[types.NamespacedName][]workload.SecretNeed{}
	for i := range sites.Items {
		site := client.ObjectKeyFromObject(&sites.Items[i])
		needs[site] = siteSecrets(&sites.Items[i])
		for _, need := range needs[site] {
			u := of(site.Namespace, need.Name)
			u.sites = append(u.sites, site)
		}
		for _, need := range accept.ReadersSecrets(&sites.Items[i]) {
			u := of(site.Namespace, need.Name)
			u.registries = append(u.registries, site)
		}
		u := of(site.Namespace, workload.JetStreamSecret(workload.ArchivistName(&sites.Items[i])))
		u.sites = append(u.sites, site)
	}
	forConsumers := map[types.NamespacedName][]workload.SecretNeed{}
	for i := range sites.Items {
		site := client.ObjectKeyFromObject(&sites.Items[i])
		forConsumers[site] = slices.Concat(needs[site], workload.ConsumerAccountSecrets(&sites.Items[i]))
	}
	consumersUse(feeds.Items, consumers.Items, forConsumers, of)
	for i := range pools.Items {
		pool := client.ObjectKeyFromObject(&pools.Items[i])
		own := of(pool.Namespace, workload.JetStreamSecret(pool.Name))
		own.pools = append(own.pools, pool)
		site := types.NamespacedName{Namespace: pool.Namespace, Name: pools.Items[i].Spec.SiteRef.Name}
		for _, need := range slices.Concat(needs[site], workload.PoolSecrets(&pools.Items[i])) {
			u := of(pool.Namespace, need.Name)
			u.pools = append(u.pools, pool)
		}
	}
	serversUse(servers.Items, sites.Items, of)
	mirrorsUse(mirrors.Items, sites.Items, of)
	for i := range instruments.Items {
		inst := &instruments.Items[i]
		for _, need := range accept.TokenSecrets(inst) {
			of(inst.Namespace, need.Name).add(types.NamespacedName{Namespace: inst.Namespace, Name: inst.Spec.SiteRef.Name}, inst.Name)
		}
	}
	return users, nil
}

// serversUse adds the Secrets of FeedServers, their own and those of their Sites.
func serversUse(servers []v1alpha1.FeedServer, sites []v1alpha1.Site, of func(namespace, name string) *secretUsers) {
	byName := map[types.NamespacedName]*v1alpha1.Site{}
	for i := range sites {
		byName[client.ObjectKeyFromObject(&sites[i])] = &sites[i]
	}
	for i := range servers {
		server := client.ObjectKeyFromObject(&servers[i])
		needs := []workload.SecretNeed{{Name: workload.JetStreamSecret(workload.FeedServerName(server.Name))}}
		if site := byName[types.NamespacedName{Namespace: server.Namespace, Name: servers[i].Spec.SiteRef.Name}]; site != nil {
			needs = append(needs, workload.FeedServerSecrets(site, &servers[i])...)
		}
		for _, need := range needs {
			u := of(server.Namespace, need.Name)
			u.servers = append(u.servers, server)
		}
	}
}

// mirrorsUse adds the Secrets of MirrorPartners, their own and those of their Sites.
func mirrorsUse(mirrors []v1alpha1.MirrorPartner, sites []v1alpha1.Site, of func(namespace, name string) *secretUsers) {
	byName := map[types.NamespacedName]*v1alpha1.Site{}
	for i := range sites {
		byName[client.ObjectKeyFromObject(&sites[i])] = &sites[i]
	}
	for i := range mirrors {
		mirror := client.ObjectKeyFromObject(&mirrors[i])
		needs := []workload.SecretNeed{{Name: workload.JetStreamSecret(workload.MirrorName(mirror.Name))}}
		if site := byName[types.NamespacedName{Namespace: mirror.Namespace, Name: mirrors[i].Spec.SiteRef.Name}]; site != nil {
			needs = append(needs, workload.MirrorSecrets(site, &mirrors[i])...)
		}
		for _, need := range needs {
			u := of(mirror.Namespace, need.Name)
			u.mirrors = append(u.mirrors, mirror)
		}
	}
}

// consumersUse adds the Secrets of FeedConsumers, and those of the Sites of their Feeds.
func consumersUse(feeds []v1alpha1.Feed, consumers []v1alpha1.FeedConsumer, needs map[types.NamespacedName][]workload.SecretNeed, of func(namespace, name string) *secretUsers) {
	siteOf := map[types.NamespacedName]types.NamespacedName{}
	for i := range feeds {
		siteOf[client.ObjectKeyFromObject(&feeds[i])] = types.NamespacedName{Namespace: feeds[i].Namespace, Name: feeds[i].Spec.SiteRef.Name}
	}
	for i := range consumers {
		c := &consumers[i]
		site := siteOf[types.NamespacedName{Namespace: c.Namespace, Name: c.Spec.FeedRef.Name}]
		u := of(c.Namespace, bus.ConsumerSecretName(c))
		u.consumers = append(u.consumers, client.ObjectKeyFromObject(c))
		u.registries = append(u.registries, site)
		for _, need := range needs[site] {
			u := of(site.Namespace, need.Name)
			u.consumers = append(u.consumers, client.ObjectKeyFromObject(c))
		}
	}
}
