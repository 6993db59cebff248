// SPDX-License-Identifier: Apache-2.0

// Package wis2 announces each object to machines, in WIS2 Notification Messages of the WMO
// (http://wis.wmo.int/spec/wnm/1): over Server-Sent Events to clients that follow a Feed, and on
// the Site's stream.
package wis2

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/substorm/substorm/feed-server/archive"
	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/wire"
)

// conformance is the class that messages conform to.
const conformance = "http://wis.wmo.int/spec/wnm/1/conf/core"

// Relations of the first link: the object is new, replaces another under its name, or
// was retracted.
const (
	relCanonical = "canonical"
	relUpdate    = "update"
	relDeletion  = "deletion"
)

// Message is a WIS2 notification: a feature of GeoJSON (RFC 7946).
type Message struct {
	ID         string     `json:"id"`
	ConformsTo []string   `json:"conformsTo"`
	Type       string     `json:"type"`
	Geometry   *Point     `json:"geometry"`
	Properties Properties `json:"properties"`
	Links      []Link     `json:"links"`
}

// Point has longitude, latitude and, where it is known, altitude in meters.
type Point struct {
	Type        string    `json:"type"`
	Coordinates []float64 `json:"coordinates"`
}

// Properties of a Message. It has either DateTime, null if the time is unknown, or both ends.
type Properties struct {
	PubTime    string          `json:"pubtime"`
	DataID     string          `json:"data_id"`
	MetadataID string          `json:"metadata_id"`
	Producer   string          `json:"producer"`
	DateTime   json.RawMessage `json:"datetime,omitempty"`
	Start      string          `json:"start_datetime,omitempty"`
	End        string          `json:"end_datetime,omitempty"`
	// Cache: any cache may keep a copy for others.
	Cache     bool      `json:"cache"`
	Integrity Integrity `json:"integrity"`
}

// Integrity is the digest of the object, in base64.
type Integrity struct {
	Method string `json:"method"`
	Value  string `json:"value"`
}

// Link is where the object is.
type Link struct {
	Href   string `json:"href"`
	Rel    string `json:"rel"`
	Type   string `json:"type,omitempty"`
	Length int64  `json:"length,omitempty"`
	// Security lists the credentials to show (OpenAPI's security schemes).
	Security map[string]Scheme `json:"security,omitempty"`
}

// Scheme is a way to authenticate.
type Scheme struct {
	Type   string `json:"type"`
	Scheme string `json:"scheme"`
}

// New is the message of a notice that was published at a time, under the Site's public address. It
// is nil if there is nothing to announce: duplicates, older versions, which newer ones announce,
// also when they are retracted, and objects without an address yet.
func New(base string, in wire.InstrumentEntry, n wire.Notice, published time.Time) *Message {
	if !archive.Addressed(in, &n.Record) {
		return nil
	}
	rel := relCanonical
	switch n.State {
	case wire.StateCurrent:
		if n.Version > 1 || n.Supersedes != "" {
			rel = relUpdate
		}
	case wire.StateRetracted, wire.StatePurged:
		if n.Outdated {
			return nil
		}
		rel = relDeletion
	default:
		return nil
	}
	link := Link{Href: base + archive.URL(n.Instrument, &n.Record), Rel: rel, Type: archive.MediaType(in, &n.Record), Length: n.Size}
	if !endpoint.Public(in) {
		link.Security = map[string]Scheme{"default": {"http", "basic"}}
	}
	m := &Message{
		ID:         uuid.NewSHA1(uuid.NameSpaceURL, []byte("https://substorm.dev/"+n.Site+"/notice "+n.MessageID())).String(),
		ConformsTo: []string{conformance}, Type: "Feature", Geometry: pointOf(in.About), Links: []Link{link},
		Properties: Properties{
			PubTime: timeText(published), DataID: n.Site + "/" + n.Instrument + "/" + n.Published(), MetadataID: "urn:wmo:md:" + n.Site + ":" + n.Instrument, Producer: n.Site,
			Cache: endpoint.Public(in), Integrity: Integrity{"sha256", base64.StdEncoding.EncodeToString(n.Digest[:])},
		},
	}
	m.Properties.observed(&n.Record)
	if in.Rights.LicenseURL() != "" {
		m.Links = append(m.Links, Link{Href: in.Rights.LicenseURL(), Rel: "license", Type: "text/html"})
	}
	return m
}

func (p *Properties) observed(r *wire.Record) {
	switch from, to, told := r.ObservedSpan(); {
	case !told:
		p.DateTime = json.RawMessage("null")
	case from.Equal(to):
		p.DateTime = json.RawMessage(strconv.Quote(timeText(from)))
	default:
		p.Start, p.End = timeText(from), timeText(to)
	}
}

// pointOf is the location of an instrument; nil if it is not declared.
func pointOf(about *wire.AboutEntry) *Point {
	if about == nil {
		return nil
	}
	latitude, err1 := strconv.ParseFloat(about.Latitude, 64)
	longitude, err2 := strconv.ParseFloat(about.Longitude, 64)
	if err1 != nil || err2 != nil {
		return nil
	}
	p := &Point{"Point", []float64{longitude, latitude}}
	if about.AltitudeMeters != nil {
		p.Coordinates = append(p.Coordinates, float64(*about.AltitudeMeters))
	}
	return p
}

func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// Encode is the message of a notice as JSON, and its ID: see New. It is nil if there is nothing to
// announce.
func Encode(base string, in wire.InstrumentEntry, n wire.Notice, published time.Time) (id string, data []byte) {
	m := New(base, in, n, published)
	if m == nil {
		return "", nil
	}
	return m.ID, m.encode()
}

// encode writes a message, which can always be written.
func (m *Message) encode() []byte {
	b, _ := json.Marshal(m)
	return b
}
