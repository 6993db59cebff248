// SPDX-License-Identifier: Apache-2.0

// Package serve is the server with all endpoints, and the endpoints of live Feeds: WebSocket and
// Server-Sent Events.
package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/feed-server/session"
	"github.com/substorm/substorm/feed-server/state"
	"github.com/substorm/substorm/internal/certificate"
	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/registry"
)

const (
	headerTimeout = 10 * time.Second
	headerBytes   = 16 << 10
	idleTimeout   = time.Minute
)

// Config says what is served, and to which clients.
type Config struct {
	Site string
	// Listen is host:port.
	Listen string
	// Certificates are nil where bytes are plain: behind an edge that ends TLS.
	Certificates *certificate.Files

	// Admission is what all endpoints share; nil: one that bounds nothing.
	Admission *endpoint.Admission

	JetStream jetstream.JetStream
	Registry  *registry.Registry
	// Hub returns the hub that follows a stream.
	Hub        func(stream string) *hub.Hub
	Slots      *semaphore.Weighted
	Priorities *session.Priorities
	Consumers  *state.Consumers
	Logger     *slog.Logger
	Metrics    prometheus.Registerer
	// Sampling answers a consumer that asks for a rate of observations of an instrument that it
	// selects; nil: there is no such endpoint.
	Sampling func(w http.ResponseWriter, r *http.Request, consumer string, selects func(instrument string) bool)
	// Others are the endpoints of other packages, by their patterns.
	Others map[string]http.HandlerFunc
}

// Server serves live Feeds.
type Server struct {
	cfg      Config
	listener net.Listener
	http     *http.Server
	tickets  *tickets
	asking   *rates // for rates of observations
	refused  *prometheus.CounterVec
	full     prometheus.Counter

	// alive ends all connections, with the reason.
	alive    context.Context
	end      context.CancelCauseFunc
	draining atomic.Bool
	open     sync.WaitGroup

	mu          sync.Mutex
	connections map[string]*openTo // by consumer
}

// New listens, so that an address in use is an error here; Run answers.
func New(cfg Config) (*Server, error) {
	if cfg.Admission == nil {
		cfg.Admission = endpoint.NewAdmission(endpoint.AdmissionConfig{Certificates: cfg.Certificates, Logger: cfg.Logger, Metrics: cfg.Metrics})
	}
	l, err := endpoint.Listen(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("serve feeds: %w", err)
	}
	s := &Server{
		cfg: cfg, listener: l, connections: map[string]*openTo{},
		tickets: &tickets{js: cfg.JetStream, site: cfg.Site, rates: newRates(ticketRate, ticketBurst)}, asking: newRates(samplingRate, samplingBurst),
		refused: metric.Counters(cfg.Metrics, "substorm_feed_refused_total",
			"Requests for live feeds that were refused, by status of HTTP.", "status"),
		full: metric.Counter(cfg.Metrics, "substorm_feed_connections_refused_total",
			"Live connections that were refused because the pod, or their address, has as many as it may."),
	}
	most := metric.Gauge(cfg.Metrics, "substorm_feed_connections_limit",
		"How many live connections and event streams the pod takes, of all clients together; 0: any number.")
	most.Set(float64(cfg.Admission.MaxConnections()))
	s.alive, s.end = context.WithCancelCause(context.Background())
	mux := http.NewServeMux()
	for pattern, serve := range s.endpoints() {
		mux.HandleFunc(pattern, serve)
	}
	s.http = &http.Server{
		Handler: bodies(mux), ConnContext: endpoint.WithConnection, ConnState: cfg.Admission.Sockets.ConnState, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: headerBytes,
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	if cfg.Certificates != nil {
		s.http.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: s.handshake}
	}
	return s, nil
}

// endpoints are all patterns that are answered.
func (s *Server) endpoints() map[string]http.HandlerFunc {
	all := maps.Clone(s.cfg.Others)
	if all == nil {
		all = map[string]http.HandlerFunc{}
	}
	maps.Copy(all, map[string]http.HandlerFunc{
		"GET /feeds/{feed}/ws":          s.serveWebSocket,
		"GET /feeds/{feed}/events":      s.serveEvents,
		"POST /feeds/{feed}/tickets":    s.serveTickets,
		"OPTIONS /feeds/{feed}/tickets": preflight("POST"),
		"OPTIONS /feeds/{feed}/events":  preflight("GET"),
	})
	if s.cfg.Sampling != nil {
		all["POST /feeds/{feed}/sampling"] = s.serveSampling
		all["DELETE /feeds/{feed}/sampling"] = s.serveSampling
		all["OPTIONS /feeds/{feed}/sampling"] = preflight("POST, DELETE")
	}
	return all
}

// Endpoints are the patterns that are answered, as http.ServeMux reads them, in order.
func (s *Server) Endpoints() []string { return slices.Sorted(maps.Keys(s.endpoints())) }

// handshake returns the TLS configuration of a connection, with the current certificates.
func (s *Server) handshake(*tls.ClientHelloInfo) (*tls.Config, error) {
	now := s.cfg.Certificates.Optional().Clone()
	now.NextProtos = []string{"h2", "http/1.1"}
	return now, nil
}

// Address is where the server listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Run answers until ctx ends; connections that are open stay so until Drain. It
// returns nil then, or why it cannot answer.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	go func() {
		if s.cfg.Certificates != nil {
			failed <- s.http.ServeTLS(s.listener, "", "")
		} else {
			failed <- s.http.Serve(s.listener)
		}
	}()
	for {
		snapshot, changed := s.cfg.Registry.Watch()
		s.review(snapshot)
		for _, r := range []*rates{s.tickets.rates, s.asking} {
			r.forget(func(consumer string) bool { _, is := snapshot.Consumers[consumer]; return is })
		}
		select {
		case <-changed:
		case err := <-failed:
			if errors.Is(err, http.ErrServerClosed) {
				return nil
			}
			return fmt.Errorf("serve feeds: %w", err)
		case <-ctx.Done():
			return nil
		}
	}
}

// Drain ends all connections of consumers, so that they go to another replica and go
// on there where they were, and lets answers end that do so by themselves. Error:
// ctx's, where it ended before they did.
func (s *Server) Drain(ctx context.Context) error {
	s.draining.Store(true)
	s.mu.Lock() // who entered before is counted
	s.end(errDraining)
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.open.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	err := s.http.Shutdown(ctx)
	_ = s.http.Close()
	return err
}

// refuse answers why not.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, p *problem.Problem) {
	s.refused.WithLabelValues(strconv.Itoa(p.Status)).Inc()
	s.cfg.Logger.Debug("refused", "path", r.URL.Path, "remote", r.RemoteAddr, "status", p.Status, "why", p.Detail)
	if p.Status == http.StatusUnauthorized {
		endpoint.Challenge(w.Header())
	}
	p.Write(w)
}

// ended logs that a connection is over.
func (s *Server) ended(c *connection, r *http.Request, err error) {
	s.cfg.Logger.Debug("a connection ended", "consumer", c.selection.Consumer.Consumer, "remote", r.RemoteAddr, "because", err)
}
