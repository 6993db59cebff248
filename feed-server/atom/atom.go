// SPDX-License-Identifier: Apache-2.0

// Package atom serves Atom feeds (RFC 4287) of new objects: of each instrument, and of all that a
// Feed selects.
package atom

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/substorm/substorm/feed-server/archive"
	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// Root is what the paths begin with: /atom/<instrument>.xml.
	Root = "/atom/"
	// feedsRoot is the root of the documents of Feeds.
	feedsRoot = Root + "feeds/"
	suffix    = ".xml"
	mediaAtom = "application/atom+xml"
	// entries is how many objects a document lists.
	entries = 50
	// greatestAge is how long one may be kept.
	greatestAge = time.Minute
)

// Catalog knows the newest objects. internal/catalog is one.
type Catalog interface {
	// Newest returns the newest objects, the newest first; if until is set, only objects that were
	// observed before it.
	Newest(ctx context.Context, instrument string, most int, until time.Time) ([]*wire.Record, error)
	// Latest returns the newest object of a media type; of any if it is empty.
	Latest(instrument, mediaType string) (wire.Record, bool)
}

// Config says what is served.
type Config struct {
	// Site is the Site's code.
	Site        string
	Catalog     Catalog
	AccessCheck *endpoint.AccessCheck
}

// Atom serves the documents of one Site.
type Atom struct{ cfg Config }

// New returns what answers at its Endpoints.
func New(cfg Config) *Atom { return &Atom{cfg} }

// Endpoints are the patterns that are answered, as http.ServeMux reads them.
func (a *Atom) Endpoints() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		Root + "{file}":      a.cfg.AccessCheck.Answer(a.serveInstrument),
		feedsRoot + "{file}": a.cfg.AccessCheck.Answer(a.serveFeed),
	}
}

// object is one entry.
type object struct {
	in wire.InstrumentEntry
	*wire.Record
}

// serveInstrument answers with what is new of one instrument.
func (a *Atom) serveInstrument(v *endpoint.Request) *problem.Problem {
	name, ok := strings.CutSuffix(v.PathValue("file"), suffix)
	what := v.URL.Path
	if !ok {
		return endpoint.NotFound(what)
	}
	in, p := v.Instrument(name, what)
	if p != nil {
		return p
	}
	all, err := a.newest(v, in)
	if err != nil {
		return v.Unreadable(what, err)
	}
	d := document{base: v.Base(), site: a.cfg.Site, self: Root + name + suffix, title: name, alternate: archive.Root + name + "/", seed: "instrument " + in.UID,
		rights: []*wire.RightsEntry{in.Rights}, objects: all}
	return serve(v, d, endpoint.Policy(in, greatestAge), v.Embargoed(in))
}

// newest returns the newest objects of an instrument that the client may have.
func (a *Atom) newest(v *endpoint.Request, in wire.InstrumentEntry) ([]object, error) {
	var until time.Time
	if v.Embargoed(in) {
		until = v.Now.Add(-in.Access.Embargo())
	}
	records, err := a.cfg.Catalog.Newest(v.Context(), in.Instrument, entries, until)
	var all []object
	for _, r := range records {
		if v.Sees(in, r.ObservedEnd()) {
			all = append(all, object{in, r})
		}
	}
	return all, err
}

// serveFeed answers with what is new of the instruments of a Feed.
func (a *Atom) serveFeed(v *endpoint.Request) *problem.Problem {
	name, ok := strings.CutSuffix(v.PathValue("file"), suffix)
	what := v.URL.Path
	if p := v.Ready(); p != nil {
		return p
	}
	feed, known := v.Snapshot.Feeds[name]
	if !ok || !known {
		return endpoint.NotFound(what)
	}
	d := document{base: v.Base(), site: a.cfg.Site, self: feedsRoot + name + suffix, title: name, alternate: archive.Root, seed: "feed " + feed.UID}
	chosen, p := a.choose(v, feed, what)
	if p != nil {
		return p
	}
	embargoed, public := false, true
	for _, in := range chosen {
		all, err := a.newest(v, in)
		if err != nil {
			return v.Unreadable(what, err)
		}
		d.objects, d.rights = append(d.objects, all...), append(d.rights, in.Rights)
		embargoed, public = embargoed || v.Embargoed(in), public && endpoint.Public(in)
	}
	slices.SortStableFunc(d.objects, func(a, b object) int { return b.When().Compare(a.When()) })
	d.objects = d.objects[:min(entries, len(d.objects))]
	cache := "private, max-age=60"
	if public && feed.Live == "" {
		cache = "public, max-age=60"
	}
	return serve(v, d, cache, embargoed)
}

// choose returns those instruments of a Feed whose archive the client may read, except instruments
// whose newest object is older than the newest objects of as many others as a document has entries.
// It returns a problem if the Feed has instruments, and the client may read none.
func (a *Atom) choose(v *endpoint.Request, feed wire.FeedEntry, what string) ([]wire.InstrumentEntry, *problem.Problem) {
	type candidate struct {
		in wire.InstrumentEntry
		at time.Time
	}
	var all []candidate
	var refused *problem.Problem
	for _, name := range feed.Instruments {
		in, known := v.Snapshot.Instruments[name]
		if !known { // a leaf's are not archived here
			continue
		}
		if p := v.Verdict(narrowed(in, feed), what, time.Time{}); p != nil {
			refused = p
			continue
		}
		c := candidate{in: in}
		r, found := a.cfg.Catalog.Latest(name, "")
		if !found {
			r, found = a.cfg.Catalog.Latest(name, wire.MediaTypeSegment)
		}
		if found {
			c.at = r.When()
		}
		if v.Embargoed(in) { // what it has is older
			c.at = c.at.Add(-in.Access.Embargo())
		}
		all = append(all, c)
	}
	if len(all) == 0 && refused != nil {
		return nil, refused
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return b.at.Compare(a.at) })
	chosen := make([]wire.InstrumentEntry, 0, entries)
	for _, c := range all[:min(entries, len(all))] {
		chosen = append(chosen, c.in)
	}
	return chosen, nil
}

// narrowed is an instrument as a Feed lets it be read.
func narrowed(in wire.InstrumentEntry, feed wire.FeedEntry) wire.InstrumentEntry {
	entry := in.Access.InForce()
	entry.Archive = access.Narrower(entry.Archive, feed.Live)
	in.Access = &entry
	return in
}

// serve answers with a document.
func serve(v *endpoint.Request, d document, cache string, embargoed bool) *problem.Problem {
	is := endpoint.Document{MediaType: mediaAtom, Cache: cache, Source: []string{d.base, d.self, d.title, d.rightsText()}, Write: d.write}
	if !v.Reader.Anonymous() || embargoed {
		is.Vary = "Authorization"
	}
	for _, o := range d.objects {
		is.Source = append(is.Source, o.ID, strconv.Itoa(o.Version), o.Published())
	}
	return v.Serve(d.self, is)
}
