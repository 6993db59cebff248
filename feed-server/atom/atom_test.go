// SPDX-License-Identifier: Apache-2.0

package atom_test

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/feed-server/atom"
	"github.com/substorm/substorm/internal/wire"
)

func newLab(t *testing.T, more ...wire.InstrumentEntry) *archivetest.Lab {
	t.Helper()
	l := archivetest.New(t, more...)
	l.Open(atom.New(atom.Config{Site: archivetest.Site, Catalog: l.Catalog, AccessCheck: l.AccessCheck}).Endpoints())
	return l
}

func observed(at time.Time) func(*wire.Record) {
	return func(r *wire.Record) { r.ObservedFrom, r.ObservedTo, r.TimeSource = &at, &at, wire.TimeSourceName }
}

// element is any element of XML.
type element struct {
	XMLName xml.Name
	Attrs   []xml.Attr `xml:",any,attr"`
	All     []element  `xml:",any"`
	Text    string     `xml:",chardata"`
}

func (e *element) children(name string) (all []element) {
	for _, c := range e.All {
		if c.XMLName.Space == "http://www.w3.org/2005/Atom" && c.XMLName.Local == name {
			all = append(all, c)
		}
	}
	return all
}

func (e *element) text(name string) string {
	if all := e.children(name); len(all) == 1 {
		return all[0].Text
	}
	return ""
}

