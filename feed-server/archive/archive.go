// SPDX-License-Identifier: Apache-2.0

// Package archive serves a Site's archive over HTTP: objects under their published
// paths and their old URLs, directories as pages and as JSON, robots.txt and sitemaps.
// Asking whether something changed is answered from memory; nothing lists the bucket.
package archive

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// Root is what the paths of objects begin with: /archive/<instrument>/<path>.
	Root = "/archive/"
	// verifiedBelow is the size in bytes up to which an object is compared with its
	// digest before its first byte is sent. Larger ones are while they are.
	verifiedBelow = 8 << 20
	// defaultMemory is Config.Memory by default.
	defaultMemory = 64 << 20
)

// Config says what is served.
type Config struct {
	// Site is the Site's code.
	Site    string
	Catalog Catalog
	Store   objectstore.Store
	// Described returns an instrument's description of its data as of a time. It returns false if
	// none is known; the current description holds then. Optional.
	Described func(instrument string, at time.Time) (wire.Description, bool)
	// AccessCheck lets clients in.
	AccessCheck *endpoint.AccessCheck
	// Memory is for objects that are asked for often, in bytes.
	Memory  int64
	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

// Archive serves one Site's archive.
type Archive struct {
	cfg     Config
	hot     *hot
	aliases aliases
	// looked are the objects of old URLs, and sums the lengths of runs.
	looked remembered[lookKey, looked]
	sums   remembered[sumKey, sum]
}

// New returns an archive; Endpoints says what it answers.
func New(cfg Config) *Archive {
	if cfg.Memory <= 0 {
		cfg.Memory = defaultMemory
	}
	return &Archive{cfg: cfg, hot: newHot(cfg.Store, cfg.Memory, cfg.Metrics), aliases: aliases{log: cfg.Logger}}
}

// Endpoints are the patterns that are answered, as http.ServeMux reads them.
func (a *Archive) Endpoints() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		Root:                         a.cfg.AccessCheck.Answer(a.serveArchive),
		"/robots.txt":                a.cfg.AccessCheck.Answer(a.serveRobots),
		"/sitemap.xml":               a.cfg.AccessCheck.Answer(ready(a.serveSitemaps)),
		sitemapRoot + "{instrument}": a.cfg.AccessCheck.Answer(ready(a.serveSitemap)),
		legacyRoot:                   a.cfg.AccessCheck.Answer(ready(a.serveLegacy)),
		"/":                          a.cfg.AccessCheck.Answer(ready(a.serveAlias)),
	}
}

// ready has a client retry while the Site's Instruments are not known yet.
func ready(serve func(*endpoint.Request) *problem.Problem) func(*endpoint.Request) *problem.Problem {
	return func(v *endpoint.Request) *problem.Problem {
		if p := v.Ready(); p != nil {
			return p
		}
		return serve(v)
	}
}

// serveArchive answers requests below Root.
func (a *Archive) serveArchive(v *endpoint.Request) *problem.Problem {
	t, err := parseTarget(v.URL.EscapedPath())
	if err != nil {
		return problem.New(http.StatusBadRequest, "%v", err)
	}
	if t.instrument == "" {
		return a.serveInstruments(v)
	}
	in, p := v.Instrument(t.instrument, t.String())
	if p != nil {
		return p
	}
	if t.directory {
		return a.serveDirectory(v, in, t)
	}
	return a.serveObject(v, in, t)
}

// notFound is the same answer for a missing and for a hidden object.
func notFound(t target) *problem.Problem { return endpoint.NotFound(t.String()) }
