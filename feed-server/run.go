// SPDX-License-Identifier: Apache-2.0

package feedserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/feed-server/natsdelivery"
	"github.com/substorm/substorm/feed-server/sampling"
	"github.com/substorm/substorm/feed-server/serve"
	"github.com/substorm/substorm/feed-server/session"
	"github.com/substorm/substorm/feed-server/state"
	"github.com/substorm/substorm/feed-server/wis2"
	"github.com/substorm/substorm/internal/certificate"
	"github.com/substorm/substorm/internal/cgroup"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/telemetry"
	"github.com/substorm/substorm/internal/wire"
)

// server is one incarnation: the parts of the program, and what they share.
type server struct {
	cfg         Config
	incarnation string
	log         *slog.Logger
	metrics     *prometheus.Registry

	nc           *nats.Conn
	js           jetstream.JetStream
	registry     *registry.Registry
	hubs         *hubs
	slots        *semaphore.Weighted
	priorities   *session.Priorities
	certificates *certificate.Files
	admission    *endpoint.Admission
	accessLog    *endpoint.AccessLog
	consumers    *state.Consumers
	kept         kept
	endpoints    *serve.Server
	http         *telemetry.Server
	// reached: NATS answered once. Draining: no more clients are taken; leaving is closed when
	// connected clients are asked to go.
	reached, draining atomic.Bool
	leaving           chan struct{}
}

// Run serves until ctx ends, then has its clients go elsewhere and returns nil. Errors are fatal
// ones; each says what to do.
func Run(ctx context.Context, cfg Config) error {
	s, err := newServer(cfg)
	if err != nil {
		return err
	}
	// Everything that serves outlives ctx: it ends when the drain does.
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	if err := s.open(ctx, alive); err != nil {
		if s.nc != nil {
			s.nc.Close()
		}
		return err
	}
	return s.run(ctx, alive, end)
}

// newServer has no parts yet.
func newServer(cfg Config) (*server, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.fit(cgroup.Memory())
	log, err := telemetry.NewLogger(cfg.Log, cfg.LogLevel)
	if err != nil {
		return nil, err
	}
	s := &server{cfg: cfg, incarnation: rand.Text(), metrics: telemetry.NewRegistry("feed-server"), leaving: make(chan struct{})}
	s.log = log.With("pod", cfg.Pod, "incarnation", s.incarnation)
	return s, nil
}

// open makes the parts. NATS may be away.
func (s *server) open(ctx, alive context.Context) (err error) {
	cfg := &s.cfg
	cfg.NATS.Name, cfg.NATS.Logger = cfg.Pod, s.log
	if s.nc, err = stream.Connect(ctx, cfg.NATS); err != nil {
		return err
	}
	if s.js, err = jetstream.New(s.nc); err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	if cfg.TLSDir != "" {
		s.certificates, err = certificate.Open(certificate.Config{Dir: cfg.TLSDir, ClientCADir: cfg.ClientCADir, Logger: s.log, Metrics: s.metrics, Subsystem: "substorm_feed"})
		if err != nil {
			return err
		}
	}
	s.registry = registry.New()
	s.hubs = newHubs(alive, s.js, cfg.RingSize, s.log)
	s.slots, s.priorities = semaphore.NewWeighted(int64(cfg.Readers)), &session.Priorities{}
	if err := s.openAdmission(); err != nil {
		return err
	}
	meter := s.admission.Meter(func() uint64 { return s.consumers.Sent() }, s.metrics)
	s.consumers = state.New(state.Config{
		Site: cfg.Site, Pod: cfg.Pod, FeedServer: cfg.FeedServer, Incarnation: s.incarnation, StartedAt: time.Now().UTC(),
		JetStream: s.js, Registry: s.registry, Draining: s.draining.Load, Archive: &s.admission.Traffic, Load: meter.Measure, GivingWay: s.givingWay, Logger: s.log, Metrics: s.metrics,
	})
	archive, err := s.openArchive()
	if err != nil {
		return err
	}
	s.endpoints, err = serve.New(serve.Config{
		Site: cfg.Site, Listen: cfg.Listen, Certificates: s.certificates, Admission: s.admission,
		JetStream: s.js, Registry: s.registry, Hub: s.hubs.of, Slots: s.slots,
		Priorities: s.priorities, Consumers: s.consumers, Logger: s.log, Metrics: s.metrics,
		Sampling: sampling.New(sampling.Config{Site: cfg.Site, JetStream: s.js, Instrument: s.instrument, Logger: s.log, Metrics: s.metrics}).Serve,
		Others:   archive,
	})
	if err != nil {
		return err
	}
	s.http, err = telemetry.NewServer(telemetry.ServerConfig{Address: cfg.ListenHTTP, Metrics: s.metrics, Ready: s.ready})
	return err
}

