// SPDX-License-Identifier: Apache-2.0

// Package http receives objects over HTTP: PUT stores one under a name, POST one without, and
// uploads by tus 1.0 (tus.io) resume where they were interrupted, through any gateway. The answer
// is the receipt: 201 or 200 say that the object is as safe as its instrument's "acknowledge" says,
// everything else that nothing was receipted. Runs of mirrors send by PUT, too, to a port of their
// own on which they are known by their certificates.
package http

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/intake/memory"
	"github.com/substorm/substorm/ingest-gateway/names"
	"github.com/substorm/substorm/ingest-gateway/receive/listen"
	"github.com/substorm/substorm/ingest-gateway/receive/refusal"
	"github.com/substorm/substorm/ingest-gateway/store"
	"github.com/substorm/substorm/internal/certificate"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// headerTimeout bounds a request's header, from its first byte or the
	// connection's beginning.
	headerTimeout = 10 * time.Second
	// keepAlive is how long a connection may be silent between two requests.
	keepAlive = 2 * time.Minute
	// maxHeader bounds a request's header in bytes.
	maxHeader = 16 << 10
	// answerTimeout is how long an answer may take into the kernel's buffer.
	answerTimeout = 30 * time.Second
)

// errDraining ends what did not finish in time.
var errDraining = errors.New("the gateway is draining")

// Config says which gateway receives, and how.
type Config struct {
	Site     string
	Registry *intake.Registry
	// Certificates of the pool; nil if it has none.
	Certificates *certificate.Files
	Archive      *store.Archive
	Names        *names.Names
	// Objects holds what has arrived of uploads that are not whole, and Pool what
	// is on its way there.
	Objects  objectstore.Store
	Pool     *memory.Pool
	Refusals *refusal.Log
	// Slow delays refusals to senders that fail to authenticate.
	Slow *refusal.Slow
	// Slots bound the connections open at a time, of all instruments.
	Slots *listen.Slots
	// Address is the IP address on which ports are opened; empty: all.
	Address string
	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

// Server receives from any number of ports.
type Server struct {
	cfg   Config
	ctx   context.Context
	cut   context.CancelCauseFunc
	ports *listen.Ports
	http  *http.Server
	// mirror is nil where runs of mirrors are not received from.
	mirror  *mirror
	metrics metrics
	lingers *semaphore.Weighted

	shares *listen.Shares

	mu   sync.Mutex
	open map[string]int // requests by instrument, for the metric
}

// NewServer returns a server without a port.
func NewServer(cfg Config) *Server {
	s := &Server{
		cfg: cfg, metrics: newMetrics(cfg.Metrics), lingers: semaphore.NewWeighted(maxLingers),
		shares: listen.NewShares(), open: map[string]int{},
	}
	s.ctx, s.cut = context.WithCancelCause(context.Background())
	s.ports = listen.New(listen.Config{Protocol: wire.ProtocolHTTP, Slots: cfg.Slots, Address: cfg.Address, Logger: cfg.Logger}, s.serve)
	s.http = s.newHTTP(s)
	return s
}

func (s *Server) newHTTP(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: keepAlive, MaxHeaderBytes: maxHeader,
		ErrorLog:  slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
		ConnState: s.sawState, ConnContext: withSlot,
	}
}

// Listen makes ports the set of ports that are received from, and returns an error for each that
// could not be opened. Connections of a port that closes continue, and each request is judged
// again.
func (s *Server) Listen(ports []uint16) map[uint16]error { return s.ports.Set(ports) }

func (s *Server) serve(l *listen.Listener) {
	s.serveFrom(s.http, l, func(c *conn) net.Conn { return s.secure(l.Port, c) })
}

// serveFrom receives what comes to a port until that is closed. Secure, if set, puts TLS on its connections.
func (s *Server) serveFrom(h *http.Server, l *listen.Listener, secure func(*conn) net.Conn) {
	err := h.Serve(&listener{Listener: l, server: s, secure: secure})
	if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		s.cfg.Logger.Error("stopped receiving on a port", "address", l.Addr().String(), "error", err)
	}
}

