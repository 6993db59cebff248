// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// figuresInterval is how often a consumer is reported if only its figures changed.
	figuresInterval = 5 * wire.GatewayReportInterval
	// figuresPerSecond bounds such reports in number: each is one synced write of
	// JetStream. Changes of state go first.
	figuresPerSecond = 20
	reportTimeout    = 2 * time.Second
)

// Consumers are the consumers of the registry, with what this process gave them.
type Consumers struct {
	cfg     Config
	figures *rate.Limiter

	// sent is how many bytes consumers were given.
	sent atomic.Uint64

	// reporting is held while reports are written.
	reporting  sync.Mutex
	throughput throughput

	mu   sync.Mutex
	all  map[string]*Consumer
	said map[string]said
	kv   jetstream.KeyValue
}

type said struct {
	status wire.ConsumerStatus
	at     time.Time
}

// Config identifies the reporting pod, and has its dependencies.
type Config struct {
	Site, Pod, Incarnation string
	// FeedServer that the pod belongs to; empty outside Kubernetes.
	FeedServer string
	StartedAt  time.Time
	JetStream  jetstream.JetStream
	Registry   *registry.Registry
	Draining   func() bool
	// Load measures the load of the pod; nil: it is not measured.
	Load func(now time.Time) *wire.Load
	// Archive is what is sent to clients other than consumers; nil: nothing is.
	Archive Archive
	// GivingWay returns which clients give way to others; nil: none do.
	GivingWay func() *wire.GivingWay
	Logger    *slog.Logger
	Metrics   prometheus.Registerer
}

// Archive is what a feed server sends to others than consumers: how many bytes, and over how
// many event streams that are open.
type Archive interface {
	Sent() uint64
	EventStreams() int
}

// New returns the consumers, none of them measured yet.
func New(cfg Config) *Consumers {
	c := &Consumers{cfg: cfg, figures: rate.NewLimiter(figuresPerSecond, figuresPerSecond), all: map[string]*Consumer{}, said: map[string]said{}}
	cfg.Metrics.MustRegister(c)
	return c
}

// Of returns what is measured of a consumer.
func (c *Consumers) Of(entry wire.ConsumerEntry) *Consumer {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.all[entry.Consumer]
	if m == nil {
		m = newConsumer(&c.sent)
		c.all[entry.Consumer] = m
	}
	m.mu.Lock()
	m.flow = entry.Flow
	m.mu.Unlock()
	return m
}

// snapshot returns the consumers that the registry knows, or that are connected
// still: no others are reported or shown.
func (c *Consumers) snapshot() map[string]*Consumer {
	declared := c.cfg.Registry.Snapshot().Consumers
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[string]*Consumer, len(c.all))
	for name, m := range c.all {
		m.mu.Lock()
		connected := len(m.readers) > 0
		m.mu.Unlock()
		if _, ok := declared[name]; !ok && !connected {
			delete(c.all, name)
			delete(c.said, name)
			continue
		}
		all[name] = m
	}
	return all
}

// connections that are open.
func (c *Consumers) connections() int {
	n := 0
	for _, m := range c.snapshot() {
		m.mu.Lock()
		n += len(m.readers)
		m.mu.Unlock()
	}
	return n
}

