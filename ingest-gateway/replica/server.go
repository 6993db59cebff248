// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// headerTimeout and idleTimeout end silent connections.
	headerTimeout = 10 * time.Second
	idleTimeout   = 5 * time.Minute
	// stallTimeout ends a copy that receives no more bytes.
	stallTimeout = 30 * time.Second
)

// ServerConfig says where a gateway takes copies.
type ServerConfig struct {
	// Address to listen on.
	Address string
	// Site and Pool whose gateways may send. Gateway is this one.
	Site, Pool, Gateway string
	// Node that it runs on: every answer names both.
	Node   string
	TLS    *Certificates
	Log    *Log
	Logger *slog.Logger
}

// Server takes copies.
type Server struct {
	cfg      ServerConfig
	listener net.Listener
	http     *http.Server
}

// NewServer listens.
func NewServer(cfg ServerConfig) (*Server, error) {
	l, err := net.Listen("tcp", cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("listen for copies of spools: %w", err)
	}
	s := &Server{cfg: cfg, listener: l}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT "+copiesPath+"{owner}", s.keep)
	mux.HandleFunc("POST "+donePath+"{owner}", s.done)
	s.http = &http.Server{
		Handler: mux, TLSConfig: cfg.TLS.server(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// Port that it listens on.
func (s *Server) Port() int { return s.listener.Addr().(*net.TCPAddr).Port }

// Serve answers until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.http.Close() })
	defer stop()
	err := s.http.Serve(tls.NewListener(s.listener, s.http.TLSConfig))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close stops listening.
func (s *Server) Close() { _ = errors.Join(s.http.Close(), s.listener.Close()) }

// owner is the sender: another pod of the pool, which means this one. Addresses of pods are reused:
// a sender that meant another pod gets an answer that says so, and nothing of it is kept.
func (s *Server) owner(w http.ResponseWriter, r *http.Request) (string, bool) {
	w.Header().Set(wire.HeaderGateway, s.cfg.Gateway)
	w.Header().Set(wire.HeaderNode, s.cfg.Node)
	if meant := r.Header.Get(wire.HeaderGateway); meant != "" && meant != s.cfg.Gateway {
		http.Error(w, fmt.Sprintf("this is pod %s, not %s: its address was reused", s.cfg.Gateway, meant), http.StatusMisdirectedRequest)
		return "", false
	}
	if node := r.Header.Get(wire.HeaderNode); node != "" && node == s.cfg.Node {
		http.Error(w, fmt.Sprintf("pod %s is on node %s, too: a copy here would be lost with the original", s.cfg.Gateway, node), http.StatusMisdirectedRequest)
		return "", false
	}
	owner := r.PathValue("owner")
	if !label.MatchString(owner) || !strings.HasPrefix(owner, s.cfg.Pool+"-") || owner == s.cfg.Gateway {
		http.Error(w, fmt.Sprintf("%q is not another pod of pool %s", owner, s.cfg.Pool), http.StatusForbidden)
		return "", false
	}
	return owner, true
}

func (s *Server) keep(w http.ResponseWriter, r *http.Request) {
	owner, ok := s.owner(w, r)
	if !ok {
		return
	}
	control := http.NewResponseController(w)
	body := &watched{r.Body, control}
	n, err := readNotice(body)
	if err == nil && (n.Gateway != owner || n.Site != s.cfg.Site || n.ID == "" || n.Size < 0) {
		err = fmt.Errorf("notice of %s, received by %s at %s: %w", n.ID, n.Gateway, n.Site, wire.ErrMalformed)
	}
	if err == nil {
		err = s.cfg.Log.Keep(r.Context(), owner, n, body)
	}
	s.answer(w, owner, err)
}

// watched ends a body that stalls.
type watched struct {
	body    interface{ Read([]byte) (int, error) }
	control *http.ResponseController
}

// Read implements io.Reader.
func (b *watched) Read(p []byte) (int, error) {
	_ = b.control.SetReadDeadline(time.Now().Add(stallTimeout))
	return b.body.Read(p)
}

func (s *Server) done(w http.ResponseWriter, r *http.Request) {
	owner, ok := s.owner(w, r)
	if !ok {
		return
	}
	ids, err := readDone(http.MaxBytesReader(w, r.Body, maxDone*4<<10))
	if err == nil {
		err = s.cfg.Log.Done(owner, ids)
	}
	s.answer(w, owner, err)
}

// readDone reads which objects are archived: a JSON array of their ids, at most
// maxDone. Errors: wire.ErrMalformed.
func readDone(body io.Reader) ([]string, error) {
	var ids []string
	if err := json.NewDecoder(body).Decode(&ids); err != nil {
		return nil, fmt.Errorf("%w: %w", wire.ErrMalformed, err)
	}
	if len(ids) > maxDone {
		return nil, fmt.Errorf("%d ids, more than %d: %w", len(ids), maxDone, wire.ErrMalformed)
	}
	return ids, nil
}

func (s *Server) answer(w http.ResponseWriter, owner string, err error) {
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, spool.ErrFull):
		http.Error(w, err.Error(), http.StatusInsufficientStorage)
	case errors.Is(err, wire.ErrMalformed), errors.Is(err, wire.ErrNewerFormat):
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		s.cfg.Logger.Warn("a copy of another gateway's spool is not kept", "owner", owner, "error", err)
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}
