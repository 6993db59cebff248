// SPDX-License-Identifier: Apache-2.0

// Package console is the page at the feed server's root: a Site's instruments by station, whether
// their data arrives in cadence, the newest picture of each, and one dataset as a live line. It
// shows each reader only the data that the reader may see.
//
// A page is requested once, and gets all changes over one stream of Server-Sent Events: browsers
// have six connections to a server without HTTP/2. The board collects what it knows of the Site
// once for all pages and only while a page is open; the part that one reader may see (a view) is
// made once for all readers with the same rights. Start reading at servePage, then view.go and
// events.go.
package console

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// root is what the paths of the parts begin with.
	root = "/console/"
	// pageAge is for how long a cache may answer in our place: a crowd asks it.
	pageAge = "max-age=5, stale-while-revalidate=5"
	// policy is the page's: its own scripts, styles and pictures, and no other origin.
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

	mediaHTML = "text/html; charset=utf-8"
	mediaJSON = "application/json"
)

// Catalog knows the newest objects. internal/catalog is one.
type Catalog interface {
	// Latest returns the newest object of a media type; of any if it is empty.
	Latest(instrument, mediaType string) (wire.Record, bool)
}

// Config says what is shown.
type Config struct {
	// Site is the Site's code.
	Site        string
	JetStream   jetstream.JetStream
	Catalog     Catalog
	AccessCheck *endpoint.AccessCheck
	Logger      *slog.Logger
}

// Console serves the page of one Site. Run it.
type Console struct {
	cfg   Config
	board *board
	lines *lines

	mu    sync.Mutex
	views map[string]*view // by reader
}

// New returns what answers at its Endpoints.
func New(cfg Config) *Console {
	return &Console{cfg: cfg, board: newBoard(cfg), lines: newLines(cfg), views: map[string]*view{}}
}

// Run collects what the console shows, while there are requests, until ctx ends. It returns nil.
func (c *Console) Run(ctx context.Context) error {
	defer c.lines.end()
	c.board.run(ctx)
	return nil
}

// Endpoints are the patterns that are answered, as http.ServeMux reads them.
func (c *Console) Endpoints() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"/{$}":           c.cfg.AccessCheck.Answer(c.servePage),
		root + "events":  c.cfg.AccessCheck.Answer(c.serveEvents),
		root + "{asset}": c.cfg.AccessCheck.Answer(serveAsset),
	}
}

// servePage answers with the page, or the same as JSON.
func (c *Console) servePage(v *endpoint.Request) *problem.Problem {
	if p := v.Ready(); p != nil {
		return p
	}
	h := v.W.Header()
	h.Set("Referrer-Policy", "same-origin")
	if v.URL.Query().Has("sign-in") {
		return signIn(v)
	}
	c.board.waitSettled(v.Context(), v.Snapshot)
	is := c.view(v)
	d := endpoint.Document{
		MediaType: mediaHTML, Cache: "private, " + pageAge, Vary: "Accept, Authorization", Policy: policy,
		Source: []string{is.tag, strconv.FormatInt(is.at.UnixMilli(), 10), assets.tag}, Write: is.writeHTML,
	}
	if v.Reader.Anonymous() {
		d.Cache = "public, " + pageAge
	}
	if format := v.URL.Query().Get("format"); format == "json" || format == "" && endpoint.PrefersJSON(v.Request) {
		d.MediaType, d.Policy, d.Write = mediaJSON, "", is.writeJSON
	} else {
		h.Add("Link", `</?format=json>; rel="alternate"; type="application/json"`)
	}
	return v.Serve("the page", d)
}

// signIn has a browser ask its user for a token, which it then shows by itself.
func signIn(v *endpoint.Request) *problem.Problem {
	h := v.W.Header()
	h.Set("Cache-Control", "no-store")
	if v.Reader.Anonymous() {
		return problem.New(http.StatusUnauthorized, "show a reader's token as the password, with any user name, or as Authorization: Bearer …")
	}
	h.Set("Location", "/")
	v.W.WriteHeader(http.StatusSeeOther)
	return nil
}

// view returns what the client sees now.
func (c *Console) view(v *endpoint.Request) *view {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := v.Reader.String()
	previous := c.views[key]
	if previous != nil && previous.snapshot == v.Snapshot && time.Since(previous.made) < viewAge {
		return previous
	}
	if previous == nil && len(c.views) >= maxViews {
		clear(c.views)
	}
	current := newView(c.cfg.Site, v, c.board.copyState(), previous)
	c.views[key] = current
	return current
}
