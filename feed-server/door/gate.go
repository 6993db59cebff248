// SPDX-License-Identifier: Apache-2.0

// Package door is what the doors of HTTP to the archive share: who asks, of what kind
// they are, whether they ask too often, and what their conditions come to.
package door

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/feed-server/registry"
	"github.com/substorm/substorm/internal/certificate"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
)

// GateConfig says who is let in, and who is told what was answered.
type GateConfig struct {
	// Registry returns who may read what as of now.
	Registry func() *registry.Snapshot
	Limits   Limits
	// Certificates say which authorities sign those of readers; nil where bytes are plain.
	Certificates *certificate.Files
	// Proxies whose X-Forwarded-For and X-Forwarded-Proto are believed.
	Proxies Proxies
	// BaseURL is the Site's address for others, without a slash at its end; empty: what
	// the request was sent to.
	BaseURL string
	// MaxStreams bounds the answers that do not end by themselves; default 4096.
	MaxStreams int
	// Draining is closed when such answers are to end, so that clients go to another
	// replica; nil: they end with the server.
	Draining <-chan struct{}
	// Count is told of each answer when it ends: whose data it was about and who asked
	// (both may be empty), the status and the bytes of content that were sent. Of one about
	// several instruments it is told once for each. Optional. It must not block.
	Count func(instrument, reader string, class Class, status int, bytes int64)
	// Damaged is told of an object that could not be served: its bytes are not those that
	// were received, or missing. Optional. It must not block.
	Damaged func(instrument string, r wire.Record, missing bool)
	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

const defaultStreams = 4096

// Gate is what the doors of HTTP to the archive share: all requests come through one.
type Gate struct {
	cfg     GateConfig
	readers Readers
	limiter *Limiter
	streams chan struct{}
	metrics *metrics
}

// NewGate returns a gate.
func NewGate(cfg GateConfig) *Gate {
	if cfg.MaxStreams <= 0 {
		cfg.MaxStreams = defaultStreams
	}
	return &Gate{
		cfg: cfg, readers: Readers{Certificates: cfg.Certificates}, limiter: NewLimiter(cfg.Limits, cfg.Metrics),
		streams: make(chan struct{}, cfg.MaxStreams), metrics: newMetrics(cfg.Metrics),
	}
}

// Answer is what all doors do first and last.
func (g *Gate) Answer(serve func(*Visit) *problem.Problem) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := &Visit{Request: r, Snapshot: g.cfg.Registry(), Now: time.Now(), gate: g, class: ClassOf(r)}
		v.sent.ResponseWriter = w
		v.W = &v.sent
		defer v.count() // also where serve aborts
		p := g.admit(v)
		if p == nil && r.Method == http.MethodOptions {
			preflight(v.W)
			return
		}
		if p == nil {
			p = serve(v)
		}
		if p != nil {
			g.cfg.Logger.Debug("refused", "path", r.URL.Path, "remote", r.RemoteAddr, "status", p.Status, "why", p.Detail)
			refuse(v.W, p)
		}
	}
}

// Handle is Answer for handlers that know nothing of visits: VisitOf returns it.
func (g *Gate) Handle(h http.Handler) http.HandlerFunc {
	return g.Answer(func(v *Visit) *problem.Problem {
		h.ServeHTTP(v.W, v.Request.WithContext(withVisit(v.Context(), v)))
		return nil
	})
}

// refuse answers with a problem. What was said of the object that it is about does not
// hold for the answer.
func refuse(w http.ResponseWriter, p *problem.Problem) {
	h := w.Header()
	for _, name := range []string{"ETag", "Last-Modified", "Repr-Digest", "Accept-Ranges", "Content-Location", "Vary"} {
		h.Del(name)
	}
	if p.Status == http.StatusUnauthorized {
		Challenge(h)
	}
	p.Write(w)
}

// admit finds out who asks, and lets them wait for their turn.
func (g *Gate) admit(v *Visit) *problem.Problem {
	h := v.W.Header()
	h.Set("Access-Control-Allow-Origin", "*") // credentials are shown by the page itself, or not at all
	h.Set("Access-Control-Expose-Headers", exposed)
	switch v.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
	default:
		h.Set("Allow", allowed)
		return problem.New(http.StatusMethodNotAllowed, "the archive is read here: %s %s changes nothing", v.Method, v.URL.Path)
	}
	reader, refused := g.readers.Identify(v.Snapshot, v.Request)
	v.Reader = reader
	// Who guesses at tokens is slowed down as well.
	if p := g.limiter.Admit(v.Context(), v.class, g.cfg.Proxies.AddressOf(v.Request), reader.Name); p != nil {
		return p
	}
	return refused
}

const (
	allowed = "GET, HEAD, OPTIONS"
	// exposed are the headers that a page's scripts may read.
	exposed = "Accept-Ranges, Content-Location, Content-Range, ETag, Link, Repr-Digest, Retry-After"
	// asking are the headers that a page's scripts may send.
	asking = "Authorization, If-Match, If-Modified-Since, If-None-Match, If-Range, If-Unmodified-Since, Last-Event-ID, Range, Want-Repr-Digest"
)

// preflight answers what browsers ask before they send what is not simple to another
// site (Fetch, CORS protocol).
func preflight(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", "GET, HEAD")
	h.Set("Access-Control-Allow-Headers", asking)
	h.Set("Access-Control-Max-Age", "86400")
	h.Set("Allow", allowed)
	w.WriteHeader(http.StatusNoContent)
}

// base is the Site's address for who asks.
func (g *Gate) base(v *Visit) string {
	if g.cfg.BaseURL != "" {
		return strings.TrimSuffix(g.cfg.BaseURL, "/")
	}
	scheme := "http"
	if v.TLS != nil || g.cfg.Proxies.Trusted(v.Request) && v.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	return scheme + "://" + v.Host
}
