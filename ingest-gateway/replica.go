// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/ingest-gateway/intake/memory"
	"github.com/substorm/substorm/ingest-gateway/replica"
	"github.com/substorm/substorm/ingest-gateway/store"
	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// copyBudget is the memory, and copyScratch the part of the volume's free
	// space, for copies of other gateways' spools that are on their way in.
	copyBudget  = 4 << 20
	copyScratch = 0.05
)

// ReplicaConfig says how spools are copied within the pool.
type ReplicaConfig struct {
	// Listen is the address on which copies are taken; empty: none are, nor sent.
	Listen string
	// TLSDir holds the pool's ca.crt, tls.crt and tls.key.
	TLSDir string
	// After is how long a gateway may be silent before others drain their
	// copies of its spool.
	After time.Duration
}

// replicas are the copies that this gateway keeps, and the peer that keeps its own.
type replicas struct {
	log    *replica.Log
	server *replica.Server
	peers  *replica.Peers
}

// openReplicas needs the archive's metrics and no archive; it does nothing where
// copies are not asked for.
func (g *gateway) openReplicas() error {
	cfg := &g.cfg
	if cfg.Replica.Listen == "" {
		return nil
	}
	certificates, err := replica.LoadCertificates(cfg.Replica.TLSDir, cfg.Pool)
	if err != nil {
		return fmt.Errorf("--replica-tls-dir: %w", err)
	}
	dir := filepath.Join(cfg.DataDir, "replicas")
	size, err := shareOf(cfg.DataDir, dir, copiesShare)
	if err != nil {
		return err
	}
	free, err := freeSpace(cfg.DataDir)
	if err != nil {
		return err
	}
	pool, err := memory.NewPool(memory.Config{
		Budget: copyBudget, ScratchDir: filepath.Join(cfg.DataDir, "copies-scratch"), ScratchSize: int64(copyScratch * free),
	})
	if err != nil {
		return err
	}
	r := &replicas{}
	if r.log, err = replica.OpenLog(replica.LogConfig{Dir: dir, Size: size, Pool: pool, Logger: g.log}); err != nil {
		return err
	}
	g.replicas = r
	r.server, err = replica.NewServer(replica.ServerConfig{
		Address: cfg.Replica.Listen, Site: cfg.Site, Pool: cfg.Pool, Gateway: cfg.Gateway, Node: cfg.Node, TLS: certificates, Log: r.log, Logger: g.log,
	})
	if err != nil {
		return err
	}
	r.peers = replica.NewPeers(replica.PeersConfig{
		Pool: cfg.Pool, Gateway: cfg.Gateway, Node: cfg.Node, TLS: certificates,
		File: filepath.Join(dir, "peers.json"), Logger: g.log,
	})
	r.register(g.metrics)
	return nil
}

func (r *replicas) register(reg prometheus.Registerer) {
	gauge := func(name, help string, value func(wire.CopiesStatus) int64) {
		metric.GaugeFunc(reg, name, help, func() (sum float64) {
			for _, c := range r.log.Status() {
				sum += float64(value(c))
			}
			return sum
		})
	}
	gauge("substorm_gateway_copies", "Objects that wait in the spools of other gateways and of which this one keeps copies.",
		func(c wire.CopiesStatus) int64 { return c.Objects })
	gauge("substorm_gateway_copies_bytes", "Bytes of the copies that are kept for other gateways.",
		func(c wire.CopiesStatus) int64 { return c.Bytes })
}

// copier is what has copies kept, or nil.
func (g *gateway) copier() store.Copier {
	if g.replicas == nil {
		return nil
	}
	return g.replicas.peers
}

// runReplicas begins to take copies, to have them kept, and to drain them.
func (g *gateway) runReplicas(alive, steady context.Context, run func(context.Context, string, func(context.Context) error)) {
	r := g.replicas
	if r == nil {
		return
	}
	run(alive, "copies", r.server.Serve)
	run(alive, "peers", func(ctx context.Context) error { return r.peers.Follow(ctx, g.js, g.cfg.Site, g.nc.IsConnected) })
	run(alive, "archived", r.peers.Run)
	run(steady, "drain copies", func(ctx context.Context) error {
		return r.log.Drain(ctx, replica.DrainConfig{After: g.cfg.Replica.After, Owner: r.peers.Owner, Bring: g.archive.DrainCopies})
	})
}

// addCopies says in a report where copies are taken, which peer gets ours, and what is kept.
func (g *gateway) addCopies(s *wire.GatewayStatus) {
	if r := g.replicas; r != nil {
		if g.cfg.PodIP != "" {
			s.Replica = net.JoinHostPort(g.cfg.PodIP, strconv.Itoa(r.server.Port()))
		}
		s.Peer, s.Copies = r.peers.Peer(), r.log.Status()
	}
}

func (r *replicas) close() error {
	if r == nil {
		return nil
	}
	if r.server != nil {
		r.server.Close()
	}
	return r.log.Close()
}