func (e *element) attr(name string) string {
	for _, a := range e.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// valid checks what RFC 4287 demands of a feed (section 4.1.1) and of its entries
// (4.1.2), and returns the feed.
func valid(t testing.TB, body string) element {
	t.Helper()
	var feed element
	if err := xml.Unmarshal([]byte(body), &feed); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if feed.XMLName != (xml.Name{Space: "http://www.w3.org/2005/Atom", Local: "feed"}) {
		t.Fatalf("its root is %v", feed.XMLName)
	}
	ids := map[string]bool{}
	for i, e := range append([]element{feed}, feed.children("entry")...) {
		for _, name := range []string{"id", "title", "updated"} {
			if n := len(e.children(name)); n != 1 || e.text(name) == "" {
				t.Errorf("element %d has %d %s, there is to be one", i, n, name)
			}
		}
		for _, name := range []string{"updated", "published"} {
			for _, c := range e.children(name) {
				if _, err := time.Parse(time.RFC3339, c.Text); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		if u, err := url.Parse(e.text("id")); err != nil || !u.IsAbs() || ids[e.text("id")] {
			t.Errorf("id %q is none, or another's", e.text("id"))
		}
		ids[e.text("id")] = true
		if authors := e.children("author"); len(authors) != 1 || authors[0].text("name") == "" {
			t.Errorf("element %d has no author", i)
		}
		alternates := map[string]bool{}
		for _, l := range e.children("link") {
			if u, err := url.Parse(l.attr("href")); err != nil || !u.IsAbs() {
				t.Errorf("link %q", l.attr("href"))
			}
			if l.attr("rel") == "alternate" {
				if alternates[l.attr("type")] {
					t.Error("there are two alternates of one type")
				}
				alternates[l.attr("type")] = true
			}
		}
		if len(alternates) == 0 {
			t.Errorf("element %d has no alternate", i)
		}
		for _, c := range e.children("content") {
			if c.attr("type") != "html" || len(c.All) > 0 {
				t.Errorf("content %+v", c)
			}
		}
	}
	return feed
}

func titles(feed element) (all []string) {
	for _, e := range feed.children("entry") {
		all = append(all, e.text("title"))
	}
	return all
}

func link(e element, rel string) string {
	for _, l := range e.children("link") {
		if l.attr("rel") == rel {
			return l.attr("href")
		}
	}
	return ""
}

func TestInstrument(t *testing.T) {
	t.Parallel()
	embargo := &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic, EmbargoMillis: time.Hour.Milliseconds(), Readers: []string{archivetest.Reader}}
	l := newLab(t, wire.InstrumentEntry{Instrument: "closed", Access: archivetest.Restricted}, wire.InstrumentEntry{Instrument: "later", UID: "later", Access: embargo})
	now := time.Now().UTC()
	if feed := valid(t, l.Get("/atom/allsky-1.xml").Body); len(titles(feed)) != 0 {
		t.Error("there is something of nothing")
	}
	for i := range 60 {
		l.Put(archivetest.Camera, fmt.Sprintf("a & <b>/%02d.jpg", i), fmt.Sprint(i), observed(now.Add(-time.Duration(i)*time.Minute)))
	}
	l.Put("later", "new.jpg", "new")
	l.Put("later", "old.jpg", "old", observed(now.Add(-2*time.Hour)))
	l.Wait(l.Put("later", "segment", "segment", func(r *wire.Record) { r.Segment = &wire.SegmentRange{Channel: "raw"} }))
	a := l.Get("/atom/allsky-1.xml")
	feed := valid(t, a.Body)
	all := titles(feed)
	if len(all) != 50 || all[0] != "00.jpg" || all[49] != "49.jpg" {
		t.Errorf("%d: %q", len(all), all)
	}
	first := feed.children("entry")[0]
	if at := strings.TrimPrefix(link(first, "enclosure"), l.URL); at != "/archive/allsky-1/a%20&%20%3Cb%3E/00.jpg" || l.Get(at).Body != "0" {
		t.Errorf("the first is at %s", at)
	}
	if link(feed, "self") != l.URL+"/atom/allsky-1.xml" || link(feed, "license") != "https://spdx.org/licenses/CC-BY-4.0.html" || !strings.Contains(feed.text("rights"), "Thule <2026>") ||
		!strings.Contains(first.text("content"), "<img src=") || a.Header.Get("Content-Type") != "application/atom+xml" || a.Header.Get("Cache-Control") != "public, max-age=10, stale-while-revalidate=10" {
		t.Errorf("%v %s", a.Header, a.Body[:1000])
	}
	tag := a.Header.Get("Etag")
	if again := l.Get("/atom/allsky-1.xml", "If-None-Match", tag); again.Status != http.StatusNotModified {
		t.Errorf("asked again: %d", again.Status)
	}
	l.Wait(l.Put(archivetest.Camera, "next.jpg", "next", observed(now.Add(time.Second))))
	if again := l.Get("/atom/allsky-1.xml", "If-None-Match", tag); again.Status != http.StatusOK || titles(valid(t, again.Body))[0] != "next.jpg" {
		t.Errorf("after another: %d", again.Status)
	}
	for path, want := range map[string]int{"/atom/closed.xml": 401, "/atom/nobody.xml": 404, "/atom/allsky-1": 404, "/atom/feeds/none.xml": 404} {
		if a := l.Get(path); a.Status != want {
			t.Errorf("%s: %d, want %d", path, a.Status, want)
		}
	}
	if diff := cmp.Diff([]string{"old.jpg"}, titles(valid(t, l.Get("/atom/later.xml").Body))); diff != "" {
		t.Errorf("under embargo (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"new.jpg", "old.jpg"}, titles(valid(t, l.Get("/atom/later.xml", "Authorization", "Bearer "+archivetest.Token).Body))); diff != "" {
		t.Errorf("for its reader (-want +got):\n%s", diff)
	}
}

func TestFeed(t *testing.T) {
	t.Parallel()
	l := newLab(t, wire.InstrumentEntry{Instrument: "closed", UID: "closed", Access: archivetest.Restricted},
		wire.InstrumentEntry{Instrument: "mag", UID: "mag", Access: archivetest.Public})
	s := *l.Snapshot()
	s.Feeds = map[string]wire.FeedEntry{
		"aurora": {Feed: "aurora", UID: "aurora", Instruments: []string{archivetest.Camera, "closed", "mag", wire.LeafInstruments("leaf")}},
		"narrow": {Feed: "narrow", UID: "narrow", Instruments: []string{archivetest.Camera}, Live: wire.AccessRestricted},
		"secret": {Feed: "secret", UID: "secret", Instruments: []string{"closed"}}, "empty": {Feed: "empty", UID: "empty"},
	}
	l.Set(&s)
	now := time.Now().UTC()
	for i := range 40 {
		l.Put(archivetest.Camera, fmt.Sprint("c", i), fmt.Sprint("c", i), observed(now.Add(-time.Duration(2*i)*time.Minute)))
		l.Put("mag", fmt.Sprint("s", i), fmt.Sprint("s", i), observed(now.Add(-time.Duration(2*i+1)*time.Minute)), func(r *wire.Record) {
			r.Segment, r.MediaType = &wire.SegmentRange{Channel: "raw"}, wire.MediaTypeSegment
		})
	}
	l.Wait(l.Put("closed", "secret", "secret"))
	var want []string
	for i := range 25 {
		want = append(want, fmt.Sprint("c", i), fmt.Sprint("s", i))
	}
	if diff := cmp.Diff(want, titles(valid(t, l.Get("/atom/feeds/aurora.xml").Body))); diff != "" {
		t.Errorf("for an anonymous reader (-want +got):\n%s", diff)
	}
	token := []string{"Authorization", "Bearer " + archivetest.Token}
	if all := titles(valid(t, l.Get("/atom/feeds/aurora.xml", token...).Body)); len(all) != 50 || all[0] != "secret" {
		t.Errorf("for a reader: %q", all)
	}
	valid(t, l.Get("/atom/feeds/empty.xml").Body)
	for path, status := range map[string][2]int{"secret": {401, 200}, "narrow": {401, 403}, "empty": {200, 200}} {
		if a, b := l.Get("/atom/feeds/"+path+".xml").Status, l.Get("/atom/feeds/"+path+".xml", token...).Status; a != status[0] || b != status[1] {
			t.Errorf("%s: %d for an anonymous reader, %d for a reader, want %v", path, a, b, status)
		}
	}
}
