// SPDX-License-Identifier: Apache-2.0

// Package tcp receives objects over raw TCP. The Instrument says how its
// connections are framed: all bytes until the sender closes its side are one
// object, or a connection carries many. One line is the receipt of each.
//
// Accepted sockets carry SO_LINGER{1,0} until all their receipts are written, so
// that a gateway's death is a reset to the sender and never a clean end.
package tcp

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/receive/listen"
	"github.com/substorm/substorm/ingest-gateway/receive/refusal"
	"github.com/substorm/substorm/ingest-gateway/store"
	"github.com/substorm/substorm/internal/certificate"
	"github.com/substorm/substorm/internal/wire"
)

// DefaultMaxConnections bounds what goroutines and file descriptors take; each
// connection needs some 20 KiB beside its share of the memory budget.
const DefaultMaxConnections = 16_384

// errDraining ends connections that did not finish in time.
var errDraining = errors.New("the gateway is draining")

// Config says which gateway receives, and how.
type Config struct {
	Registry *intake.Registry
	// Certificates of the pool; nil if it has none.
	Certificates *certificate.Files
	Archive      *store.Archive
	// UnknownSenders takes what unknown senders send over plain TCP; nil refuses it.
	UnknownSenders UnknownSenders
	Logger         *slog.Logger
	Metrics        prometheus.Registerer
	// Heartbeat, if set, gets what a sender says of itself, with the time and address it came from.
	Heartbeat func(instrument string, h wire.Heartbeat, received time.Time, from netip.Addr)
	// Commands, if set, are the commands for senders that take them.
	Commands Commands
	// Refusals counts what is refused; nil makes one.
	Refusals *refusal.Log
	// Slow delays refusals to senders that fail to authenticate.
	Slow *refusal.Slow
	// Slots bound the connections open at a time, of all instruments and listeners;
	// nil makes DefaultMaxConnections.
	Slots *listen.Slots
	// Address is the IP address on which ports are opened; empty: all.
	Address string
}

// Server receives from any number of ports.
type Server struct {
	cfg      Config
	ctx      context.Context
	cut      context.CancelCauseFunc
	ports    *listen.Ports
	slots    *listen.Slots
	shares   *listen.Shares
	lingers  *semaphore.Weighted
	metrics  metrics
	refusals *refusal.Log

	connections sync.WaitGroup
	workers     workers

	mu     sync.Mutex
	closed bool
	open   map[string]int // connections by instrument, for the metric
	begun  map[*connection]struct{}
}

// NewServer returns a server without a port.
func NewServer(cfg Config) *Server {
	s := &Server{
		cfg: cfg, metrics: newMetrics(cfg.Metrics),
		slots:   cfg.Slots,
		lingers: semaphore.NewWeighted(maxLingers),
		workers: make(workers, maxIdleWorkers),
		shares:  listen.NewShares(),
		open:    map[string]int{},
		begun:   map[*connection]struct{}{},
	}
	if s.slots == nil {
		s.slots = listen.NewSlots(DefaultMaxConnections, nil)
	}
	if s.refusals = cfg.Refusals; s.refusals == nil {
		s.refusals = refusal.New(cfg.Logger, cfg.Metrics)
	}
	s.ctx, s.cut = context.WithCancelCause(context.Background())
	s.ports = listen.New(listen.Config{Protocol: wire.ProtocolTCP, Slots: s.slots, Abort: true, Address: cfg.Address, Logger: cfg.Logger}, s.accept)
	return s
}

// Listen makes ports the set of ports that are received from, and returns an error for each that
// could not be opened. Connections of a port that closes continue.
func (s *Server) Listen(ports []uint16) map[uint16]error { return s.ports.Set(ports) }

func (s *Server) accept(l *listen.Listener) {
	for {
		conn, slot, err := l.AcceptTCP(s.ctx)
		if err != nil {
			return
		}
		if !s.begin() {
			slot.Release()
			_ = conn.Close()
			return
		}
		source := listen.Source(conn)
		s.identify(slot, source, l.Port)
		s.workers.run(func() {
			defer s.leaveSlot(slot)
			s.serve(conn, slot, source, l.Port)
		})
	}
}

// identify says of a sender that is known by its address alone that it may send, before
// another connection is accepted: of many that come at once none is closed for the next.
func (s *Server) identify(slot *listen.Slot, source netip.AddrPort, port uint16) {
	now := s.cfg.Registry.Current()
	if mode, _ := now.TLS(port, source.Addr()); mode != "" {
		return
	}
	if _, refusal := now.Identify(intake.Claim{Protocol: wire.ProtocolTCP, Port: port, Addr: source.Addr()}); refusal.Cause == "" {
		slot.Identified()
	}
}

