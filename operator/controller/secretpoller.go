// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// pollEvery is how soon a change of a Secret shows.
	pollEvery = 3 * time.Second
	// ownRate is how many Secrets of Sites, pools and FeedServers a second are asked for at most. A Site
	// needs about five and a pool two: enough for thirty Sites in each round.
	ownRate = 100
	// defaultSecretRate is how many of the other Secrets a second are asked for at most: 1,000
	// with tokens and 500 of FeedConsumers in one round. The cost of one is stated in
	// operator/README.md.
	defaultSecretRate = 500
	// backstopRate is the same while Secrets are watched.
	backstopRate = 10
	// pollAtOnce is how many answers are waited for at once: at 10 ms each, 1,600 a second.
	pollAtOnce = 16
	// pollTimeout bounds the wait for one answer.
	pollTimeout = 10 * time.Second
)

// secretPoller asks for the version of each Secret that a Site, a pool, a FeedServer, an Instrument or a FeedConsumer uses, and wakes those
// whose Secret was created, changed or deleted.
//
// It polls, since a watch would need the right to watch Secrets. RBAC cannot grant that for metadata alone, nor for a label, nor for names
// that only the Sites know: a client that may list or watch Secrets gets the contents of all in the namespace. To get them by name, which
// the operator may anyway, exposes none whose name is not known. The API server answers with metadata only, and from its memory
// (resourceVersion 0), so that etcd is not involved. If a version differs there, it is requested once more, exactly, before anything is
// woken: that memory may be behind, and one of several API servers may be ahead of the others.
//
// Secrets of Sites, pools and FeedServers have a round of their own: however many tokens there are, and however long the API server takes
// for them, changes of a Site's own Secrets are found as soon.
//
// If the operator may watch (--watch-secrets, see secretWatch), a third round compares with the versions from the watch, which costs no
// request, and the round of tokens continues slowly: it finds changes that a watch misses once it has ended silently.
type secretPoller struct {
	client  client.Client // the cache of Sites and pools
	reader  client.Reader // reads past it
	watch   *secretWatch  // nil if the operator may not watch
	secrets *secretReader
	wakers  *wakers
	touched *touched
	rate    rate.Limit
	log     *slog.Logger
}

// secretRound looks, again and again, at some of the Secrets.
type secretRound struct {
	every time.Duration
	// limit of the requests, at each beginning of a round; nil if there is none.
	limit func() rate.Limit
	// of chooses the Secrets by who uses them.
	of func(*secretUsers) bool
	// version of a Secret, as far as it is known cheaply.
	version func(context.Context, types.NamespacedName) (secretVersion, error)
}

// Start implements manager.Runnable.
func (p *secretPoller) Start(ctx context.Context) error {
	own := secretRound{pollEvery, func() rate.Limit { return ownRate }, (*secretUsers).ofSites, p.recent}
	others := secretRound{pollEvery, p.othersRate, (*secretUsers).ofOthers, p.recent}
	var all sync.WaitGroup
	all.Go(func() { p.run(ctx, own) })
	all.Go(func() { p.run(ctx, others) })
	if p.watch != nil {
		watched := secretRound{watchEvery, nil, func(*secretUsers) bool { return true }, p.watch.version}
		all.Go(func() {
			if p.watch.start(ctx) {
				p.run(ctx, watched)
			}
		})
	}
	all.Wait()
	return nil
}

func (p *secretPoller) othersRate() rate.Limit {
	if p.watch != nil && p.watch.isReliable() {
		return min(backstopRate, p.rate)
	}
	return p.rate
}

func (p *secretPoller) run(ctx context.Context, round secretRound) {
	tick := time.NewTicker(round.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := p.poll(ctx, round); err != nil && ctx.Err() == nil {
			p.log.Warn("cannot see whether Secrets have changed", "error", err)
		}
	}
}

// poll looks once at each Secret of a round that was read, and forgets those that are no longer used.
func (p *secretPoller) poll(ctx context.Context, round secretRound) error {
	known := p.secrets.known() // before the users: Secrets that are read meanwhile have users that are not listed yet
	users, err := p.users(ctx)
	if err != nil {
		return err
	}
	limiter := rate.NewLimiter(rate.Inf, 1)
	if round.limit != nil {
		limiter.SetLimit(round.limit())
	}
	var asked errgroup.Group
	asked.SetLimit(pollAtOnce)
	failed := &failures{}
	for _, key := range known {
		use := users[key]
		if use == nil {
			p.secrets.forget(key)
			continue
		}
		if !round.of(use) {
			continue
		}
		if err := limiter.Wait(ctx); err != nil {
			break // ctx is over
		}
		asked.Go(func() error {
			failed.add(p.checkSecret(ctx, round, key, use))
			return nil
		})
	}
	_ = asked.Wait()
	return failed.first()
}

// checkSecret compares a Secret with the version that was read, and wakes those who use it.
func (p *secretPoller) checkSecret(ctx context.Context, round secretRound, key types.NamespacedName, use *secretUsers) error {
	is, err := round.version(ctx, key)
	if err != nil || !p.secrets.differs(key, is) {
		return err
	}
	if is, err = p.exact(ctx, key); err != nil {
		return err
	}
	if p.secrets.compare(key, is) {
		p.wakeUsers(use)
	}
	return nil
}

// wakeUsers wakes those who use a Secret.
func (p *secretPoller) wakeUsers(use *secretUsers) {
	for _, site := range use.sites {
		p.wakers.sites.wake(site)
	}
	for _, pool := range use.pools {
		p.wakers.gateways.wake(pool)
	}
	for _, server := range use.servers {
		p.wakers.servers.wake(server)
	}
	for _, mirror := range use.mirrors {
		p.wakers.mirrors.wake(mirror)
	}
	for _, site := range use.registries {
		p.wakers.registries.wake(site)
	}
	for site, names := range use.instruments {
		p.touched.add(site, touch{names: names})
		p.wakers.registries.wakeFor(site)
	}
	for _, consumer := range use.consumers {
		p.wakers.consumers.wake(consumer)
	}
}

// recent is a Secret's version as the API server remembers it; exact is the stored version.
func (p *secretPoller) recent(ctx context.Context, key types.NamespacedName) (secretVersion, error) {
	return p.version(ctx, key, &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: "0"}})
}

func (p *secretPoller) exact(ctx context.Context, key types.NamespacedName) (secretVersion, error) {
	return p.version(ctx, key)
}

// version asks for a Secret's metadata.
func (p *secretPoller) version(ctx context.Context, key types.NamespacedName, opts ...client.GetOption) (secretVersion, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	secret := secretMetadata()
	err := p.reader.Get(ctx, key, secret, opts...)
	if isGone(err) {
		return secretVersion{}, nil
	}
	if err != nil {
		return secretVersion{}, fmt.Errorf("read the metadata of Secret %s: %w", key, err)
	}
	return secretVersion{secret.UID, secret.ResourceVersion}, nil
}

func secretMetadata() *metav1.PartialObjectMetadata {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return secret
}

// failures count failures, and keep the first: a thousand say no more than one.
type failures struct {
	mu    sync.Mutex
	one   error
	count int
}

func (f *failures) add(err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count++; f.one == nil {
		f.one = err
	}
}

func (f *failures) first() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count > 1 {
		return errors.Join(f.one, fmt.Errorf("and %d more", f.count-1))
	}
	return f.one
}
