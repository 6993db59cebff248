// SPDX-License-Identifier: Apache-2.0

// Package hapi serves the data of declared channels by time and parameter, as HAPI 3.3
// (Heliophysics Application Programmer's Interface, doi:10.5281/zenodo.16618741). Each channel of
// an Instrument is a dataset, <instrument>/<channel>.
//
// Data is decoded while it is sent, from its objects and segments (source.go), in the order of its
// times (merge.go); what a request holds in memory does not grow with its span. Start reading at
// Handler.answer, then data.go.
package hapi

import (
	"cmp"
	"context"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/klauspost/compress/gzhttp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/wire"
)

// Version of the specification that is served.
const Version = "3.3"

// Path is what all requests begin with.
const Path = "/hapi"

// Archive finds and opens the objects of an instrument's data. A record's time is the time of
// observation, otherwise of receipt. Errors of all methods are those of the store.
type Archive interface {
	// Span returns the least and greatest time of all objects of an instrument, or times beyond
	// these; ok is false if there are none. Told: only objects with a time of observation count, as
	// all segments have.
	Span(ctx context.Context, instrument string, told bool) (from, to time.Time, ok bool, err error)
	// Observed yields the records whose time overlaps that from from to to, which is not
	// included: each once, in any order, whatever their state. It ends after an error.
	Observed(ctx context.Context, instrument string, from, to time.Time) iter.Seq2[wire.Record, error]
	// Tag changes whenever what Observed yields does.
	Tag(ctx context.Context, instrument string, from, to time.Time) (string, error)
	// Open opens an object's bytes. The last read fails if they are not those that were received.
	Open(ctx context.Context, r wire.Record) (io.ReadCloser, error)
}

// Config says what is served, and to which clients.
type Config struct {
	Site string
	// Contact is the contact for questions about the server.
	Contact string
	// AccessCheck lets clients in.
	AccessCheck *endpoint.AccessCheck
	// Generations returns what an instrument said of its data, the oldest first. Optional.
	Generations func(instrument string) []wire.Description
	Archive     Archive
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Memory bounds the samples that one request holds, in bytes; default 64 MiB.
	Memory int
	// Recent bounds the samples that were decoded last, which are held for the requests
	// that come next, in bytes; default 16 MiB.
	Recent int
	// Requests for data that are answered at a time; others wait. Default 8.
	Requests int
	Log      *slog.Logger
	Metrics  prometheus.Registerer
}

const (
	defaultMemory   = 64 << 20
	defaultRecent   = 16 << 20
	defaultRequests = 8
)

// Handler answers requests below Path.
type Handler struct {
	cfg     Config
	turns   *endpoint.Turns
	metrics metrics
	serve   http.Handler
	cache   decoders
	recent  *recent
}

// New returns a handler.
func New(cfg Config) (*Handler, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Memory = cmp.Or(cfg.Memory, defaultMemory)
	if cfg.Recent == 0 {
		cfg.Recent = defaultRecent
	}
	cfg.Requests = cmp.Or(cfg.Requests, defaultRequests)
	h := &Handler{cfg: cfg, turns: endpoint.NewTurns(cfg.Requests), recent: newRecent(cfg.Recent), metrics: newMetrics(cfg.Metrics)}
	compress, err := gzhttp.NewWrapper(gzhttp.MinSize(1024), gzhttp.ContentTypes([]string{"text/csv", "application/json", "text/html"}))
	if err != nil {
		return nil, err
	}
	h.serve = compress(http.HandlerFunc(h.answer))
	return h, nil
}

// Endpoints are the patterns that are answered, as http.ServeMux reads them.
func (h *Handler) Endpoints() map[string]http.HandlerFunc {
	serve := h.cfg.AccessCheck.Handle(http.HandlerFunc(h.request))
	return map[string]http.HandlerFunc{Path: serve, Path + "/": serve}
}

// request answers a request that the access check let in.
func (h *Handler) request(w http.ResponseWriter, r *http.Request) {
	w.Header().Add("Vary", "Authorization")
	v := endpoint.RequestOf(r)
	out := &paced{ResponseWriter: w, request: v}
	h.serve.ServeHTTP(out, r)
	if out.begun {
		v.Finish(r.URL.Path, nil)
	}
}

// paced gives a client time for each piece of an answer, and no longer: a client that does not read
// loses its turn.
type paced struct {
	http.ResponseWriter
	request *endpoint.Request
	begun   bool
}

// Write implements io.Writer. Errors: endpoint.ErrClient.
func (p *paced) Write(b []byte) (int, error) {
	p.begun = true
	return endpoint.Paced{Request: p.request}.Write(b)
}

// Flush implements http.Flusher.
func (p *paced) Flush() { _ = p.request.Flush() } // the next Write fails as well

// Unwrap is for http.ResponseController.
func (p *paced) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// answer finds the endpoint.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request) {
	endpoint := strings.TrimPrefix(r.URL.Path, Path)
	if !strings.HasSuffix(endpoint, "/") {
		h.metrics.requests.WithLabelValues(h.endpoint(w, r, endpoint)).Inc()
		return
	}
	to := *r.URL
	to.Path, to.RawPath = strings.TrimRight(r.URL.Path, "/"), ""
	w.Header().Set("Location", to.RequestURI())
	w.WriteHeader(http.StatusMovedPermanently)
}

// endpoint answers one, and returns its name for metrics.
func (h *Handler) endpoint(w http.ResponseWriter, r *http.Request, endpoint string) string {
	serve := map[string]func(http.ResponseWriter, *http.Request, *caller) *problem{
		"": h.landing, "/about": h.about, "/capabilities": h.capabilities, "/catalog": h.catalog, "/info": h.info, "/data": h.data,
	}[endpoint]
	if serve == nil {
		h.refuse(w, failure(codeUserError, "no such endpoint"))
		return "other"
	}
	c, p := h.caller(r)
	if p == nil {
		p = serve(w, r, c)
	}
	if p != nil {
		h.refuse(w, p)
	}
	return strings.TrimPrefix(endpoint, "/")
}

type metrics struct {
	requests, statuses   *prometheus.CounterVec
	undecodable, distant *prometheus.CounterVec
	aborted              prometheus.Counter
}

func newMetrics(r prometheus.Registerer) metrics {
	return metrics{
		requests:    metric.Counters(r, "substorm_feed_hapi_requests_total", "Requests by endpoint.", "endpoint"),
		statuses:    metric.Counters(r, "substorm_feed_hapi_refused_total", "Requests that were refused, by HAPI status.", "code"),
		undecodable: metric.Counters(r, "substorm_feed_hapi_undecodable_total", "Records that could not be read, each time that they were met.", "instrument", "channel"),
		distant: metric.Counters(r, "substorm_feed_hapi_distant_total",
			"Samples whose time is further from that of receipt than the channel's maxDelay, each time that they were met.", "instrument", "channel"),
		aborted: metric.Counter(r, "substorm_feed_hapi_aborted_total", "Answers that were broken off because the archive failed."),
	}
}