// Serve receives one connection that was accepted elsewhere, as if its sender
// had connected to port from source, and closes it. Its linger is {1,0} already.
func (s *Server) Serve(conn *net.TCPConn, source netip.AddrPort, port uint16) {
	source = listen.Unmapped(source)
	slot := s.admit(conn, source)
	if slot == nil {
		_ = conn.Close()
		return
	}
	defer s.leaveSlot(slot)
	s.serve(conn, slot, source, port)
}

// Refused counts a connection that was refused before it was one of a port's.
func (s *Server) Refused(source netip.AddrPort, cause wire.Cause, err error) {
	s.cfg.Archive.Refused(wire.UnknownInstrument, cause)
	s.cfg.Refusals.Say(wire.UnknownInstrument, cause, source, 0, err)
}

// admit waits until one more connection may be open, and counts it. It returns nil
// once the server is closed.
func (s *Server) admit(conn *net.TCPConn, source netip.AddrPort) *listen.Slot {
	slot, err := s.slots.Acquire(s.ctx, source, func() { _ = conn.Close() })
	if err != nil {
		return nil
	}
	if !s.begin() {
		slot.Release()
		return nil
	}
	return slot
}

func (s *Server) leaveSlot(slot *listen.Slot) {
	slot.Release()
	s.connections.Done()
}

// begin counts a connection, unless the server is closed.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.connections.Add(1)
	}
	return !s.closed
}

// serve receives one connection.
func (s *Server) serve(conn *net.TCPConn, slot *listen.Slot, source netip.AddrPort, port uint16) {
	defer conn.Close()
	c := &connection{server: s, conn: conn, slot: slot, source: source, port: port, heard: time.Now()}
	c.claim = intake.Claim{Protocol: wire.ProtocolTCP, Port: port, Addr: c.source.Addr()}
	mode, _ := s.cfg.Registry.Current().TLS(port, c.source.Addr())
	if failed := c.open(mode); failed != nil {
		refusal := s.cfg.Registry.Current().Nearly(c.claim, failed.cause)
		c.refuseSender(refusal, failed.err)
		return
	}
	listener, refusal := s.cfg.Registry.Identify(c.claim)
	if refusal.Cause != "" {
		if !c.quarantine(refusal) {
			c.refuseSender(refusal, nil)
		}
		return
	}
	slot.Identified()
	c.accepted, c.listener = listener, listener
	if !c.enter() {
		c.refuseUnread(listener.Instrument.Name, wire.CauseTooManyConnections)
		return
	}
	defer c.leaveShare()
	slot.EndBy(c.displace)
	c.heard = time.Now()
	c.run()
}

// open makes the transport, and completes the claim with what the sender shows.
func (c *connection) open(mode string) *cut {
	if mode == "" {
		p, err := newPlain(c.conn)
		if err != nil { // it is closed already
			return &cut{wire.CauseReset, err}
		}
		c.transport = p
		return nil
	}
	c.claim.Encrypted = true
	t, cert, failed := newSecure(c.server.ctx, c.conn, c.server.cfg.Certificates, mode)
	if failed != nil {
		return failed
	}
	c.transport, c.claim.Certificate = t, cert
	return nil
}

// enter counts a connection of its instrument, unless that has as many as it may and
// none of them gives way.
func (c *connection) enter() bool {
	in := c.listener.Instrument
	c.entry = c.server.shares.Enter(in.Name, in.MaxConnections, c.source.Addr(), c.slot, c.displace)
	if c.entry == nil {
		return false
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[in.Name]++
	s.metrics.connections.WithLabelValues(in.Name).Inc()
	return true
}

func (c *connection) leaveShare() {
	c.entry.Leave()
	s, instrument := c.server, c.accepted.Instrument.Name
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metrics.connections.WithLabelValues(instrument).Dec()
	if s.open[instrument]--; s.open[instrument] == 0 {
		delete(s.open, instrument)
		s.metrics.connections.DeleteLabelValues(instrument)
	}
}

// Close stops accepting. Connections continue.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.ports.Close()
}

// Drain stops accepting, refuses connections that have not begun an object, and returns once all
// that was begun is receipted or refused. When ctx ends, what is left is reset.
func (s *Server) Drain(ctx context.Context) {
	s.Close()
	s.mu.Lock()
	waiting := slices.Collect(maps.Keys(s.begun))
	s.mu.Unlock()
	for _, c := range waiting {
		c.drain()
	}
	done := make(chan struct{})
	go func() {
		s.connections.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.cut(errDraining)
		<-done
	}
}
