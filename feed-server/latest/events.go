// SPDX-License-Identifier: Apache-2.0

package latest

import (
	"encoding/json"
	"time"

	"github.com/substorm/substorm/feed-server/archive"
	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
)

// eventFormat is the version of an Object.
const eventFormat = 1

// Object is an event's description of an instrument's newest object. Its bytes are at its URL,
// which no other object has: caches keep them, so that many pages that get the event at once ask a
// cache.
type Object struct {
	Format     int    `json:"format"`
	Instrument string `json:"instrument"`
	Path       string `json:"path"`
	// URL is the object's path at this server: relative to the event's origin.
	URL    string      `json:"url"`
	Digest wire.Digest `json:"sha256"`
	// ETag is the tag of the URL.
	ETag         string     `json:"etag"`
	Size         int64      `json:"size"`
	MediaType    string     `json:"mediaType"`
	Version      int        `json:"version,omitempty"`
	ObservedFrom *time.Time `json:"observedFrom,omitempty"`
	ObservedTo   *time.Time `json:"observedTo,omitempty"`
	// Doubted is as in wire.Record.
	Doubted    *wire.TimeSpan  `json:"doubted,omitempty"`
	ReceivedAt time.Time       `json:"receivedAt"`
	TimeSource wire.TimeSource `json:"timeSource"`
}

func newObject(in wire.InstrumentEntry, r *wire.Record) Object {
	from, to, doubted := r.Told()
	return Object{
		Format: eventFormat, Instrument: in.Instrument, Path: r.Published(), URL: URL(in, r), Digest: r.Digest, ETag: `"` + r.Digest.String() + `"`,
		Size: r.Size, MediaType: archive.MediaType(in, r), Version: r.Version,
		ObservedFrom: from, ObservedTo: to, Doubted: doubted, ReceivedAt: r.ReceivedAt, TimeSource: r.TimeSource,
	}
}

// URL is the path of an object's URL or, if that is not known yet, of the latest, with a query that
// no other object has.
func URL(in wire.InstrumentEntry, r *wire.Record) string {
	if !archive.Addressed(in, r) {
		return Root + in.Instrument + "?" + r.Digest.String()[:16]
	}
	return archive.URL(in.Instrument, r)
}

// eventsURL is the path of an instrument's events.
func eventsURL(instrument string) string { return Root + instrument + eventsEnd }

// serveEvents sends the newest object, and then each newer one. A client that names the object it
// has by Last-Event-ID does not get that one again.
func (l *Latest) serveEvents(v *endpoint.Request) *problem.Problem {
	name := v.PathValue("instrument")
	what := "the events of " + name
	in, p := v.Instrument(name, what)
	if p != nil {
		return p
	}
	if v.Embargoed(in) { // what is new is hidden
		return endpoint.NotFound(what)
	}
	f := follower{l: l, v: v, instrument: name, mediaType: v.URL.Query().Get("type"), told: v.Request.Header.Get("Last-Event-ID")}
	records, cancel := l.cfg.Catalog.Subscribe(name)
	defer cancel()
	return endpoint.Follow(v, records, f.event)
}

// follower is a client that follows an instrument.
type follower struct {
	l                     *Latest
	v                     *endpoint.Request
	instrument, mediaType string
	// told is the digest of the object that was sent last.
	told string
}

// event is the event for a newest object of any type.
func (f *follower) event(r wire.Record) (*endpoint.Event, error) {
	in, err := f.v.Still(f.instrument)
	if err != nil {
		return nil, err
	}
	if f.mediaType != "" {
		var found bool
		if r, found = f.l.cfg.Catalog.Latest(f.instrument, f.mediaType); !found {
			return nil, nil
		}
	}
	id := r.Digest.String()
	if id == f.told || !f.v.Sees(in, r.ObservedEnd()) {
		return nil, nil
	}
	f.told = id
	data, err := json.Marshal(newObject(in, &r))
	return &endpoint.Event{Kind: "object", ID: id, Data: data}, err
}