// listener gives a connection's slot back when it is closed.
type listener struct {
	*listen.Listener
	server *Server
	secure func(*conn) net.Conn
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, slot, err := l.AcceptTCP(l.server.ctx)
	if err != nil {
		return nil, err
	}
	return l.secure(&conn{Conn: c, slot: slot}), nil
}

// Serve receives one connection that was accepted elsewhere, as if its sender had
// connected to port from source.
func (s *Server) Serve(c *net.TCPConn, source netip.AddrPort, port uint16) {
	slot, err := s.cfg.Slots.Acquire(s.ctx, listen.Unmapped(source), func() { listen.Reset(c) })
	if err != nil {
		_ = c.Close()
		return
	}
	introduced := &conn{Conn: c, slot: slot,
		local: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.IPv4Unspecified(), port)), remote: net.TCPAddrFromAddrPort(source)}
	_ = c.SetLinger(-1) // what HTTP ends, its own framing ends
	only := &single{conn: s.secure(port, introduced)}
	_ = s.http.Serve(only) // ends at once: its connection continues
	if only.conn != nil {  // the server takes no more
		_ = only.conn.Close()
	}
}

// single is a listener with one connection.
type single struct{ conn net.Conn }

// Accept implements net.Listener.
func (l *single) Accept() (net.Conn, error) {
	c := l.conn
	l.conn = nil
	if c == nil {
		return nil, net.ErrClosed
	}
	return c, nil
}

// Close implements net.Listener.
func (l *single) Close() error { return nil }

// Addr implements net.Listener.
func (l *single) Addr() net.Addr { return &net.TCPAddr{} }

// conn gives its slot back when it is closed.
type conn struct {
	net.Conn
	slot *listen.Slot
	// local and remote are what an edge says; nil for the socket's own.
	local, remote *net.TCPAddr
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr {
	if c.local != nil {
		return c.local
	}
	return c.Conn.LocalAddr()
}

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr {
	if c.remote != nil {
		return c.remote
	}
	return c.Conn.RemoteAddr()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	defer c.slot.Release()
	return c.Conn.Close()
}

// slotKey is the key of a connection's slot in the context of its requests.
type slotKey struct{}

func withSlot(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, slotKey{}, slotOf(c))
}

func slotOf(c net.Conn) *listen.Slot {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return c.(*conn).slot
}

// enter counts a request of an instrument, unless it has as many as it may have
// connections and none of them gives way.
func (q *request) enter(slot *listen.Slot) bool {
	s, in := q.server, q.listener.Instrument
	q.displaced = make(chan struct{})
	q.entry = s.shares.Enter(in.Name, in.MaxConnections, q.source.Addr(), slot, func() { close(q.displaced) })
	if q.entry == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[in.Name]++
	s.metrics.requests.WithLabelValues(in.Name).Inc()
	return true
}

func (q *request) leave() {
	q.entry.Leave()
	s, instrument := q.server, q.name()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metrics.requests.WithLabelValues(instrument).Dec()
	if s.open[instrument]--; s.open[instrument] == 0 {
		delete(s.open, instrument)
		s.metrics.requests.DeleteLabelValues(instrument)
	}
}

// Drain stops accepting, and returns once all requests that were begun are
// answered. When ctx ends, what is left is cut off.
func (s *Server) Drain(ctx context.Context) {
	s.ports.Close()
	servers := []*http.Server{s.http}
	if s.mirror != nil {
		servers = append(servers, s.mirror.http)
	}
	var all sync.WaitGroup
	for _, h := range servers {
		all.Go(func() {
			if h.Shutdown(ctx) != nil {
				s.cut(errDraining)
				_ = h.Close()
			}
		})
	}
	all.Wait()
}

// addresses returns the port that a request came to, and where it came from.
func addresses(r *http.Request) (port uint16, source netip.AddrPort) {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		port = local.AddrPort().Port()
	}
	source, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil { // never: net/http writes it
		return port, netip.AddrPort{}
	}
	return port, listen.Unmapped(source)
}
