// SPDX-License-Identifier: Apache-2.0

// Package archivist is the program that does for a whole Site what is done with stored
// data: it writes manifests, cuts segments, closes days, compacts, expires, finds gaps and
// compares the archive with its digests. Any number may run: the one that holds the
// Site's lease works, the others wait for it.
package archivist

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/archivist/retention"
	"github.com/substorm/substorm/archivist/worker"
	"github.com/substorm/substorm/internal/cgroup"
	"github.com/substorm/substorm/internal/diskbudget"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/telemetry"
	"github.com/substorm/substorm/internal/wire"
)

// unlimitedMemory is what may be remembered where nothing limits the memory.
const unlimitedMemory = 128 << 20

// program is one incarnation.
type program struct {
	cfg         Config
	incarnation string
	log         *slog.Logger
	metrics     *prometheus.Registry

	objects  objectstore.Store
	nc       *nats.Conn
	js       jetstream.JetStream
	registry *registry.Registry
	// away is why the object store was never reached; nil once it was.
	away atomic.Pointer[string]
}

// Run works for the Site whenever it holds the lease, until ctx ends; then it releases the
// lease and returns nil. The object store and NATS may be unavailable. Errors are those of the
// configuration, and each names what to change.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.check(); err != nil {
		return err
	}
	log, err := telemetry.NewLogger(cfg.Log, cfg.LogLevel)
	if err != nil {
		return err
	}
	if limit := cgroup.Memory(); cfg.Memory == 0 {
		cfg.Memory = unlimitedMemory
		if limit > 0 {
			cfg.Memory = limit / 2
		}
	}
	p := &program{cfg: cfg, incarnation: rand.Text(), metrics: telemetry.NewRegistry("archivist"), registry: registry.New()}
	p.log = log.With("pod", cfg.Pod, "incarnation", p.incarnation)
	never := "it was not asked yet"
	p.away.Store(&never)
	if p.objects, err = objectstore.Open(cfg.Objects); err != nil {
		return err
	}
	cfg.NATS.Name, cfg.NATS.Logger = cfg.Pod, p.log
	if p.nc, err = stream.Connect(ctx, cfg.NATS); err != nil {
		return err
	}
	defer p.nc.Close()
	if p.js, err = jetstream.New(p.nc); err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	return p.run(ctx)
}

func (p *program) run(ctx context.Context) error {
	http, err := telemetry.NewServer(telemetry.ServerConfig{Address: p.cfg.ListenHTTP, Metrics: p.metrics, Ready: p.ready})
	if err != nil {
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return http.Serve(ctx) })
	all.Go(func() error { p.registry.FollowNewest(ctx, p.js, p.cfg.Site, p.log); return nil })
	all.Go(func() error { p.seekStore(ctx); return nil })
	all.Go(func() error { return p.work(ctx) })
	p.log.Info("waiting for the lease", "site", p.cfg.Site, "http", http.Address(), "memory", p.cfg.Memory)
	return all.Wait()
}

func (p *program) work(ctx context.Context) error {
	cfg := &p.cfg
	return worker.Run(ctx, worker.Config{
		Site: cfg.Site, Pod: cfg.Pod, Incarnation: p.incarnation, JetStream: p.js, Store: p.objects,
		Settings: func(name string) (wire.InstrumentEntry, bool) {
			e, known := p.registry.Snapshot().Instruments[name]
			return e, known
		},
		Declared:     (&declared{registry: p.registry}).all,
		Partners:     func() (map[string]retention.Partner, bool) { return partners(p.registry.Snapshot()) },
		Unread:       func(name string) bool { return p.registry.Snapshot().Unread(name) },
		Live:         p.registry.Live,
		PartInterval: cfg.PartInterval, CompactAfter: cfg.CompactAfter, CompactGrace: cfg.CompactGrace, ScrubRate: cfg.ScrubRate,
		ObservationRetention: cfg.ObservationRetention, NoticeRetention: cfg.NoticeRetention, ForwardNetworks: cfg.ForwardNetworks,
		Budget: diskbudget.Embedded(), Memory: cfg.Memory, ScratchDir: filepath.Join(cfg.ScratchDir, "segments"),
		Log: p.log, Metrics: p.metrics,
	})
}

// ready answers /readyz: whether the pod could take the lease over. It stays ready while
// what all pods share is away later.
func (p *program) ready(context.Context) error {
	if p.registry.Snapshot().Revision == 0 {
		return errors.New("the registry of the Site was never seen complete: is the operator running, and does NATS answer?")
	}
	if why := p.away.Load(); why != nil {
		return errors.New("the object store was never reached: " + *why)
	}
	return nil
}

// seekStore notes when the object store was first reached.
func (p *program) seekStore(ctx context.Context) {
	reached := objectstore.Await(ctx, p.objects, func(err error) {
		text := err.Error()
		p.away.Store(&text)
		p.log.Warn("the object store does not answer: nothing is archived", "error", err)
	})
	if reached {
		p.away.Store(nil)
	}
}