// Run reports until ctx ends, and once more then. It returns nil.
func (c *Consumers) Run(ctx context.Context) error {
	tick := time.NewTicker(wire.LoadReportInterval)
	defer tick.Stop()
	for failures, ticks := 0, 0; ; ticks++ {
		report := c.reportOwn
		if ticks%consumersEvery == 0 {
			report = c.report
		}
		if err := report(ctx, time.Now()); err == nil {
			failures = 0
		} else if failures++; failures == 3 && ctx.Err() == nil { // the first ones may precede the bucket that they go to
			c.cfg.Logger.Warn("reports do not reach the Site", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
			defer cancel()
			_ = c.report(end, time.Now())
			return nil
		}
	}
}

// consumersEvery is after how many reports of the pod itself consumers are reported.
const consumersEvery = int(wire.GatewayReportInterval / wire.LoadReportInterval)

// reportOwn writes what the pod does. Error: JetStream's.
func (c *Consumers) reportOwn(ctx context.Context, now time.Time) error {
	c.reporting.Lock()
	defer c.reporting.Unlock()
	return c.sayOwn(ctx, now)
}

func (c *Consumers) sayOwn(ctx context.Context, now time.Time) error {
	snapshot := c.cfg.Registry.Snapshot()
	own := wire.FeedServerStatus{
		Pod: c.cfg.Pod, FeedServer: c.cfg.FeedServer, Incarnation: c.cfg.Incarnation, StartedAt: c.cfg.StartedAt, ReportedAt: now.UTC(),
		Revision: snapshot.Revision, Connections: c.connections(), Draining: c.cfg.Draining(), Problems: problems(snapshot),
	}
	if c.cfg.Archive != nil {
		own.EventStreams = c.cfg.Archive.EventStreams()
	}
	own.BytesPerSecond = c.throughput.at(now, c.Sent())
	if c.cfg.Load != nil {
		own.Load = c.cfg.Load(now)
	}
	if c.cfg.GivingWay != nil {
		own.GivingWay = c.cfg.GivingWay()
	}
	return c.put(ctx, wire.FeedServerStatusKey(c.cfg.Pod), own)
}

// Sent is how many bytes the pod sent to consumers and others, since the start.
func (c *Consumers) Sent() uint64 {
	sent := c.sent.Load()
	if c.cfg.Archive != nil {
		sent += c.cfg.Archive.Sent()
	}
	return sent
}

// report writes what changed. Error: JetStream's, of the first write that failed.
func (c *Consumers) report(ctx context.Context, now time.Time) error {
	c.reporting.Lock()
	defer c.reporting.Unlock()
	all := c.snapshot()
	err := c.sayOwn(ctx, now)
	if err != nil {
		// Measuring continues, so that states are right when JetStream is back.
		for _, m := range all {
			m.measure(now)
		}
		return err
	}
	var later []string
	for name, m := range all {
		s := m.measure(now)
		was, ever := c.saidOf(name)
		switch telling := !ever || s.State != was.status.State || s.Gaps != was.status.Gaps || s.Connections != was.status.Connections; {
		case telling:
			err = c.say(ctx, name, s, now)
		case !reflect.DeepEqual(s, was.status) && now.Sub(was.at) >= figuresInterval:
			later = append(later, name)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range later {
		if !c.figures.AllowN(now, 1) {
			break // the others next time: a map's order varies
		}
		if err := c.say(ctx, name, all[name].last(), now); err != nil {
			return err
		}
	}
	return nil
}

func (c *Consumers) say(ctx context.Context, name string, s wire.ConsumerStatus, now time.Time) error {
	full := s
	full.Incarnation, full.ReportedAt = c.cfg.Incarnation, now.UTC()
	if err := c.put(ctx, wire.ConsumerStatusKey(name, c.cfg.Pod), full); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said[name] = said{s, now}
	return nil
}

func (c *Consumers) saidOf(name string) (said, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.said[name]
	return s, ok
}

func (c *Consumers) put(ctx context.Context, key string, status any) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	b, err := wire.Encode(status)
	if err != nil {
		return err
	}
	if c.kv == nil {
		if c.kv, err = c.cfg.JetStream.KeyValue(ctx, wire.StatusBucket(c.cfg.Site)); err != nil {
			return err
		}
	}
	_, err = c.kv.Put(ctx, key, b)
	return err
}

// problems are why consumers cannot be served, by consumer.
func problems(s *registry.Snapshot) map[string]string {
	found := map[string]string{}
	for name := range s.Consumers {
		if _, err := s.Select(name); err != nil {
			found[name] = err.Error()
		}
	}
	for key, problem := range s.Problems {
		if name, ok := wire.ParseRegistryConsumerKey(key); ok {
			found[name] = "registry entry: " + problem
		}
	}
	return found
}
