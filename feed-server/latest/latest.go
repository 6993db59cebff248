// SPDX-License-Identifier: Apache-2.0

// Package latest serves the newest object of each instrument under one URL, and notifies pages of
// newer ones, so that they need not poll.
package latest

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/substorm/substorm/feed-server/archive"
	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// Root is what the paths begin with: /latest/<instrument>.
	Root = "/latest/"
	// eventsEnd is the end of the paths of events.
	eventsEnd = "/events"
	// unknownAge is how long the latest of an instrument without a cadence may be kept.
	unknownAge = 10 * time.Second
	// greatestAge is how long any may be.
	greatestAge = time.Hour
)

// Catalog knows the newest objects. internal/catalog is one.
type Catalog interface {
	// Latest returns the newest object of a media type; of any if it is empty.
	Latest(instrument, mediaType string) (wire.Record, bool)
	// Newest returns the newest objects, the newest first; if until is set, only objects that were
	// observed before it.
	Newest(ctx context.Context, instrument string, most int, until time.Time) ([]*wire.Record, error)
	// Types returns the media types of what came lately.
	Types(ctx context.Context, instrument string) ([]string, error)
	// Subscribe yields the newest object of any type: the current one, and each newer one. A slow
	// subscriber misses objects in between.
	Subscribe(instrument string) (records <-chan wire.Record, cancel func())
}

// Config says what is served.
type Config struct {
	Catalog     Catalog
	AccessCheck *endpoint.AccessCheck
	// Archive serves objects.
	Archive *archive.Archive
}

// Latest serves the newest objects of one Site.
type Latest struct{ cfg Config }

// New returns what answers at its Endpoints.
func New(cfg Config) *Latest { return &Latest{cfg} }

// Endpoints are the patterns that are answered, as http.ServeMux reads them.
func (l *Latest) Endpoints() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		Root + "{instrument}":             l.cfg.AccessCheck.Answer(l.serveObject),
		Root + "{instrument}" + eventsEnd: l.cfg.AccessCheck.Answer(l.serveEvents),
	}
}

// serveObject answers with the newest object that fits.
func (l *Latest) serveObject(v *endpoint.Request) *problem.Problem {
	name := v.PathValue("instrument")
	what := "the latest of " + name
	in, p := v.Instrument(name, what)
	if p != nil {
		return p
	}
	record, found, p := l.find(v, in, what)
	if p != nil {
		return p
	}
	h := v.W.Header()
	h.Add("Vary", "Accept")
	if !found {
		return nothingLatest(in, what)
	}
	if archive.Addressed(in, &record) {
		h.Set("Content-Location", archive.URL(name, &record))
	}
	h.Add("Link", "<"+eventsURL(name)+`>; rel="monitor"; type="text/event-stream"`) // RFC 5989
	return l.cfg.Archive.Serve(v, in, what, record, age(in, &record, v.Now))
}

// find returns the newest object of the type that the query asks for, or else of the best type that
// the client accepts.
func (l *Latest) find(v *endpoint.Request, in wire.InstrumentEntry, what string) (wire.Record, bool, *problem.Problem) {
	if v.Embargoed(in) {
		return l.findFree(v, in, what)
	}
	asked, accept := v.URL.Query().Get("type"), v.Request.Header.Values("Accept")
	if asked == "" && len(accept) == 0 {
		r, found := l.cfg.Catalog.Latest(in.Instrument, "")
		return r, found, nil
	}
	types, err := l.cfg.Catalog.Types(v.Context(), in.Instrument)
	if err != nil {
		return wire.Record{}, false, v.Unreadable(what, err)
	}
	if asked != "" {
		r, found := l.cfg.Catalog.Latest(in.Instrument, asked)
		return r, found, nil
	}
	newest, found := l.cfg.Catalog.Latest(in.Instrument, "")
	best := endpoint.Accepted(accept, archive.MediaType(in, &newest))
	for _, mediaType := range types {
		if q := endpoint.Accepted(accept, mediaType); q > best {
			if r, is := l.cfg.Catalog.Latest(in.Instrument, mediaType); is {
				newest, found, best = r, true, q
			}
		} else if q == best && q > 0 {
			if r, is := l.cfg.Catalog.Latest(in.Instrument, mediaType); is && r.When().After(newest.When()) {
				newest, found = r, true
			}
		}
	}
	if found && best == 0 && !isPage(accept) {
		return newest, false, notAcceptable(what)
	}
	return newest, found, nil
}

// nothingLatest is the answer if there is no object. The client may read the instrument.
func nothingLatest(in wire.InstrumentEntry, what string) *problem.Problem {
	if slices.ContainsFunc(in.Channels, func(c wire.ChannelEntry) bool { return c.Datagrams != "" }) {
		return problem.New(http.StatusNotFound, "nothing is published as %s: its telemetry is no object, /hapi serves the values", what)
	}
	return endpoint.NotFound(what)
}

// isPage reports whether a client asks for a page to show to a person. It gets the newest object, whatever its type: an answer may
// disregard Accept (RFC 9110, 12.5.1), and a picture is more use than a refusal.
func isPage(accept []string) bool { return endpoint.Accepted(accept, "text/html") > 0 }

func notAcceptable(what string) *problem.Problem {
	return problem.New(http.StatusNotAcceptable, "%s is none of the types that you accept: ?type= asks for another", what)
}

// age is how long an answer may be kept: until the next object is due.
func age(in wire.InstrumentEntry, r *wire.Record, now time.Time) time.Duration {
	cadence := time.Duration(in.CadenceMillis) * time.Millisecond
	if cadence <= 0 {
		return unknownAge
	}
	return min(max(cadence-now.Sub(r.ReceivedAt), time.Second), greatestAge)
}
