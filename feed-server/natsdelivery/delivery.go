// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/feed-server/session"
	"github.com/substorm/substorm/feed-server/state"
	"github.com/substorm/substorm/internal/kvbucket"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	defaultWatchInterval = time.Second
	// looksPerSecond bounds what all watches together ask of JetStream: from 100
	// consumers on each is looked at less often than the interval says.
	looksPerSecond = 100
	releaseTimeout = 3 * time.Second
	firstPause     = 200 * time.Millisecond
	lastPause      = 10 * time.Second
)

// Config identifies the feed server and its Site, and has its dependencies.
type Config struct {
	// Site is the Site's code. Pod and Incarnation identify the feed server and its incarnation.
	Site, Pod, Incarnation string

	JetStream jetstream.JetStream
	Registry  *registry.Registry
	// Hub returns the hub that follows a stream.
	Hub func(stream string) *hub.Hub
	// Slots bound how many consumers read a stream behind what hubs hold.
	Slots      *semaphore.Weighted
	Priorities *session.Priorities
	// Consumers report what is measured.
	Consumers *state.Consumers

	// WIS2 makes a WIS2 notification of a notice that the stream took at a time, and its ID; nil:
	// there is nothing to announce. It is called for consumers of WIS2 notifications.
	WIS2 func(n wire.Notice, at time.Time) (id string, data []byte)

	// WatchInterval is how often durables are looked at (a second).
	WatchInterval time.Duration
	Logger        *slog.Logger
	Metrics       prometheus.Registerer
}

type delivery struct {
	cfg     Config
	looks   *rate.Limiter
	metrics *metrics
}

// Run works for the consumers of delivery NATS whose lease this feed server holds, and competes
// for the others, until ctx ends. It returns nil then. Failures are logged, counted and
// retried.
func Run(ctx context.Context, cfg Config) error {
	if cfg.WatchInterval <= 0 {
		cfg.WatchInterval = defaultWatchInterval
	}
	d := &delivery{cfg: cfg, looks: rate.NewLimiter(looksPerSecond, looksPerSecond), metrics: newMetrics(cfg.Metrics)}
	var group errgroup.Group
	for _, key := range wire.DeliveryLeases() {
		group.Go(func() error {
			d.compete(ctx, key)
			return nil
		})
	}
	return group.Wait()
}

// compete works under one of the leases whenever it can have it, and whenever it is
// good for anything.
func (d *delivery) compete(ctx context.Context, key string) {
	for pause := firstPause; ctx.Err() == nil; {
		snapshot, changed := d.cfg.Registry.Watch()
		if len(leaseConsumers(snapshot, key)) == 0 {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		began := time.Now()
		err := d.holdOnce(ctx, key)
		if time.Since(began) > lastPause {
			pause = firstPause
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		d.cfg.Logger.Warn("cannot hold the lease of some consumers; giving it up and acquiring it again", "lease", key, "error", err)
		if !retry.Sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, lastPause)
	}
}

// holdOnce waits for the lease and works until it is lost or not needed.
func (d *delivery) holdOnce(ctx context.Context, key string) error {
	leases, err := d.cfg.JetStream.KeyValue(ctx, wire.LeaseBucket(d.cfg.Site))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", wire.LeaseBucket(d.cfg.Site), err)
	}
	lease, err := stream.AcquireLease(ctx, leases, key, wire.Lease{Holder: d.cfg.Pod, Incarnation: d.cfg.Incarnation}, d.cfg.Logger)
	if err != nil {
		return err
	}
	d.metrics.leases.Inc()
	defer func() {
		d.metrics.leases.Dec()
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		if err := lease.Release(release); err != nil {
			d.cfg.Logger.Warn("cannot release a lease; it expires by itself", "lease", key, "error", err)
		}
	}()
	return d.hold(ctx, key, lease)
}

// worker works for one consumer. Its measurements outlive its failures.
type worker struct {
	selection registry.Selection
	log       *slog.Logger
	meter     *state.Consumer
	measured  atomic.Pointer[state.Delivered]
	// counts of what a consumer of mode All acknowledged, by stream.
	counts map[string]*count
	// places of all consumers of the lease that are filled for.
	places *places
	// fills is how often a consumer whose stream is filled was begun.
	fills int

	stop    context.CancelFunc
	stopped chan struct{}
}

func (w *worker) end() {
	w.stop()
	<-w.stopped
}

