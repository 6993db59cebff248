// SPDX-License-Identifier: Apache-2.0

// Package archive serves a Site's archive over HTTP: objects under their published
// paths and their old URLs, directories as pages and as JSON, robots.txt and sitemaps.
// Asking whether something changed is answered from memory; nothing lists the bucket.
//
// The program does not open these doors yet: they stand on a Catalog, which is to be
// made of the manifests.
package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/feed-server/door"
	"github.com/substorm/substorm/feed-server/registry"
	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/certificate"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/tree"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// Root is what the paths of objects begin with: /archive/<instrument>/<path>.
	Root = "/archive/"
	// verifiedBelow is the size in bytes up to which an object is compared with its
	// digest before its first byte is sent. Larger ones are while they are.
	verifiedBelow = 8 << 20
	// defaultMemory is Config.Memory where nothing is said.
	defaultMemory = 64 << 20
	// retryStore is when to ask again while the object store or the registry is away, in
	// seconds.
	retryStore = 5
)

// Config says what is served.
type Config struct {
	// Site is the Site's code.
	Site    string
	Catalog Catalog
	Store   objectstore.Store
	// Registry returns who may read what as of now.
	Registry func() *registry.Snapshot
	// Memory is for objects that are asked for often, in bytes.
	Memory int64
	Limits door.Limits
	// Certificates say which authorities sign those of readers; nil where bytes are plain.
	Certificates *certificate.Files
	// Proxies whose X-Forwarded-For and X-Forwarded-Proto are believed.
	Proxies door.Proxies
	// BaseURL is the archive's address for others, without a slash at its end; empty:
	// what the request was sent to.
	BaseURL string
	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

// Archive serves one Site's archive.
type Archive struct {
	cfg     Config
	readers door.Readers
	limiter *door.Limiter
	hot     *hot
	aliases aliases
	metrics *metrics
}

// New returns an archive; Doors says what it answers.
func New(cfg Config) *Archive {
	if cfg.Memory <= 0 {
		cfg.Memory = defaultMemory
	}
	return &Archive{
		cfg: cfg, readers: door.Readers{Certificates: cfg.Certificates}, limiter: door.NewLimiter(cfg.Limits, cfg.Metrics), metrics: newMetrics(cfg.Metrics),
		hot: newHot(cfg.Store, cfg.Memory, cfg.Metrics), aliases: aliases{log: cfg.Logger},
	}
}

// Doors are the patterns that are answered, as http.ServeMux reads them.
func (a *Archive) Doors() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		Root:                         a.answer(a.serveArchive),
		"/robots.txt":                a.answer(a.serveRobots),
		"/sitemap.xml":               a.answer(a.serveSitemaps),
		sitemapRoot + "{instrument}": a.answer(a.serveSitemap),
		legacyRoot:                   a.answer(a.serveLegacy),
		"/":                          a.answer(a.serveAlias),
	}
}

// visit is one request of a client that may ask.
type visit struct {
	*http.Request
	w        http.ResponseWriter
	snapshot *registry.Snapshot
	reader   access.Reader
	now      time.Time
}

// answer is what all doors do first and last.
func (a *Archive) answer(serve func(*visit) *problem.Problem) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		counted := &counter{ResponseWriter: w}
		class := door.ClassOf(r)
		defer func() { a.metrics.count(class, counted) }() // also where serve aborts
		v := &visit{Request: r, w: counted, snapshot: a.cfg.Registry(), now: time.Now()}
		p := a.admit(v, class)
		if p == nil && r.Method == http.MethodOptions {
			preflight(counted)
			return
		}
		if p == nil {
			p = serve(v)
		}
		if p != nil {
			a.cfg.Logger.Debug("refused", "path", r.URL.Path, "remote", r.RemoteAddr, "status", p.Status, "why", p.Detail)
			refuse(counted, p)
		}
	}
}

// refuse answers with a problem. What was said of the object that it is about does not
// hold for the answer.
func refuse(w http.ResponseWriter, p *problem.Problem) {
	h := w.Header()
	for _, name := range []string{"ETag", "Last-Modified", "Repr-Digest", "Accept-Ranges", "Vary"} {
		h.Del(name)
	}
	if p.Status == http.StatusUnauthorized {
		h.Add("WWW-Authenticate", `Bearer realm="substorm"`)
		h.Add("WWW-Authenticate", `Basic realm="substorm", charset="UTF-8"`)
	}
	p.Write(w)
}

