// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bufio"
	"errors"
	"html"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// sitemapRoot is what the paths of the instruments' sitemaps begin with.
	sitemapRoot = "/sitemaps/"
	// sitemapURLs is how many a sitemap may name (sitemaps.org, protocol 0.9).
	sitemapURLs = 50_000

	mediaXML      = "application/xml"
	mediaText     = "text/plain; charset=utf-8"
	sitemapSpace  = `xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"`
	xmlBegin      = `<?xml version="1.0" encoding="UTF-8"?>` + "\n"
	sitemapPolicy = "public, max-age=3600"
)

// serveRobots answers /robots.txt (RFC 9309). All of the archive may be fetched; a client that
// exceeds its limits gets 429.
func (a *Archive) serveRobots(v *endpoint.Request) *problem.Problem {
	sitemap := v.Base() + "/sitemap.xml"
	return v.Serve("robots.txt", endpoint.Document{
		MediaType: mediaText, Cache: sitemapPolicy, Source: []string{sitemap},
		Write: func(w *bufio.Writer) error {
			fprint(w, "User-agent: *\nAllow: ", Root, "\nDisallow: /feeds/\nDisallow: /console/events\nSitemap: ", sitemap, "\n")
			return nil
		},
	})
}

// serveSitemaps answers /sitemap.xml: for each of the Site's own instruments with a public archive one
// sitemap, of its directories. Search engines find the sitemaps of other Sites there.
func (a *Archive) serveSitemaps(v *endpoint.Request) *problem.Problem {
	base := v.Base()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(v.Snapshot.Instruments)) {
		if !wire.IsGuest(name) && endpoint.Public(v.Snapshot.Instruments[name]) {
			names = append(names, name)
		}
	}
	return v.Serve("sitemap.xml", endpoint.Document{
		MediaType: mediaXML, Cache: sitemapPolicy, Source: append([]string{base}, names...),
		Write: func(w *bufio.Writer) error {
			fprint(w, xmlBegin, "<sitemapindex ", sitemapSpace, ">\n")
			for _, name := range names {
				fprint(w, "<sitemap><loc>", html.EscapeString(base+sitemapRoot+escape(name)+".xml"), "</loc></sitemap>\n")
			}
			fprint(w, "</sitemapindex>\n")
			return nil
		},
	})
}

// serveSitemap answers with the directories of one instrument.
func (a *Archive) serveSitemap(v *endpoint.Request) *problem.Problem {
	name, ok := strings.CutSuffix(v.PathValue("instrument"), ".xml")
	t := target{instrument: name, directory: true}
	in, known := v.Snapshot.Instruments[name]
	if !ok || !known || wire.IsGuest(name) || !endpoint.Public(in) {
		return notFound(t)
	}
	all, err := a.directories(v, t)
	if err != nil {
		return v.Unreadable(t.String()+"/", err)
	}
	base := v.Base()
	source := []string{base, t.url()}
	for _, d := range all {
		source = append(source, d.Path, strconv.FormatInt(d.Changed.UnixNano(), 36))
	}
	return v.Serve(t.String(), endpoint.Document{
		MediaType: mediaXML, Cache: endpoint.Policy(in, time.Hour), Source: source,
		Write: func(w *bufio.Writer) error {
			fprint(w, xmlBegin, "<urlset ", sitemapSpace, ">\n")
			for _, d := range all {
				t.path = d.Path
				fprint(w, "<url><loc>", html.EscapeString(base+t.url()), "</loc>")
				if !d.Changed.IsZero() {
					fprint(w, "<lastmod>", wire.FormatTime(d.Changed), "</lastmod>")
				}
				fprint(w, "</url>\n")
			}
			fprint(w, "</urlset>\n")
			return nil
		},
	})
}

// directories are an instrument's, its own first, as many as a sitemap may name.
func (a *Archive) directories(v *endpoint.Request, t target) ([]Directory, error) {
	all := []Directory{{}}
	for d, err := range a.cfg.Catalog.Directories(v.Context(), t.instrument) {
		if errors.Is(err, ErrNotFound) {
			break
		}
		if err != nil {
			return nil, err
		}
		if d.Path != "" {
			all = append(all, d)
		}
		if len(all) == sitemapURLs {
			break
		}
	}
	return all, nil
}
