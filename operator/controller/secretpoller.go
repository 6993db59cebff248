// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
)

const (
	// pollEvery is how soon a change of a Secret shows.
	pollEvery = 3 * time.Second
	// pollRate is how many Secrets a second are asked for at most. A Site needs
	// about five, and one for each that holds tokens of its Instruments.
	pollRate = 10
	// pollTimeout bounds the wait for one answer.
	pollTimeout = 10 * time.Second
)

// secretPoller asks for the version of each Secret that a Site, a pool, a FeedServer or an
// Instrument uses, and wakes those whose Secret was made, changed or deleted.
//
// It polls, since a watch would need the right to watch Secrets. RBAC cannot
// grant that for metadata alone, nor for names that only the Sites know: whoever
// may list or watch Secrets is given the contents of all in the namespace. To
// get them by name, which the operator may anyway, gives away none whose name
// is not known. The API server answers with metadata only.
type secretPoller struct {
	client  client.Client // the cache of Sites and pools
	reader  client.Reader // reads past it
	secrets *secretReader
	wakers  *wakers
	log     *slog.Logger
}

// Start implements manager.Runnable.
func (p *secretPoller) Start(ctx context.Context) error {
	limit := rate.NewLimiter(pollRate, 1)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := p.poll(ctx, limit); err != nil && ctx.Err() == nil {
			p.log.Warn("cannot see whether Secrets have changed", "error", err)
		}
	}
}

// secretUsers are who a Secret is for: Sites, pools, FeedServers, FeedConsumers, and the
// registries of Sites whose tokens it holds.
type secretUsers struct{ sites, pools, servers, registries, consumers []types.NamespacedName }

// poll looks once at each Secret that was read, and forgets those that nobody uses any more.
func (p *secretPoller) poll(ctx context.Context, limit *rate.Limiter) error {
	users, err := p.users(ctx)
	if err != nil {
		return err
	}
	var failed error
	for _, key := range p.secrets.known() {
		use := users[key]
		if use == nil {
			p.secrets.forget(key)
			continue
		}
		if err := limit.Wait(ctx); err != nil {
			return err
		}
		is, err := p.version(ctx, key)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if p.secrets.compare(key, is) {
			for _, site := range use.sites {
				p.wakers.sites.wake(site)
			}
			for _, pool := range use.pools {
				p.wakers.gateways.wake(pool)
			}
			for _, server := range use.servers {
				p.wakers.servers.wake(server)
			}
			for _, site := range use.registries {
				p.wakers.registries.wake(site)
			}
			for _, consumer := range use.consumers {
				p.wakers.consumers.wake(consumer)
			}
		}
	}
	return failed
}

// users returns who uses which Secret.
func (p *secretPoller) users(ctx context.Context) (map[types.NamespacedName]*secretUsers, error) {
	var sites v1alpha1.SiteList
	var pools v1alpha1.IngestGatewayList
	var servers v1alpha1.FeedServerList
	var instruments v1alpha1.InstrumentList
	var feeds v1alpha1.FeedList
	var consumers v1alpha1.FeedConsumerList
	for _, list := range []client.ObjectList{&sites, &pools, &servers, &instruments, &feeds, &consumers} {
		if err := p.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
	}
	users := map[types.NamespacedName]*secretUsers{}
	of := func(namespace, name string) *secretUsers {
		key := types.NamespacedName{Namespace: namespace, Name: name}
		if users[key] == nil {
			users[key] = &secretUsers{}
		}
		return users[key]
	}
	needs := map[types.NamespacedName][]plan.SecretNeed{}
	for i := range sites.Items {
		site := client.ObjectKeyFromObject(&sites.Items[i])
		needs[site] = siteSecrets(&sites.Items[i])
		for _, need := range needs[site] {
			u := of(site.Namespace, need.Name)
			u.sites = append(u.sites, site)
		}
		for _, need := range plan.ReadersSecrets(&sites.Items[i]) {
			u := of(site.Namespace, need.Name)
			u.registries = append(u.registries, site)
		}
		u := of(site.Namespace, plan.JetStreamSecret(plan.ArchivistName(&sites.Items[i])))
		u.sites = append(u.sites, site)
	}
	forConsumers := map[types.NamespacedName][]plan.SecretNeed{}
	for i := range sites.Items {
		site := client.ObjectKeyFromObject(&sites.Items[i])
		forConsumers[site] = slices.Concat(needs[site], plan.ConsumerAccountSecrets(&sites.Items[i]))
	}
	consumersUse(feeds.Items, consumers.Items, forConsumers, of)
	for i := range pools.Items {
		pool := client.ObjectKeyFromObject(&pools.Items[i])
		own := of(pool.Namespace, plan.JetStreamSecret(pool.Name))
		own.pools = append(own.pools, pool)
		site := types.NamespacedName{Namespace: pool.Namespace, Name: pools.Items[i].Spec.SiteRef.Name}
		for _, need := range slices.Concat(needs[site], plan.PoolSecrets(&pools.Items[i])) {
			u := of(pool.Namespace, need.Name)
			u.pools = append(u.pools, pool)
		}
	}
	serversUse(servers.Items, sites.Items, of)
	for i := range instruments.Items {
		inst := &instruments.Items[i]
		for _, need := range plan.TokenSecrets(inst) {
			u := of(inst.Namespace, need.Name)
			u.registries = append(u.registries, types.NamespacedName{Namespace: inst.Namespace, Name: inst.Spec.SiteRef.Name})
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
		needs := []plan.SecretNeed{{Name: plan.JetStreamSecret(plan.FeedServerName(server.Name))}}
		if site := byName[types.NamespacedName{Namespace: server.Namespace, Name: servers[i].Spec.SiteRef.Name}]; site != nil {
			needs = append(needs, plan.FeedServerSecrets(site, &servers[i])...)
		}
		for _, need := range needs {
			u := of(server.Namespace, need.Name)
			u.servers = append(u.servers, server)
		}
	}
}

// consumersUse adds the Secrets of FeedConsumers, and those of the Sites of their Feeds.
func consumersUse(feeds []v1alpha1.Feed, consumers []v1alpha1.FeedConsumer, needs map[types.NamespacedName][]plan.SecretNeed, of func(namespace, name string) *secretUsers) {
	siteOf := map[types.NamespacedName]types.NamespacedName{}
	for i := range feeds {
		siteOf[client.ObjectKeyFromObject(&feeds[i])] = types.NamespacedName{Namespace: feeds[i].Namespace, Name: feeds[i].Spec.SiteRef.Name}
	}
	for i := range consumers {
		c := &consumers[i]
		site := siteOf[types.NamespacedName{Namespace: c.Namespace, Name: c.Spec.FeedRef.Name}]
		u := of(c.Namespace, plan.ConsumerSecretName(c))
		u.consumers = append(u.consumers, client.ObjectKeyFromObject(c))
		u.registries = append(u.registries, site)
		for _, need := range needs[site] {
			u := of(site.Namespace, need.Name)
			u.consumers = append(u.consumers, client.ObjectKeyFromObject(c))
		}
	}
}

// version asks for a Secret's metadata.
func (p *secretPoller) version(ctx context.Context, key types.NamespacedName) (secretVersion, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := p.reader.Get(ctx, key, secret)
	if gone(err) {
		return secretVersion{}, nil
	}
	if err != nil {
		return secretVersion{}, fmt.Errorf("read the metadata of Secret %s: %w", key, err)
	}
	return secretVersion{secret.UID, secret.ResourceVersion}, nil
}
