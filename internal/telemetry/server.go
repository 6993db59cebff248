// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	checkTimeout    = 2 * time.Second
	shutdownTimeout = 3 * time.Second
	headerTimeout   = 5 * time.Second
	idleTimeout     = time.Minute
)

// ServerConfig describes the HTTP server of a program.
type ServerConfig struct {
	// Address to listen on, host:port.
	Address string
	Metrics prometheus.Gatherer
	// Live and Ready answer /healthz and /readyz: nil is 200, an error 503 with its text. They have two seconds. One
	// that is not set always answers nil.
	Live, Ready func(context.Context) error
}

// Server serves /healthz, /readyz and /metrics.
type Server struct {
	listener net.Listener
	http     *http.Server
}

// NewServer listens, so that an address in use is an error here; Serve answers.
func NewServer(cfg ServerConfig) (*Server, error) {
	l, err := net.Listen("tcp", cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("serve health and metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", check(cfg.Live))
	mux.Handle("GET /readyz", check(cfg.Ready))
	mux.Handle("GET /metrics", promhttp.HandlerFor(cfg.Metrics, promhttp.HandlerOpts{}))
	return &Server{listener: l, http: &http.Server{
		Handler: CheckLoopbackHost(mux), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
	}}, nil
}

// Address is where the server listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Serve answers until ctx ends, then finishes the requests that are on their way and returns nil.
func (s *Server) Serve(ctx context.Context) error {
	failed := make(chan error, 1)
	go func() { failed <- s.http.Serve(s.listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve health and metrics: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := s.http.Shutdown(stop); err != nil {
		_ = s.http.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve health and metrics: %w", err)
	}
	return nil
}

func check(f func(context.Context) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
		defer cancel()
		if f != nil {
			if err := f(ctx); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
}
