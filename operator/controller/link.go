// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/finding"
)

const (
	// tryEvery is how often a backend that answers is tried again, and
	// retryEvery one that doesn't.
	tryEvery   = 15 * time.Second
	retryEvery = 3 * time.Second
	// tryTimeout bounds one try, connectTimeout the wait for a connection.
	tryTimeout     = 10 * time.Second
	connectTimeout = 5 * time.Second
)

// errNotConnected: the request needs JetStream, which is away. When it is back, the resources that wait for it are woken.
var errNotConnected = errors.New("JetStream is not connected")

// link keeps one Site connected to its backends, in the background, and the
// Site's facts up to date.
type link struct {
	want  wanted
	facts *facts
	log   *slog.Logger
	now   func() time.Time
	// changed is called when a condition of the Site may have changed, and
	// connected when reports are read or no longer are.
	changed, connected func()
	// feedFound and consumerFound are called when something else is known of a Feed
	// or a FeedConsumer.
	feedFound, consumerFound func(name string)
	// writer is this operator's name in the registry; superseded is called when another one is found to write it.
	writer     string
	superseded func(error)

	// looked belongs to keepFeeds alone; keepJetStream alone has stood, the streams that stood before, and copies, nil if there is no
	// account of leaves.
	looked looked
	stood  []string
	copies *copies

	// changes is held while a durable is made or changed, and the plan that says how is the
	// one in force: who gets it after a plan is new finds none that is changed to the old one.
	changes sync.Mutex
	// writing is held while the registry is written, until the facts know it.
	writing sync.Mutex

	mu       sync.Mutex
	js       jetstream.JetStream
	registry jetstream.KeyValue
	// last is the sequence of the registry's newest message, as read or written here.
	last uint64
}

// run works until ctx ends.
func (l *link) run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { l.keepObjectStore(ctx) })
	all.Go(func() { l.keepJetStream(ctx) })
	all.Go(func() { l.keepFeeds(ctx) })
	all.Wait()
}

// noteBackend stores the result of a try, unless the link is over.
func (l *link) noteBackend(ctx context.Context, which func(*plan.Backends) **finding.Finding, f finding.Finding) {
	if ctx.Err() == nil && l.facts.setBackend(which, &f) {
		if !f.OK() {
			l.log.Warn("a backend has a problem", "reason", f.Reason, "message", f.Message)
		}
		l.changed()
	}
}

func (l *link) keepObjectStore(ctx context.Context) {
	if l.want.store == nil {
		l.setBackend(ctx, theObjectStore, l.want.storeAmiss)
		return
	}
	store, err := objectstore.Open(*l.want.store)
	if err != nil {
		l.noteBackend(ctx, theObjectStore, no(v1alpha1.ReasonRefused, err.Error()))
		return
	}
	var f finding.Finding
	probes := probes{every: probeEvery(l.want.store.IsFolder())}
	for ctx.Err() == nil {
		try, cancel := context.WithTimeout(ctx, tryTimeout)
		f = tryObjectStore(try, store, l.want, probes.due(f, time.Now()))
		cancel()
		l.noteBackend(ctx, theObjectStore, f)
		pause(ctx, f, nil)
	}
}

// probes decide when a store is written, to check that it is writable.
type probes struct {
	every time.Duration
	last  time.Time
}

// probeEvery is how often a store that answers is written. A folder's disk wears out, this process writes it anyway, and a write that
// fails is noticed where it is done.
func probeEvery(folder bool) time.Duration {
	if folder {
		return 2 * time.Minute
	}
	return 0
}

// due says whether the store is to be written now, after it was last found so. One that was not as it should be is written each time.
func (p *probes) due(found finding.Finding, now time.Time) bool {
	if found.OK() && now.Sub(p.last) < p.every {
		return false
	}
	p.last = now
	return true
}

func (l *link) setBackend(ctx context.Context, which func(*plan.Backends) **finding.Finding, f *finding.Finding) {
	if ctx.Err() == nil && l.facts.setBackend(which, f) {
		l.changed()
	}
}

// pause waits for the next try, or for a sign that it is due.
func pause(ctx context.Context, f finding.Finding, sign <-chan nats.Status) {
	wait := retryEvery
	if f.OK() {
		wait = tryEvery
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-sign:
	}
}

func (l *link) keepJetStream(ctx context.Context) {
	if l.want.jetStream == nil {
		l.setBackend(ctx, theJetStream, l.want.jetStreamAmiss)
		return
	}
	cfg := *l.want.jetStream
	cfg.Logger = l.log
	nc, err := stream.Connect(ctx, cfg)
	if err != nil {
		l.noteBackend(ctx, theJetStream, no(v1alpha1.ReasonRefused, err.Error()))
		return
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		l.noteBackend(ctx, theJetStream, no(v1alpha1.ReasonRefused, err.Error()))
		return
	}
	if l.want.leaves != nil {
		l.copies = &copies{want: l.want, log: l.log}
		defer l.copies.close()
	}
	signs := nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING)
	defer nc.RemoveStatusListener(signs)
	var session *session
	for ctx.Err() == nil {
		f := l.tryJetStream(ctx, nc, js, &session)
		l.noteBackend(ctx, theJetStream, f)
		pause(ctx, f, signs)
	}
	session.end()
	l.down()
}

