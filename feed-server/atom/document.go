// SPDX-License-Identifier: Apache-2.0

package atom

import (
	"bufio"
	"cmp"
	"encoding/xml"
	"fmt"
	"html"
	"path"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/substorm/substorm/feed-server/archive"
	"github.com/substorm/substorm/internal/wire"
)

// document is one Atom document.
type document struct {
	// base is the Site's address for the client; self and alternate are paths.
	base, site, self, title, alternate string
	// seed is what its identity is made of.
	seed    string
	rights  []*wire.RightsEntry
	objects []object
}

// The elements of RFC 4287 that are written.
type (
	feedElement struct {
		XMLName   xml.Name       `xml:"http://www.w3.org/2005/Atom feed"`
		ID        string         `xml:"id"`
		Title     string         `xml:"title"`
		Updated   string         `xml:"updated"`
		Author    *personElement `xml:"author"`
		Generator string         `xml:"generator"`
		Rights    string         `xml:"rights,omitempty"`
		Links     []linkElement  `xml:"link"`
		Entries   []entryElement `xml:"entry"`
	}
	personElement struct {
		Name string `xml:"name"`
	}
	linkElement struct {
		Rel    string `xml:"rel,attr"`
		Href   string `xml:"href,attr"`
		Type   string `xml:"type,attr,omitempty"`
		Length int64  `xml:"length,attr,omitempty"`
	}
	entryElement struct {
		ID        string         `xml:"id"`
		Title     string         `xml:"title"`
		Updated   string         `xml:"updated"`
		Published string         `xml:"published"`
		Author    *personElement `xml:"author"`
		Links     []linkElement  `xml:"link"`
		Category  *termElement   `xml:"category"`
		Summary   string         `xml:"summary"`
		Content   *textElement   `xml:"content"`
		Rights    string         `xml:"rights,omitempty"`
	}
	termElement struct {
		Term string `xml:"term,attr"`
	}
	textElement struct {
		Type string `xml:"type,attr"`
		Text string `xml:",chardata"`
	}
)

// identity is a permanent IRI that is made of a text: the same at each replica, under
// each name of the server.
func identity(site, text string) string {
	return "urn:uuid:" + uuid.NewSHA1(uuid.NameSpaceURL, []byte("https://substorm.dev/"+site+"/"+text)).String()
}

// updated is when the last of the objects was received.
func (d *document) updated() (last time.Time) {
	for _, o := range d.objects {
		if o.ReceivedAt.After(last) {
			last = o.ReceivedAt
		}
	}
	return last
}

// rightsText is what is said of the rights of all, where all say the same.
func (d *document) rightsText() string {
	text := ""
	for i, r := range d.rights {
		is := rightsOf(r)
		if i > 0 && is != text {
			return ""
		}
		text = is
	}
	return text
}

func rightsOf(r *wire.RightsEntry) string {
	if r == nil {
		return ""
	}
	var parts []string
	for _, part := range []string{r.Credit, r.Citation, r.License} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ". ")
}

func (d *document) write(w *bufio.Writer) error {
	updated := d.updated()
	if updated.IsZero() {
		updated = time.Unix(0, 0)
	}
	f := feedElement{
		ID: identity(d.site, d.seed), Title: d.title, Updated: atomTime(updated), Author: &personElement{d.site}, Generator: "Substorm", Rights: d.rightsText(),
		Links: []linkElement{{Rel: "self", Href: d.base + d.self, Type: mediaAtom}, {Rel: "alternate", Href: d.base + d.alternate, Type: "text/html"}},
	}
	if len(d.rights) == 1 {
		f.Links = append(f.Links, licenses(d.rights[0])...)
	}
	for _, o := range d.objects {
		f.Entries = append(f.Entries, d.entry(o))
	}
	if _, err := w.WriteString(xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", " ")
	return e.Encode(f)
}

// entry is the entry of one object.
func (d *document) entry(o object) entryElement {
	url, mediaType := d.base+archive.URL(o.in.Instrument, o.Record), archive.MediaType(o.in, o.Record)
	e := entryElement{
		ID: identity(d.site, "object "+o.ID), Title: path.Base(o.Published()), Updated: atomTime(o.ReceivedAt), Published: atomTime(o.ReceivedAt),
		Author:   &personElement{cmp.Or(o.in.Station, d.site)},
		Links:    []linkElement{{Rel: "alternate", Href: url, Type: mediaType}, {Rel: "enclosure", Href: url, Type: mediaType, Length: o.Size}},
		Category: &termElement{o.in.Instrument}, Summary: summary(o), Rights: rightsOf(o.in.Rights),
	}
	e.Links = append(e.Links, licenses(o.in.Rights)...)
	if strings.HasPrefix(mediaType, "image/") {
		e.Content = &textElement{"html", fmt.Sprintf("<p>%s</p><img src=%q alt=%q>", html.EscapeString(e.Summary), html.EscapeString(url), html.EscapeString(e.Title))}
	}
	return e
}

func summary(o object) string {
	text := o.in.Instrument
	switch from, to, told := o.ObservedSpan(); {
	case told && !from.Equal(to):
		text += ", observed from " + atomTime(from) + " to " + atomTime(to)
	case told:
		text += ", observed at " + atomTime(from)
	}
	return fmt.Sprintf("%s, received at %s: %d bytes, SHA-256 %s", text, atomTime(o.ReceivedAt), o.Size, o.Digest)
}

// licenses are links to the terms (RFC 4946), and to what to cite (RFC 8574).
func licenses(r *wire.RightsEntry) []linkElement {
	var all []linkElement
	if u := r.LicenseURL(); u != "" {
		all = append(all, linkElement{Rel: "license", Href: u})
	}
	if u := r.CiteURL(); u != "" {
		all = append(all, linkElement{Rel: "cite-as", Href: u})
	}
	return all
}

func atomTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
