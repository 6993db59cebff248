// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/operator/plan/entries"
)

// links are the Sites' links and facts, by the Site's namespace and name.
type links struct {
	wakers *wakers
	log    *slog.Logger
	now    func() time.Time
	begun  time.Time

	// writer is this operator's name in registries: another one for each process.
	writer string
	// over has the reason why this operator must end; no other channel reports it.
	over chan error

	mu    sync.Mutex
	sites map[types.NamespacedName]*siteLink
}

type siteLink struct {
	facts *facts
	hash  string
	// link is nil while the Site is not accepted or doesn't exist.
	link   *link
	cancel context.CancelFunc
	// done is closed when the last link is over; nil before the first.
	done chan struct{}
	// forgotten: there is no such Site (any more), though something names it; the next of its
	// name waits for done.
	forgotten bool
	// unnamed: nothing names it either, and this entry is removed once the link is over.
	unnamed bool
}

func newLinks(w *wakers, log *slog.Logger, now func() time.Time) *links {
	return &links{wakers: w, log: log, now: now, begun: now(), writer: nuid.Next(), over: make(chan error, 1), sites: map[types.NamespacedName]*siteLink{}}
}

// Start implements manager.Runnable: it ends every link when ctx ends, or when another operator
// has taken this one's place, and then this one ends with an error.
func (l *links) Start(ctx context.Context) (err error) {
	select {
	case <-ctx.Done():
	case err = <-l.over:
	}
	for _, key := range l.keys() {
		if done := l.disconnect(key); done != nil {
			<-done
		}
	}
	return err
}

// ensureSite returns the entry of a Site; a new one if there is none. The caller holds the lock.
func (l *links) ensureSite(key types.NamespacedName) *siteLink {
	s := l.sites[key]
	if s == nil {
		s = &siteLink{facts: l.newFacts(key)}
		l.sites[key] = s
	}
	return s
}

// open returns the facts of a Site that something names, whether or not it exists.
func (l *links) open(key types.NamespacedName) *facts {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sites[key] == nil {
		l.ensureSite(key).forgotten = true // until a reconciliation finds the Site
	}
	s := l.ensureSite(key)
	s.unnamed = false
	return s.facts
}

// newFacts returns the initial facts of a Site, whose changes wake the controllers.
func (l *links) newFacts(key types.NamespacedName) *facts {
	f := newFacts(l.now(), l.log.With("site", key.String()))
	r := f.reports
	r.gatewayChanged = func(pool string, followed bool) { l.wakePool(key, f, pool, followed) }
	r.senderChanged = func(instrument string) {
		l.wakers.instruments.wake(types.NamespacedName{Namespace: key.Namespace, Name: instrument})
	}
	r.dataArrived = func(instrument string) {
		if !f.isFlowing(instrument) {
			r.senderChanged(instrument)
		}
	}
	r.refused, r.damageChanged = r.senderChanged, r.senderChanged
	r.feedServerChanged = func(server string, followed bool) { l.wakeServer(key, f, server, followed) }
	r.ledgerChanged = func() { l.wakers.sites.wake(key) }
	r.mirrorChanged = func(partner string) { wakeAllOf(&l.wakers.mirrors, key.Namespace, []string{partner}) }
	r.consumerChanged = func(consumer string) { wakeAllOf(&l.wakers.consumers, key.Namespace, []string{consumer}) }
	return f
}

// facts returns the facts of a Site, without storing any if there are none.
func (l *links) facts(key types.NamespacedName) *facts {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.sites[key]; s != nil {
		return s.facts
	}
	f := l.newFacts(key)
	f.begun = l.begun // nothing is kept of it: else its deletion would begin to wait each time
	return f
}

// keys name the Sites that exist.
func (l *links) keys() []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []types.NamespacedName
	for key, s := range l.sites {
		if !s.forgotten {
			all = append(all, key)
		}
	}
	return all
}

// forget drops the facts of a Site that is gone, and returns whether there were any.
func (l *links) forget(key types.NamespacedName) bool {
	l.disconnect(key)
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sites[key]
	if s == nil || s.forgotten {
		return false
	}
	s.forgotten, s.facts = true, l.newFacts(key)
	return true
}

// drop forgets all of a Site that is gone and that nothing names, as soon as its link has ended. It returns whether it ended a link:
// possibly that of a Site that was created meanwhile.
func (l *links) drop(key types.NamespacedName) bool {
	linked := l.linked(key) != nil
	l.disconnect(key)
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sites[key]
	if s == nil {
		return false
	}
	s.forgotten, s.unnamed = true, true
	done := s.done
	if done == nil {
		delete(l.sites, key)
		return linked
	}
	go func() {
		<-done
		l.mu.Lock()
		defer l.mu.Unlock()
		if s.unnamed && l.sites[key] == s {
			delete(l.sites, key)
		}
	}()
	return linked
}

// known is how many Sites something is kept of: those that exist, and those that something names.
func (l *links) known() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sites)
}

// noteExists notes that a Site is there, whatever its spec.
func (l *links) noteExists(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.ensureSite(key)
	s.forgotten, s.unnamed = false, false
}

