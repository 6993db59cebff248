// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
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

// errNotConnected: what was asked for needs JetStream, which is away. When it
// is back, whoever must know is woken.
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

	// looked is keepFeeds' alone.
	looked looked

	mu       sync.Mutex
	nc       *nats.Conn
	registry jetstream.KeyValue
}

// run works until ctx ends.
func (l *link) run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { l.keepObjectStore(ctx) })
	all.Go(func() { l.keepJetStream(ctx) })
	all.Go(func() { l.keepFeeds(ctx) })
	all.Wait()
}

// found stores the result of a try, unless the link is over.
func (l *link) found(ctx context.Context, which func(*plan.Backends) **plan.Finding, f plan.Finding) {
	if ctx.Err() == nil && l.facts.setBackend(which, &f) {
		if !f.OK() {
			l.log.Warn("a backend is not as it should be", "reason", f.Reason, "message", f.Message)
		}
		l.changed()
	}
}

func (l *link) keepObjectStore(ctx context.Context) {
	if l.want.store == nil {
		l.amiss(ctx, theObjectStore, l.want.storeAmiss)
		return
	}
	store, err := objectstore.Open(*l.want.store)
	if err != nil {
		l.found(ctx, theObjectStore, no(v1alpha1.ReasonRefused, err.Error()))
		return
	}
	for ctx.Err() == nil {
		try, cancel := context.WithTimeout(ctx, tryTimeout)
		f := tryObjectStore(try, store, l.want)
		cancel()
		l.found(ctx, theObjectStore, f)
		pause(ctx, f, nil)
	}
}

func (l *link) amiss(ctx context.Context, which func(*plan.Backends) **plan.Finding, f *plan.Finding) {
	if ctx.Err() == nil && l.facts.setBackend(which, f) {
		l.changed()
	}
}

// pause waits for the next try, or for a sign that it is due.
func pause(ctx context.Context, f plan.Finding, sign <-chan nats.Status) {
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
		l.amiss(ctx, theJetStream, l.want.jetStreamAmiss)
		return
	}
	cfg := *l.want.jetStream
	cfg.Logger = l.log
	nc, err := stream.Connect(ctx, cfg)
	if err != nil {
		l.found(ctx, theJetStream, no(v1alpha1.ReasonRefused, err.Error()))
		return
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		l.found(ctx, theJetStream, no(v1alpha1.ReasonRefused, err.Error()))
		return
	}
	signs := nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING)
	defer nc.RemoveStatusListener(signs)
	var session *session
	for ctx.Err() == nil {
		f := l.tryJetStream(ctx, nc, js, &session)
		l.found(ctx, theJetStream, f)
		pause(ctx, f, signs)
	}
	session.end()
	l.down()
}

// tryJetStream looks after streams, buckets and the session that follows them.
func (l *link) tryJetStream(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, s **session) plan.Finding {
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
	newRegistry, err := tryJetStream(try, js, l.want)
	if err == nil && ((*s).over() || newRegistry || !l.registryStands(try)) {
		(*s).end()
		*s, err = l.begin(ctx, try, nc, js)
	}
	if err == nil {
		err = l.tryLeaves(ctx, try, js)
	}
	if err != nil {
		(*s).end()
		*s = nil
		l.down()
		return jetStreamProblem(l.want, err)
	}
	return plan.Finding{Status: "True", Reason: v1alpha1.ReasonReachable}
}

// tryLeaves asks how the leaves do.
func (l *link) tryLeaves(ctx, try context.Context, js jetstream.JetStream) error {
	leaves, err := askLeaves(try, js, l.want, l.now)
	if err == nil && ctx.Err() == nil && l.facts.setLeaves(leaves) {
		l.changed()
	}
	return err
}

// session follows the reports of one connection.
type session struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func (s *session) over() bool {
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

// begin reads the registry and what gateways last reported, and follows them.
func (l *link) begin(ctx, try context.Context, nc *nats.Conn, js jetstream.JetStream) (*session, error) {
	registry, err := js.KeyValue(try, wire.RegistryBucket(l.want.marker.Code))
	if err != nil {
		return nil, err
	}
	if err := l.readRegistry(try, registry); err != nil {
		return nil, err
	}
	status, err := js.KeyValue(try, wire.StatusBucket(l.want.marker.Code))
	if err != nil {
		return nil, err
	}
	following, cancel := context.WithCancel(ctx)
	watcher, err := status.WatchAll(following)
	if err != nil {
		cancel()
		return nil, err
	}
	s := &session{cancel: cancel, done: make(chan struct{})}
	replayed := make(chan struct{})
	go func() {
		defer close(s.done)
		defer func() { _ = watcher.Stop() }()
		l.follow(following, watcher.Updates(), replayed)
	}()
	select {
	case <-replayed:
		l.up(nc, registry)
		return s, nil
	case <-s.done:
		return nil, fmt.Errorf("watch of %s ended", status.Bucket())
	case <-try.Done():
		s.end()
		return nil, try.Err()
	}
}

// follow takes reports until the watch ends.
func (l *link) follow(ctx context.Context, updates <-chan jetstream.KeyValueEntry, replayed chan<- struct{}) {
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
				l.facts.reports.take(entry, !live, l.now())
			case !live: // nil ends the replay
				live = true
				close(replayed)
			}
		}
	}
}

func (l *link) up(nc *nats.Conn, registry jetstream.KeyValue) {
	l.mu.Lock()
	l.nc, l.registry = nc, registry
	l.mu.Unlock()
	l.facts.setBus(true, l.now())
	l.connected()
}

func (l *link) down() {
	l.mu.Lock()
	l.nc, l.registry = nil, nil
	l.mu.Unlock()
	if l.facts.setBus(false, l.now()) {
		l.connected()
	}
}

// publish sends a message that nobody must answer.
func (l *link) publish(m *nats.Msg) error {
	l.mu.Lock()
	nc := l.nc
	l.mu.Unlock()
	if nc == nil {
		return errNotConnected
	}
	return nc.PublishMsg(m)
}