// admit finds out who asks, and lets them wait for their turn.
func (a *Archive) admit(v *visit, class door.Class) *problem.Problem {
	h := v.w.Header()
	h.Set("Access-Control-Allow-Origin", "*") // credentials are shown by the page itself, or not at all
	h.Set("Access-Control-Expose-Headers", exposed)
	switch v.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
	default:
		h.Set("Allow", allowed)
		return problem.New(http.StatusMethodNotAllowed, "the archive is read here: %s %s changes nothing", v.Method, v.URL.Path)
	}
	reader, refused := a.readers.Identify(v.snapshot, v.Request)
	v.reader = reader
	// Who guesses at tokens is slowed down as well.
	if p := a.limiter.Admit(v.Context(), class, a.cfg.Proxies.AddressOf(v.Request), reader.Name); p != nil {
		return p
	}
	return refused
}

const (
	allowed = "GET, HEAD, OPTIONS"
	// exposed are the headers that a page's scripts may read.
	exposed = "Accept-Ranges, Content-Range, ETag, Link, Repr-Digest, Retry-After"
	// asking are the headers that a page's scripts may send.
	asking = "Authorization, If-Match, If-Modified-Since, If-None-Match, If-Range, If-Unmodified-Since, Range, Want-Repr-Digest"
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

// serveArchive answers what lies below Root.
func (a *Archive) serveArchive(v *visit) *problem.Problem {
	t, err := parseTarget(v.URL.EscapedPath())
	if err != nil {
		return problem.New(http.StatusBadRequest, "%v", err)
	}
	if t.instrument == "" {
		return a.serveInstruments(v)
	}
	in, p := a.instrument(v, t)
	if p != nil {
		return p
	}
	if t.directory {
		return a.serveDirectory(v, in, t)
	}
	return a.serveObject(v, in, t)
}

// instrument returns what the registry says of the instrument that a target names, if
// who asks may read its archive at all.
func (a *Archive) instrument(v *visit, t target) (wire.InstrumentEntry, *problem.Problem) {
	in, known := v.snapshot.Instruments[t.instrument]
	if !known {
		if v.snapshot.Revision == 0 {
			return in, problem.New(http.StatusServiceUnavailable, "this replica does not know the Site's Instruments yet").After(retryStore)
		}
		return in, notFound(t)
	}
	return in, a.verdict(v, in, t, time.Time{})
}

// verdict says why who asks may not have what was observed at a time; nil: they may.
func (a *Archive) verdict(v *visit, in wire.InstrumentEntry, t target, observed time.Time) *problem.Problem {
	switch access.Decide(access.Archive, v.reader, in.Access, observed, v.now) {
	case access.Granted:
		return nil
	case access.NeedsReader:
		return problem.New(http.StatusUnauthorized,
			"the archive of Instrument %s is not for everybody: show a reader's token, as Authorization: Bearer … or as the password", in.Instrument)
	case access.Forbidden:
		return problem.New(http.StatusForbidden, "%s may not read the archive of Instrument %s: see spec.access of the Instrument", v.reader.Name, in.Instrument)
	default:
		return notFound(t)
	}
}

// notFound is the same for what there is not and for what is not told.
func notFound(t target) *problem.Problem {
	return problem.New(http.StatusNotFound, "nothing is published as %s: %s lists what is", t, Root)
}

// unreadable says why a catalog or the store does not give what is asked for.
func (a *Archive) unreadable(v *visit, what string, err error) *problem.Problem {
	if ctx := v.Context().Err(); ctx != nil {
		return problem.New(statusClientGone, "the client is gone: %v", ctx)
	}
	a.cfg.Logger.Warn("the archive cannot be read", "path", what, "error", err)
	switch {
	case errors.Is(err, tree.ErrDamaged), errors.Is(err, objectstore.ErrNotFound):
		a.metrics.damaged.Inc()
		return problem.New(http.StatusBadGateway, "%s is damaged in the store, and is not served: its bytes are not those that were received", what)
	case errors.Is(err, objectstore.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return problem.New(http.StatusServiceUnavailable, "the object store does not answer now: ask for %s again", what).After(retryStore)
	default:
		return problem.New(http.StatusBadGateway, "%s cannot be read from the object store: see the log of the feed server", what)
	}
}

// statusClientGone is written to nobody, and counted.
const statusClientGone = 499

// policy is how long answers about an instrument may be kept: no longer than new data
// is due in, and as long again while a cache asks anew (RFC 5861).
func policy(in wire.InstrumentEntry, most time.Duration) string {
	const least = time.Second
	age := time.Duration(in.CadenceMillis) * time.Millisecond
	if age <= 0 || age > most {
		age = most
	}
	age = max(age, least)
	scope := "private"
	if public(in) {
		scope = "public"
	}
	seconds := int64(age / time.Second)
	return fmt.Sprintf("%s, max-age=%d, stale-while-revalidate=%d", scope, seconds, seconds)
}

// public says whether everybody may have all of an instrument's archive.
func public(in wire.InstrumentEntry) bool {
	return in.Access != nil && in.Access.Archive == wire.AccessPublic && in.Access.EmbargoMillis == 0
}