// instrument returns what the registry says of an instrument.
func (s *server) instrument(name string) (wire.InstrumentEntry, bool) {
	e, ok := s.registry.Snapshot().Instruments[name]
	return e, ok
}

// notification makes a WIS2 notification of a notice.
func (s *server) notification(n wire.Notice, at time.Time) (id string, data []byte) {
	in, known := s.instrument(n.Instrument)
	if !known {
		return "", nil
	}
	return wis2.Encode(cmp.Or(s.cfg.NotificationURL, s.cfg.BaseURL), in, n, at)
}

// run serves until ctx ends, and then drains.
func (s *server) run(ctx, alive context.Context, end func()) error {
	var parts sync.WaitGroup
	failed := make(chan error, 8)
	run := func(name string, f func(context.Context) error) {
		parts.Go(func() {
			if err := f(alive); err != nil && alive.Err() == nil {
				failed <- fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	run("health", s.http.Serve)
	run("NATS", func(ctx context.Context) error {
		err := stream.WaitConnected(ctx, s.nc)
		s.reached.Store(err == nil)
		return err
	})
	run("registry", func(ctx context.Context) error { s.registry.Follow(ctx, s.js, s.cfg.Site, s.log); return nil })
	run("hubs", func(ctx context.Context) error { return s.hubs.run(ctx, s.registry) })
	run("certificates", s.certificates.Run)
	run("reports", s.consumers.Run)
	run("access log", s.accessLog.Run)
	if s.cfg.GiveWay {
		run("precedence", s.lookAtCPU)
	}
	if s.kept.catalog != nil {
		run("catalog", s.kept.catalog.Run)
		run("descriptions", s.kept.descriptions.Run)
		run("downloads", s.kept.downloads.Run)
		run("damage", s.kept.damage.Run)
		run("console", s.kept.console.Run)
	}
	run("endpoints", s.endpoints.Run)
	if s.kept.rsync != nil {
		run("rsync", s.kept.rsync.Run)
		s.log.Info("serving rsync", "address", s.kept.rsync.Address(), "window", s.cfg.RsyncWindow)
	}
	// Another replica takes what is shared out by leases, while clients are asked to go.
	steady, unsettle := context.WithCancel(alive)
	defer unsettle()
	run("NATS delivery", func(context.Context) error {
		return natsdelivery.Run(steady, natsdelivery.Config{
			Site: s.cfg.Site, Pod: s.cfg.Pod, Incarnation: s.incarnation, JetStream: s.js, Registry: s.registry,
			Hub: s.hubs.of, Slots: s.slots, Priorities: s.priorities, Consumers: s.consumers, WIS2: s.notification, Logger: s.log, Metrics: s.metrics,
		})
	})
	s.log.Info("serving", "site", s.cfg.Site, "address", s.endpoints.Address(), "http", s.http.Address(), "tls", s.certificates != nil, "archive", s.kept.catalog != nil,
		"ringSize", s.cfg.RingSize, "maxConnections", s.cfg.MaxConnections, "maxSockets", s.cfg.MaxSockets, "accessLog", s.cfg.AccessLog)

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	unsettle()
	s.drain()
	end()
	parts.Wait()
	s.hubs.running.Wait()
	s.nc.Close()
	s.log.Info("stopped")
	return err
}

const (
	// graceShare is the part of the drain timeout, and maxGrace the time, in which new
	// connections are still taken: endpoints take a while to spread.
	graceShare = 3
	maxGrace   = 5 * time.Second
)

// drain has clients go to another replica: first the pod is not ready, a little later it accepts no
// more clients, and asks the connected ones to go.
func (s *server) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.DrainTimeout)
	defer cancel()
	s.log.Info("draining", "timeout", s.cfg.DrainTimeout)
	s.draining.Store(true)
	time.Sleep(min(maxGrace, s.cfg.DrainTimeout/graceShare))
	close(s.leaving)
	var drained sync.WaitGroup
	defer drained.Wait()
	if s.kept.rsync != nil {
		drained.Go(func() {
			if err := s.kept.rsync.Drain(ctx); err != nil {
				s.log.Warn("cut off rsync transfers that did not end in time; their clients continue where they were", "error", err)
			}
		})
	}
	if err := s.endpoints.Drain(ctx); err != nil {
		s.log.Warn("cut off clients that did not disconnect in time", "error", err)
	}
}

// ready answers /readyz. Once it knew the Site's Feeds, the pod stays ready while
// NATS is away: all pods share that, and clients wait better here than outside.
func (s *server) ready(context.Context) error {
	switch {
	case s.draining.Load():
		return errors.New("draining: clients go to another replica")
	case !s.reached.Load():
		return fmt.Errorf("NATS was never reached (%v): see --nats-servers and the Site's status", s.nc.LastError())
	case s.registry.Snapshot().Revision == 0:
		return errors.New("the registry of the Site was never seen complete: is the operator running, and does NATS answer?")
	default:
		return nil
	}
}