// tryJetStream looks after streams, buckets and the session that follows them.
func (l *link) tryJetStream(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, s **session) finding.Finding {
	connecting, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if !nc.IsConnected() {
		(*s).end()
		*s = nil
		l.down()
	}
	if err := stream.WaitConnected(connecting, nc); err != nil {
		if last := nc.LastError(); last != nil {
			err = last
		}
		return jetStreamProblem(l.want, err)
	}
	try, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	made, err := tryJetStream(try, js, l.want)
	l.noteMade(made, err == nil)
	newRegistry := slices.Contains(made, streamOf(wire.RegistryBucket(l.want.marker.Code)))
	if err == nil && ((*s).isOver() || newRegistry || !l.registryStands(try)) {
		(*s).end()
		*s, err = l.begin(ctx, js)
	}
	if err == nil {
		err = l.tryLeaves(ctx, js)
	}
	if err != nil {
		(*s).end()
		*s = nil
		l.down()
		return jetStreamProblem(l.want, err)
	}
	return finding.Finding{Status: "True", Reason: v1alpha1.ReasonReachable}
}

// noteMade notes which streams exist, and which of those that existed before had to be recreated because they were deleted from outside.
func (l *link) noteMade(made []string, all bool) {
	changed := false
	for _, name := range made {
		if slices.Contains(l.stood, name) {
			l.log.Warn("a stream was deleted, and has been recreated", "stream", name)
			l.facts.setRecreated(name, l.now())
			changed = true
		}
	}
	if all {
		l.stood = l.want.names()
		changed = l.facts.setStanding(l.stood) || changed
	}
	if changed {
		l.changed()
	}
}

// tryLeaves asks how the leaves do.
func (l *link) tryLeaves(ctx context.Context, js jetstream.JetStream) error {
	copied := l.tryCopies(ctx, js)
	try, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	leaves, err := askLeaves(try, js, copied, l.want, l.now)
	if err == nil && ctx.Err() == nil && l.facts.setLeaves(leaves) {
		l.changed()
	}
	return err
}

// tryCopies maintains the account of leaves, and returns its JetStream; nil if there is none, or if it is not as it should be.
func (l *link) tryCopies(ctx context.Context, js jetstream.JetStream) jetstream.JetStream {
	if l.copies == nil {
		l.setBackend(ctx, theLeavesAccount, nil)
		return nil
	}
	if err := l.copies.try(ctx, js); err != nil {
		f := jetStreamProblem(l.want, fmt.Errorf("the account of leaves: %w", err))
		l.noteBackend(ctx, theLeavesAccount, f)
		return nil
	}
	l.setBackend(ctx, theLeavesAccount, nil)
	return l.copies.js
}

// session follows the reports of one connection.
type session struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func (s *session) isOver() bool {
	if s == nil {
		return true
	}
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

func (s *session) end() {
	if s != nil {
		s.cancel()
		<-s.done
	}
}

// begin reads the registry and the last reports of gateways, and follows them.
func (l *link) begin(ctx context.Context, js jetstream.JetStream) (*session, error) {
	looking, cancelLook := context.WithTimeout(ctx, tryTimeout)
	defer cancelLook()
	registry, err := js.KeyValue(looking, wire.RegistryBucket(l.want.marker.Code))
	if err != nil {
		return nil, err
	}
	if err := l.readRegistry(ctx, js, registry); err != nil {
		return nil, err
	}
	// However long that took, the next step has its own time.
	try, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	status, err := js.KeyValue(try, wire.StatusBucket(l.want.marker.Code))
	if err != nil {
		return nil, err
	}
	following, stop := context.WithCancel(ctx)
	watcher, err := status.WatchAll(following)
	if err != nil {
		stop()
		return nil, err
	}
	s := &session{cancel: stop, done: make(chan struct{})}
	replayed := make(chan struct{})
	var taken atomic.Int64
	go func() {
		defer close(s.done)
		defer func() { _ = watcher.Stop() }()
		l.follow(following, watcher.Updates(), replayed, &taken)
	}()
	if err := replay(ctx, s, replayed, &taken); err != nil {
		s.end()
		return nil, fmt.Errorf("%s: %w", status.Bucket(), err)
	}
	l.up(js, registry)
	return s, nil
}

// replay waits until all existing reports are taken, however many there are, as long as they come.
func replay(ctx context.Context, s *session, replayed <-chan struct{}, taken *atomic.Int64) error {
	look := time.NewTicker(opTimeout)
	defer look.Stop()
	for before := int64(0); ; {
		select {
		case <-replayed:
			return nil
		case <-s.done:
			return errors.New("the watch ended")
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
			now := taken.Load()
			if now == before {
				return fmt.Errorf("no report came for %v: %w", opTimeout, context.DeadlineExceeded)
			}
			before = now
		}
	}
}

// follow takes reports until the watch ends.
func (l *link) follow(ctx context.Context, updates <-chan jetstream.KeyValueEntry, replayed chan<- struct{}, taken *atomic.Int64) {
	tick := time.NewTicker(wire.GatewayReportInterval)
	defer tick.Stop()
	live := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.facts.reports.tick(l.now())
		case entry, open := <-updates:
			switch {
			case !open:
				return
			case entry != nil:
				taken.Add(1)
				l.facts.reports.take(entry, !live, l.now())
			case !live: // nil ends the replay
				live = true
				close(replayed)
			}
		}
	}
}

func (l *link) up(js jetstream.JetStream, registry jetstream.KeyValue) {
	l.mu.Lock()
	l.js, l.registry = js, registry
	l.mu.Unlock()
	l.facts.setBus(true, l.now())
	l.connected()
}

func (l *link) down() {
	l.mu.Lock()
	l.js, l.registry = nil, nil
	l.mu.Unlock()
	if l.facts.setBus(false, l.now()) {
		l.connected()
	}
}

// publish sends a message that needs no answer.
func (l *link) publish(m *nats.Msg) error {
	l.mu.Lock()
	js := l.js
	l.mu.Unlock()
	if js == nil {
		return errNotConnected
	}
	return js.Conn().PublishMsg(m)
}
