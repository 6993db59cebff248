// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/ingest-gateway/announce"
	"github.com/substorm/substorm/ingest-gateway/command"
	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/intake/memory"
	"github.com/substorm/substorm/ingest-gateway/ledger"
	"github.com/substorm/substorm/ingest-gateway/names"
	"github.com/substorm/substorm/ingest-gateway/quarantine"
	"github.com/substorm/substorm/ingest-gateway/receive/http"
	"github.com/substorm/substorm/ingest-gateway/receive/listen"
	"github.com/substorm/substorm/ingest-gateway/receive/proxy"
	"github.com/substorm/substorm/ingest-gateway/receive/refusal"
	"github.com/substorm/substorm/ingest-gateway/receive/tcp"
	"github.com/substorm/substorm/ingest-gateway/receive/udp"
	"github.com/substorm/substorm/ingest-gateway/receive/udp/kernel"
	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/ingest-gateway/store"
	"github.com/substorm/substorm/internal/certificate"
	"github.com/substorm/substorm/internal/diskbudget"
	"github.com/substorm/substorm/internal/load"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stamp"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/telemetry"
	"github.com/substorm/substorm/internal/wire"
)

// gateway is one incarnation: the parts of the program, and what they share.
type gateway struct {
	cfg         Config
	incarnation string
	startedAt   time.Time
	log         *slog.Logger
	metrics     *prometheus.Registry

	volume   *volume
	nc       *nats.Conn
	js       jetstream.JetStream
	objects  objectstore.Store
	ledger   *ledger.Ledger
	notices  *stream.Committer
	messages *stream.Committer
	pool     *memory.Pool
	packs    *memory.Pool
	archive  *store.Archive
	spool    *spool.Spool
	replicas *replicas
	registry *intake.Registry
	names    *names.Names
	// certificates are nil where the pool has none.
	certificates *certificate.Files
	// edge is nil where no proxy is believed.
	edge *proxy.Server
	// quarantine is nil where unknown senders are refused.
	quarantine *quarantine.Quarantine
	tcp        *tcp.Server
	web        *http.Server
	udp        *udp.Receiver
	http       *telemetry.Server
	health     health
	reporter   *reporter
	meter      *load.Meter
	senders    *senders
	commands   *command.Hub
	// linkProbe is nil where the link to the pool is not measured.
	linkProbe *stamp.Reflector
}

// Run receives until ctx ends, then drains and returns nil. Errors are those
// after which nothing can be received; each says what to do.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.check(); err != nil {
		return err
	}
	log, err := telemetry.NewLogger(cfg.Log, cfg.LogLevel)
	if err != nil {
		return err
	}
	g := &gateway{cfg: cfg, incarnation: newIncarnation(), startedAt: time.Now().UTC(), metrics: telemetry.NewRegistry("ingest-gateway")}
	g.log = log.With("gateway", cfg.Gateway, "incarnation", g.incarnation)
	if err := g.open(ctx); err != nil {
		g.close(ctx)
		return err
	}
	return g.run(ctx)
}

func newIncarnation() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// open makes the parts. It needs no server: all of them may be away.
func (g *gateway) open(ctx context.Context) (err error) {
	cfg := &g.cfg
	if g.volume, err = lockVolume(cfg.DataDir); err != nil {
		return err
	}
	if g.objects, err = objectstore.Open(cfg.Objects); err != nil {
		return err
	}
	cfg.NATS.Name, cfg.NATS.Logger = cfg.Gateway, g.log
	if g.nc, err = stream.Connect(ctx, cfg.NATS); err != nil {
		return err
	}
	if g.js, err = jetstream.New(g.nc); err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	g.ledger, err = ledger.Open(ledger.Config{
		Dir: filepath.Join(cfg.DataDir, "ledger"), Site: cfg.Site, Gateway: cfg.Gateway,
		Incarnation: g.incarnation, Gather: gatherLedger * g.cfg.Gather, Logger: g.log,
	})
	if err != nil {
		return err
	}
	if err := g.openSpool(); err != nil {
		return err
	}
	limits := memoryLimits(cfg.MemoryBudget)
	if cfg.MaxConnections > 0 {
		limits.connections = cfg.MaxConnections
	}
	if err := g.openMemory(limits); err != nil {
		return err
	}
	if err := g.openAnnouncer(); err != nil {
		return err
	}
	return g.openReceivers(limits)
}

