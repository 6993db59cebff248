// SPDX-License-Identifier: Apache-2.0

// Package proxy receives connections from an edge: a proxy that says by the PROXY
// protocol, version 2, for whom it speaks. It demands the header, believes none
// but the edge's, and hands the connection to the listener that the header selects.
package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/substorm/substorm/ingest-gateway/receive/listen"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// headerTimeout is how long a proxy may take for a header, which is the first
	// thing it sends.
	headerTimeout = 5 * time.Second
	// maxHeaders bounds the connections that are waited for.
	maxHeaders = 1024
)

// Config says which proxies are believed, and where connections go.
type Config struct {
	Port uint16
	// Sources are the edge's addresses.
	Sources []netip.Prefix
	// Serve receives a connection as if its sender had connected to port from
	// source, and closes it.
	Serve func(conn *net.TCPConn, source netip.AddrPort, port uint16)
	// Refused counts and logs a connection that was refused.
	Refused func(peer netip.AddrPort, cause wire.Cause, err error)
	Logger  *slog.Logger
	// Address is the IP address on which the port is opened; empty: all.
	Address string
}

// Server has one port.
type Server struct {
	cfg      Config
	listener *listen.Listener
	serving  sync.WaitGroup
}

// Listen opens the port. Errors say that it cannot be.
func Listen(cfg Config) (*Server, error) {
	slots := listen.NewSlots(maxHeaders, nil)
	l, err := listen.Open(&listen.Config{Protocol: "PROXY", Slots: slots, Abort: true, Address: cfg.Address, Logger: cfg.Logger}, cfg.Port)
	if err != nil {
		return nil, fmt.Errorf("the edge's port: %w", err)
	}
	return &Server{cfg: cfg, listener: l}, nil
}

// Run receives until ctx ends, and returns once every connection is over or
// handed over. A nil Server has nothing to receive.
func (s *Server) Run(ctx context.Context) error {
	if s == nil {
		return nil
	}
	defer context.AfterFunc(ctx, func() { _ = s.listener.Close() })()
	defer s.serving.Wait()
	for {
		conn, slot, err := s.listener.AcceptTCP(ctx)
		if err != nil {
			return nil
		}
		s.serving.Go(func() { s.receive(ctx, conn, slot) })
	}
}

// receive reads the header, and hands the connection over.
func (s *Server) receive(ctx context.Context, conn *net.TCPConn, slot *listen.Slot) {
	peer := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	h, cause, err := s.introduce(ctx, conn, slot, peer)
	slot.Release()
	switch {
	case cause != "":
		s.cfg.Refused(peer, cause, err)
		_ = conn.Close()
	case h.local:
		_ = conn.SetLinger(-1)
		_ = conn.Close()
	default:
		go s.cfg.Serve(conn, h.source, h.destination.Port())
	}
}

func (s *Server) introduce(ctx context.Context, conn *net.TCPConn, slot *listen.Slot, peer netip.AddrPort) (header, wire.Cause, error) {
	addr := peer.Addr().Unmap().WithZone("")
	if !slices.ContainsFunc(s.cfg.Sources, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return header{}, wire.CauseUnknownSource, nil
	}
	slot.Identified() // a proxy, which the edge's addresses bound
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	if err := conn.SetReadDeadline(time.Now().Add(headerTimeout)); err != nil {
		return header{}, wire.CauseReset, err
	}
	h, err := readHeader(conn)
	if err != nil {
		return header{}, wire.CauseProxyHeader, err
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return header{}, wire.CauseReset, err
	}
	return h, "", nil
}