// hold has a worker for each of the lease's consumers, as the registry says.
func (d *delivery) hold(ctx context.Context, key string, lease *stream.Lease) error {
	places, err := d.loadPlaces(ctx, lease, key)
	if err != nil {
		return err
	}
	defer func() { // when all have stopped
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
		defer cancel()
		_ = places.save(last) // the next one knows what was saved before
	}()
	save := time.NewTicker(noteInterval)
	defer save.Stop()
	workers := map[string]*worker{}
	defer func() {
		for _, w := range workers {
			w.stop()
		}
		for _, w := range workers {
			<-w.stopped
		}
	}()
	swept := false
	for {
		snapshot, changed := d.cfg.Registry.Watch()
		want := leaseConsumers(snapshot, key)
		for name, w := range workers {
			if s, there := want[name]; there && sameWork(s, w.selection) {
				continue
			}
			w.end()
			delete(workers, name)
			swept = swept && want[name].Consumer.Consumer != ""
		}
		if !swept && snapshot.Revision > 0 {
			swept = d.forgetOthers(ctx, key, snapshot)
			places.keep(want)
		}
		for name, s := range want {
			if workers[name] == nil {
				workers[name] = d.start(ctx, s, lease, places)
			}
		}
		if len(want) == 0 {
			return nil
		}
		if err := places.saveUntil(ctx, changed, save.C); err != nil {
			return err
		}
	}
}

// sameWork reports whether a worker for one selection does the same for the other. Which
// instruments it has is no matter: who fills a stream asks for them as they are now, and of a
// durable the operator sees to that.
func sameWork(a, b registry.Selection) bool {
	for _, s := range []*registry.Selection{&a, &b} {
		s.Instruments, s.Feed.Instruments, s.Consumer.Instruments = nil, nil, nil
		s.Feed.Revision, s.Consumer.Revision, s.Feed.Generation = 0, 0, 0
	}
	return reflect.DeepEqual(a, b)
}

// leaseConsumers are the consumers of delivery NATS that belong to a lease.
func leaseConsumers(s *registry.Snapshot, lease string) map[string]registry.Selection {
	want := map[string]registry.Selection{}
	for name, c := range s.Consumers {
		if c.Delivery != wire.DeliveryNATS || wire.DeliveryLease(name) != lease {
			continue
		}
		if selection, err := s.Select(name); err == nil { // without its Feed nothing is selected
			want[name] = selection
		}
	}
	return want
}

// forgetOthers removes what was kept of the lease's consumers that are none any
// more. It returns whether that succeeded.
func (d *delivery) forgetOthers(ctx context.Context, lease string, s *registry.Snapshot) bool {
	cursors, err := d.cfg.JetStream.KeyValue(ctx, wire.CursorBucket(d.cfg.Site))
	if err != nil {
		return false
	}
	done := true
	err = stream.Entries(ctx, d.cfg.JetStream, cursors, wire.DeliveryCursorKeys, func(e jetstream.KeyValueEntry) error {
		consumer, ok := wire.ParseDeliveryCursorKey(e.Key())
		if _, known := s.Consumers[consumer]; !ok || known || wire.DeliveryLease(consumer) != lease {
			return nil
		}
		done = kvbucket.Forget(ctx, d.cfg.JetStream, cursors.Bucket(), e.Key()) == nil && done
		return nil
	})
	return done && err == nil
}

// start begins to work for a consumer.
func (d *delivery) start(ctx context.Context, s registry.Selection, lease *stream.Lease, places *places) *worker {
	ctx, cancel := context.WithCancel(ctx)
	w := &worker{selection: s, places: places, log: d.cfg.Logger.With("consumer", s.Consumer.Consumer), counts: map[string]*count{},
		stop: cancel, stopped: make(chan struct{})}
	w.measured.Store(&state.Delivered{})
	var end func()
	w.meter, end = d.cfg.Consumers.Deliver(s.Consumer, func(time.Time) state.Delivered { return *w.measured.Load() })
	go func() {
		defer close(w.stopped)
		defer end()
		said := ""
		for pause := firstPause; ctx.Err() == nil; {
			began := time.Now()
			err := d.work(ctx, w, lease)
			if ctx.Err() != nil {
				return
			}
			if time.Since(began) > lastPause {
				pause, said = firstPause, ""
			}
			if err.Error() != said {
				said = err.Error()
				w.log.Warn("cannot serve a consumer as declared; retrying", "error", err)
			}
			d.metrics.failures.Inc()
			if !retry.Sleep(ctx, pause) || stream.WaitConnected(ctx, d.cfg.JetStream.Conn()) != nil {
				return
			}
			pause = min(2*pause, lastPause)
		}
	}()
	return w
}

// work works for a consumer until something fails. It always returns an error.
func (d *delivery) work(ctx context.Context, w *worker, lease *stream.Lease) error {
	if w.selection.Consumer.Filled() {
		return d.fill(ctx, w, lease)
	}
	return d.watch(ctx, w, lease)
}