func (g *gateway) openMemory(limits limits) error {
	scratch, err := scratchSize(g.cfg.DataDir)
	if err != nil {
		return err
	}
	g.pool, err = memory.NewPool(memory.Config{
		Budget: limits.objects(), ScratchDir: filepath.Join(g.cfg.DataDir, "scratch"), ScratchSize: scratch,
	})
	if err != nil {
		return err
	}
	if g.packs, err = memory.NewPool(memory.Config{Budget: limits.packs()}); err != nil {
		return err
	}
	registerMemory(g.metrics, g.pool, g.packs)
	return nil
}

// openAnnouncer makes what publishes.
func (g *gateway) openAnnouncer() (err error) {
	g.notices, err = stream.NewCommitter(g.nc, stream.CommitterConfig{
		Stream: wire.NoticeStream(g.cfg.Site), MaxBytes: noticeBytes, Registerer: g.metrics, Logger: g.log,
	})
	if err != nil {
		return err
	}
	g.messages, err = stream.NewCommitter(g.nc, stream.CommitterConfig{
		Stream: wire.ObservationStream(g.cfg.Site), Linger: g.cfg.Gather / gatherShare, Registerer: g.metrics, Logger: g.log, // bounded by the receiver's budget
	})
	return err
}

const (
	// gatherLedger is how many times as long as datagrams their counts gather: they are kept on the volume, too.
	gatherLedger = 10
	// gatherShare is the part of that time in which messages that close at once must have come to the committer: 20 ms for 50 of them.
	gatherShare = 50
)

// noticeBytes bounds the notices that wait for JetStream: some thousands.
const noticeBytes = 8 << 20

// openReceivers opens the listeners.
func (g *gateway) openReceivers(limits limits) (err error) {
	announcer := announce.New(announce.Config{
		Site: g.cfg.Site, Gateway: g.cfg.Gateway, Incarnation: g.incarnation,
		Notices: g.notices, Observations: g.messages,
	})
	if err := g.openReplicas(); err != nil {
		return err
	}
	budget := diskbudget.Embedded()
	g.names = names.New(names.Config{Site: g.cfg.Site, JetStream: g.js, Objects: g.objects, Logger: g.log})
	g.archive = store.New(store.Config{
		Site: g.cfg.Site, Gateway: g.cfg.Gateway, Incarnation: g.incarnation,
		Objects: g.objects, Announcer: announcer, Ledger: g.ledger, Pool: g.pool, Packs: g.packs,
		Spool: g.spool, Copier: g.copier(), JetStream: g.js, Names: g.names, Budget: budget,
		Logger: g.log, Metrics: g.metrics,
	})
	if err := g.archive.KeepTime(filepath.Join(g.cfg.DataDir, "clock")); err != nil {
		return err
	}
	g.registry = intake.NewRegistry()
	registerRegistry(g.metrics, g.registry)
	g.senders = newSenders(g.cfg.Gateway, func(instrument string) bool { _, ok := g.registry.Current().Instruments()[instrument]; return ok })
	g.metrics.MustRegister(g.senders)
	g.commands = command.New(command.Config{Site: g.cfg.Site, Registry: g.registry, Logger: g.log, Metrics: g.metrics, Asked: g.senders.noteAsked})
	if err := errors.Join(g.openCertificates(), g.openQuarantine(), g.openLinkProbe()); err != nil {
		return err
	}
	refusals, slow := refusal.New(g.log, g.metrics), refusal.NewSlow(g.metrics)
	slots := listen.NewSlots(limits.connections, func(source netip.AddrPort) {
		refusals.Say(wire.UnknownInstrument, wire.CauseTooManyConnections, source, 0, errDisplaced)
	})
	tcpConfig := tcp.Config{
		Registry: g.registry, Certificates: g.certificates, Archive: g.archive, Refusals: refusals, Slow: slow, Slots: slots, Logger: g.log, Metrics: g.metrics,
		Heartbeat: g.senders.heartbeat, Commands: g.commands, Address: g.cfg.ListenAddress,
	}
	udpConfig := udp.Config{
		Source: kernel.New(kernel.Config{Memory: limits.datagrams(), Address: g.cfg.listenAddress()}), Registry: g.registry, Announcer: announcer, Ledger: g.ledger,
		Budget: limits.telemetry(), NoSpace: budget.NoReceipts, Gather: g.cfg.Gather, Logger: g.log, Metrics: g.metrics,
	}
	if g.quarantine != nil {
		tcpConfig.UnknownSenders, udpConfig.UnknownSenders = g.quarantine, g.quarantine
	}
	g.tcp = tcp.NewServer(tcpConfig)
	g.web = http.NewServer(http.Config{
		Site: g.cfg.Site, Registry: g.registry, Certificates: g.certificates, Archive: g.archive, Names: g.names, Objects: g.objects, Pool: g.pool,
		Refusals: refusals, Slow: slow, Slots: slots, Address: g.cfg.ListenAddress, Logger: g.log, Metrics: g.metrics,
	})
	if err := errors.Join(g.openEdge(), g.openMirror()); err != nil {
		return err
	}
	g.reporter = newReporter(g)
	g.http, err = telemetry.NewServer(telemetry.ServerConfig{
		Address: g.cfg.ListenHTTP, Metrics: g.metrics, Ready: g.ready,
	})
	if err != nil {
		return err
	}
	g.udp = udp.NewReceiver(udpConfig)
	g.meter = g.newMeter(slots)
	return nil
}

