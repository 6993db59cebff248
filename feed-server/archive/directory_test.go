// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/substorm/substorm/internal/wire"
)

// links are the href of a page's anchors.
func links(t *testing.T, page string) []string {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for n := range root.Descendants() {
		if n.Type != html.ElementNode || n.Data != "a" {
			continue
		}
		for _, a := range n.Attr {
			if a.Key == "href" {
				all = append(all, a.Val)
			}
		}
	}
	return all
}

// listing is a directory in JSON.
type listing struct {
	Format                      int
	Site, Instrument, Directory string
	Rights                      *wire.RightsEntry
	Directories                 []struct {
		Name    string
		Objects int
	}
	Objects []map[string]any
}

func (l *lab) list(path string, headers ...string) listing {
	l.t.Helper()
	a := l.get(path, append([]string{"Accept", "application/json"}, headers...)...)
	a.want(l.t, path, 200)
	var all listing
	if err := json.Unmarshal([]byte(a.body), &all); err != nil || a.header.Get("Content-Type") != "application/json" {
		l.t.Fatalf("%s: %v %v\n%s", path, err, a.header, a.body)
	}
	return all
}

func (l listing) names() []string {
	var all []string
	for _, d := range l.Directories {
		all = append(all, d.Name+"/")
	}
	for _, o := range l.Objects {
		all = append(all, o["name"].(string))
	}
	return all
}

func TestDirectories(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	first := l.put(camera, "2015/03/17/12:00 <a>.jpg", "one", func(r *wire.Record) {
		r.Key = wire.NamedKey(site, camera, "one", 1)
		from := storm.Add(-time.Minute)
		r.ObservedFrom, r.ObservedTo = &from, &storm
	})
	l.put(camera, "2015/03/17/b.jpg", "two")
	l.put(camera, "2015/03/18/c.jpg", "three")
	l.put(camera, "readme.txt", "four")

	page := l.get("/archive/allsky-1/2015/03/17/")
	page.want(t, "a page", 200)
	if diff := cmp.Diff([]string{"../", "12%3A00%20%3Ca%3E.jpg", "b.jpg", "https://spdx.org/licenses/CC-BY-4.0.html", "https://doi.org/10.5555/thule"}, links(t, page.body)); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
	for _, text := range []string{"12:00 &lt;a&gt;.jpg</a>", "2015-03-17 12:00:00", "Thule &lt;2026&gt;", "<title>allsky-1/2015/03/17/</title>"} {
		if !strings.Contains(page.body, text) {
			t.Errorf("the page lacks %q:\n%s", text, page.body)
		}
	}
	for _, text := range []string{"192.0.2.7", "gateway"} { // the sender's address and the gateway are not revealed
		if strings.Contains(page.body+l.get("/archive/allsky-1/2015/03/17/?format=json").body, text) {
			t.Errorf("%q is told", text)
		}
	}
	if got := links(t, l.get("/archive/allsky-1/").body)[:3]; !slices.Equal(got, []string{"../", "2015/", "readme.txt"}) {
		t.Errorf("links of the instrument: %v", got)
	}
	if got := links(t, l.get("/archive/").body); !slices.Equal(got, []string{"allsky-1/"}) {
		t.Errorf("links of the archive: %v", got)
	}

	all := l.list("/archive/allsky-1/2015/03/17/")
	if diff := cmp.Diff([]string{"12:00 <a>.jpg", "b.jpg"}, all.names()); diff != "" || all.Site != site || all.Instrument != camera || all.Directory != "2015/03/17/" || all.Format != 1 || all.Rights == nil {
		t.Errorf("%+v (-want +got):\n%s", all, diff)
	}
	if diff := cmp.Diff(map[string]any{"name": "12:00 <a>.jpg", "size": 3., "sha256": first.Digest.String(), "receivedAt": wire.FormatTime(storm), "timeSource": "Received",
		"observedFrom": wire.FormatTime(*first.ObservedFrom), "observedTo": wire.FormatTime(storm)}, all.Objects[0]); diff != "" {
		t.Errorf("an object (-want +got):\n%s", diff)
	}
	if got := l.list("/archive/allsky-1/2015/03/?x=1"); len(got.Directories) != 2 || got.Directories[0].Objects != 2 || got.Directories[0].Name != "17" {
		t.Errorf("%+v", got)
	}
	if got := l.list("/archive/"); !slices.Equal(got.names(), []string{"allsky-1/"}) {
		t.Errorf("%+v", got)
	}
	for accept, want := range map[string]string{"": "text/html", "*/*": "text/html", "text/html,application/json": "text/html", "application/json;q=0.9,text/html;q=0.1": "application/json"} {
		if got := l.get("/archive/allsky-1/", "Accept", accept).header.Get("Content-Type"); !strings.HasPrefix(got, want) {
			t.Errorf("Accept %q: %s", accept, got)
		}
	}
}