// refuse ends the link of a Site that exists and is not accepted.
func (l *links) refuse(key types.NamespacedName) {
	l.noteExists(key)
	l.disconnect(key)
}

// connect ensures that the Site is linked to its declared backends, and to nothing else.
func (l *links) connect(key types.NamespacedName, want wanted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.ensureSite(key)
	if s.link != nil && s.hash == want.hash {
		return
	}
	if s.cancel != nil {
		s.cancel()
	}
	ctx, cancel := context.WithCancel(context.Background())
	next := &link{want: want, stood: want.stood, facts: s.facts, log: l.log.With("site", key.String()), now: l.now,
		changed:   func() { l.wakers.sites.wake(key); l.wakers.registries.wake(key) },
		connected: func() { l.wakeAll(key, s.facts) },
		feedFound: func(feed string) { wakeAllOf(&l.wakers.feeds, key.Namespace, []string{feed}) },
		consumerFound: func(consumer string) {
			wakeAllOf(&l.wakers.consumers, key.Namespace, []string{consumer})
		},
		writer: l.writer,
		superseded: func(err error) {
			select {
			case l.over <- fmt.Errorf("the registry of Site %s: %w", key, err):
			default: // it ends already
			}
		},
	}
	// Before the link runs: some of what it finds it finds once, as a Secret that cannot be read.
	s.facts.setBackend(theObjectStore, nil)
	s.facts.setBackend(theJetStream, nil)
	s.facts.setStanding(nil)
	before, done := s.done, make(chan struct{})
	go func() {
		defer close(done)
		if before != nil {
			<-before
		}
		next.run(ctx)
	}()
	s.link, s.hash, s.cancel, s.done, s.forgotten, s.unnamed = next, want.hash, cancel, done, false, false
}

// disconnect ends the Site's link, and returns a channel that is closed when it is over. The known facts of the Site stay.
func (l *links) disconnect(key types.NamespacedName) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sites[key]
	if s == nil {
		return nil
	}
	if s.cancel != nil {
		s.cancel()
	}
	s.link, s.hash, s.cancel = nil, "", nil
	s.facts.setBackend(theObjectStore, nil)
	s.facts.setBackend(theJetStream, nil)
	return s.done
}

// linked returns a Site's link; nil if it has none.
func (l *links) linked(key types.NamespacedName) *link {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.sites[key]; s != nil {
		return s.link
	}
	return nil
}

// write changes a Site's registry.
func (l *links) write(ctx context.Context, key types.NamespacedName, change entries.Change) error {
	link := l.linked(key)
	if link == nil {
		return errNotConnected
	}
	return link.write(ctx, change)
}

// narrow removes from a Site's durables the subjects that their consumers may not read according to the plan.
func (l *links) narrow(ctx context.Context, key types.NamespacedName) error {
	link := l.linked(key)
	if link == nil {
		return errNotConnected
	}
	return link.narrow(ctx)
}

// publish sends a message to a Site's JetStream.
func (l *links) publish(key types.NamespacedName, m *nats.Msg) error {
	link := l.linked(key)
	if link == nil {
		return errNotConnected
	}
	return link.publish(m)
}

// wakeServer wakes a FeedServer and the Site's FeedConsumers; where a pod only followed the
// registry, the FeedConsumers that wait for that.
func (l *links) wakeServer(site types.NamespacedName, f *facts, server string, followed bool) {
	_, consumers := f.feedNames()
	if followed {
		consumers = f.unsettled(kindFeedConsumer)
	} else {
		l.wakers.servers.wake(types.NamespacedName{Namespace: site.Namespace, Name: server})
	}
	wakeAllOf(&l.wakers.consumers, site.Namespace, consumers)
}

// wakePool wakes a pool and its Instruments; where a pod only followed the
// registry, those that wait for that.
func (l *links) wakePool(site types.NamespacedName, f *facts, pool string, followed bool) {
	if !followed || slices.Contains(f.unsettled(kindIngestGateway), pool) {
		l.wakers.gateways.wake(types.NamespacedName{Namespace: site.Namespace, Name: pool})
	}
	for _, name := range f.receivedBy(pool, followed) {
		l.wakers.instruments.wake(types.NamespacedName{Namespace: site.Namespace, Name: name})
	}
}

func (l *links) wakeAll(site types.NamespacedName, f *facts) {
	l.wakers.registries.wake(site)
	l.wakers.sites.wake(site)
	for _, r := range f.reports.ofGateways() {
		l.wakers.gateways.wake(types.NamespacedName{Namespace: site.Namespace, Name: r.Pool})
	}
	for _, r := range f.reports.ofFeedServers() {
		l.wakers.servers.wake(types.NamespacedName{Namespace: site.Namespace, Name: r.FeedServer})
	}
	wakeAllOf(&l.wakers.instruments, site.Namespace, f.instruments())
	feeds, consumers := f.feedNames()
	wakeAllOf(&l.wakers.feeds, site.Namespace, feeds)
	wakeAllOf(&l.wakers.consumers, site.Namespace, consumers)
	wakeAllOf(&l.wakers.mirrors, site.Namespace, f.mirrorNames())
}