// errDisplaced says why a connection of an unidentified sender was closed.
var errDisplaced = errors.New("the sender was not identified yet, and others needed the connection's slot")

// run receives until ctx ends, and then drains.
func (g *gateway) run(ctx context.Context) error {
	// Parts that keep data safe outlive ctx: they end when the drain does. Parts that
	// only change things end when the drain begins.
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	steady, unsettle := context.WithCancel(alive)
	defer unsettle()
	var parts sync.WaitGroup
	failed := make(chan error, 16)
	run := func(ctx context.Context, name string, f func(context.Context) error) {
		parts.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				failed <- fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	follower := intake.NewFollower(intake.FollowerConfig{
		Site: g.cfg.Site, Scope: g.cfg.scope(), File: filepath.Join(g.cfg.DataDir, "registry.json"),
		Registry: g.registry, Logger: g.log, Apply: g.listen, Changed: func() { g.commands.Refresh(); g.reporter.requestReport() },
	})
	run(alive, "http", g.http.Serve)
	run(alive, "ledger", func(ctx context.Context) error { return g.ledger.Run(ctx, g.js) })
	run(alive, "report", g.reporter.run)
	run(alive, "spool", g.archive.Drain)
	g.runReplicas(alive, steady, run)
	run(alive, "names", g.names.Run)
	run(steady, "registry", func(ctx context.Context) error { follower.Run(ctx, g.js); return nil })
	run(alive, "certificates", g.certificates.Run)
	run(steady, "edge", g.edge.Run)
	run(alive, "quarantine", g.quarantine.Run)
	run(alive, "commands", func(ctx context.Context) error { g.commands.Run(ctx, g.js); return nil })
	run(alive, "link probe", g.linkProbe.Run)
	run(steady, "health", g.seekBackends)
	g.log.Info("receiving", "site", g.cfg.Site, "pool", g.cfg.Pool, "http", g.http.Address(),
		"ports", fmt.Sprintf("%d-%d", g.cfg.FirstPort, g.cfg.LastPort), "memoryBudget", g.pool.Stats().Budget)

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	g.drain(unsettle)
	end()
	parts.Wait()
	return errors.Join(err, g.finish())
}

// listen opens and closes ports as a snapshot says, and returns the problems by
// instrument.
func (g *gateway) listen(s *intake.Snapshot) map[string]string {
	problems := map[string]string{}
	failed := map[string]map[uint16]error{
		wire.ProtocolTCP:  g.tcp.Listen(g.portsOf(s, wire.ProtocolTCP)),
		wire.ProtocolHTTP: g.web.Listen(s.Ports(wire.ProtocolHTTP)),
		wire.ProtocolUDP:  g.udp.Listen(g.portsOf(s, wire.ProtocolUDP)),
	}
	if len(failed[wire.ProtocolTCP]) > 0 { // HTTP may have had the port until now
		failed[wire.ProtocolTCP] = g.tcp.Listen(g.portsOf(s, wire.ProtocolTCP))
	}
	for name, in := range s.Instruments() {
		for _, w := range in.Listeners {
			if err := failed[w.Protocol][w.Port]; err != nil {
				problems[name] = fmt.Sprintf("%s port %d cannot be opened: %v", w.Protocol, w.Port, err)
			}
		}
	}
	g.health.listening.Store(true)
	return problems
}