// Pages say whether they changed, in each form of their own.
func TestDirectoriesChange(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.put(camera, "2015/a.jpg", "a")
	tags := map[string]bool{}
	forms := [][]string{{}, {"Accept", "application/json"}, {"Accept-Encoding", "gzip"}, {"Accept", "application/json", "Accept-Encoding", "br;q=1.0, gzip;q=0.8"}}
	for _, path := range []string{"/archive/", "/archive/allsky-1/", "/archive/allsky-1/2015/", "/robots.txt", "/sitemap.xml", "/sitemaps/allsky-1.xml"} {
		for _, form := range forms {
			a := l.get(path, form...)
			a.want(t, path, 200)
			tag := a.header.Get("ETag")
			tags[path+tag] = true
			l.get(path+"?t=123", append(form, "If-None-Match", tag)...).want(t, "unchanged "+path, 304)
			l.ask(http.MethodHead, path, form...).want(t, "HEAD "+path, 200)
			if a.header.Get("Last-Modified") != "" { // objects of long ago come late
				t.Errorf("%s: %v", path, a.header)
			}
			l.get(path, append(form, "If-Modified-Since", time.Now().UTC().Format(http.TimeFormat))...).want(t, "not since "+path, 200)
			if a.header.Get("Content-Encoding") == "gzip" {
				z, err := gzip.NewReader(strings.NewReader(a.body))
				if err != nil {
					t.Fatal(err)
				}
				plain, err := io.ReadAll(z)
				if want := l.get(path, form[:len(form)-2]...).body; err != nil || string(plain) != want {
					t.Errorf("%s: compressed %q, %v", path, plain, err)
				}
			} else if slices.Contains(form, "Accept-Encoding") {
				t.Errorf("%s is not compressed", path)
			}
		}
	}
	if len(tags) != 3*4+3*2 {
		t.Errorf("%d different tags: %v", len(tags), tags)
	}
	if l.get("/archive/allsky-1/2015/", "Accept-Encoding", "gzip;q=0").header.Get("Content-Encoding") != "" {
		t.Error("compressed for who takes none")
	}
	was := l.get("/archive/allsky-1/2015/")
	l.put(camera, "2015/b.jpg", "b")
	if is := l.get("/archive/allsky-1/2015/", "If-None-Match", was.header.Get("ETag")); is.status != 200 || !strings.Contains(is.body, "b.jpg") {
		t.Errorf("changed: %d %s", is.status, is.body)
	}
	if n := l.gets.Load(); n != 0 {
		t.Errorf("%d requests to the store for directories", n)
	}
}

// A directory of a day of images each second comes as it is written.
func TestLargeDirectory(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	for i := range 86_400 {
		l.catalog.add(camera, wire.Record{Path: fmt.Sprintf("2015/%05d.jpg", i), Size: 1, State: wire.StateCurrent, ReceivedAt: storm})
	}
	if n := len(links(t, l.get("/archive/allsky-1/2015/").body)); n != 86_400+3 {
		t.Errorf("%d links", n)
	}
	if n := len(l.list("/archive/allsky-1/2015/").Objects); n != 86_400 {
		t.Errorf("%d objects", n)
	}
}

func TestSitemap(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil, wire.InstrumentEntry{Instrument: "secret"},
		wire.InstrumentEntry{Instrument: "later", Access: &wire.AccessEntry{Archive: wire.AccessPublic, EmbargoMillis: 1000}})
	l.put(camera, "2015/03/17/a & b.jpg", "a", func(r *wire.Record) { r.Key = wire.NamedKey(site, camera, "a", 1) })
	l.put(camera, "æ/b.jpg", "b", func(r *wire.Record) { r.Key = wire.NamedKey(site, camera, "b", 1) })
	robots := l.get("/robots.txt").body
	if !strings.Contains(robots, "Sitemap: "+l.url+"/sitemap.xml\n") || strings.Contains(robots, "Disallow: /archive") {
		t.Errorf("robots.txt:\n%s", robots)
	}
	locations := func(path string) []string {
		t.Helper()
		var found []string
		d := xml.NewDecoder(bytes.NewBufferString(l.get(path).body))
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				return found
			}
			if err != nil {
				t.Fatal(err)
			}
			if start, ok := token.(xml.StartElement); ok && start.Name.Local == "loc" {
				var text string
				if err := d.DecodeElement(&text, &start); err != nil {
					t.Fatal(err)
				}
				found = append(found, strings.TrimPrefix(text, l.url))
			}
		}
	}
	if got := locations("/sitemap.xml"); !slices.Equal(got, []string{"/sitemaps/allsky-1.xml"}) {
		t.Errorf("sitemaps: %v", got)
	}
	got := locations("/sitemaps/allsky-1.xml")
	if diff := cmp.Diff([]string{"/archive/allsky-1/", "/archive/allsky-1/2015/", "/archive/allsky-1/2015/03/", "/archive/allsky-1/2015/03/17/", "/archive/allsky-1/%C3%A6/"}, got); diff != "" {
		t.Errorf("directories (-want +got):\n%s", diff)
	}
	for _, at := range got {
		l.get(at).want(t, at, 200)
	}
	for _, name := range []string{"secret.xml", "later.xml", "nobody.xml", "allsky-1"} {
		l.get("/sitemaps/"+name).want(t, name, 404)
	}
}
