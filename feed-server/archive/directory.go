// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bufio"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// listingAge is how long a directory may be kept unasked, at most.
	listingAge = time.Minute

	mediaHTML = "text/html; charset=utf-8"
	mediaJSON = "application/json"
)

// page is a directory as the client may see it.
type page struct {
	site       string
	target     target
	instrument *wire.InstrumentEntry // nil of Root
	folders    []Folder
	objects    iter.Seq2[Object, error]
}

// serveDirectory answers with what a directory holds.
func (a *Archive) serveDirectory(v *endpoint.Request, in wire.InstrumentEntry, t target) *problem.Problem {
	embargoed := v.Embargoed(in)
	listing, some, err := a.list(v, in, t, embargoed)
	if err != nil {
		return v.Unreadable(t.String()+"/", err)
	}
	if !some && t.path != "" { // an instrument may have sent nothing yet
		return notFound(t)
	}
	d := endpoint.Document{
		Cache:  endpoint.Policy(in, listingAge),
		Source: []string{t.url(), v.ArchiveTag(in, listing.Tag), in.UID, strconv.FormatInt(in.Generation, 10)},
	}
	if embargoed { // what was hidden appears without a change of the archive's
		shown, err := listing.count()
		if err != nil {
			return v.Unreadable(t.String()+"/", err)
		}
		d.Vary = "Authorization"
		d.Source = append(d.Source, strconv.Itoa(len(listing.Folders)), strconv.Itoa(shown))
	}
	setRights(v.W.Header(), in.Rights)
	return a.servePage(v, page{site: a.cfg.Site, target: t, instrument: &in, folders: listing.Folders, objects: listing.Objects}, d)
}

// list returns what the client may see of a directory, and whether that is anything.
func (a *Archive) list(v *endpoint.Request, in wire.InstrumentEntry, t target, embargoed bool) (Listing, bool, error) {
	listing, err := a.cfg.Catalog.Children(v.Context(), t.instrument, t.path)
	if errors.Is(err, ErrNotFound) {
		return Listing{}, false, nil
	}
	if err == nil && embargoed {
		listing, err = a.visible(v, in, t, listing)
	}
	if err != nil {
		return Listing{}, false, err
	}
	some, err := listing.any()
	return listing, some, err
}

// serveInstruments answers with the instruments whose archive the client may read.
func (a *Archive) serveInstruments(v *endpoint.Request) *problem.Problem {
	if p := v.Ready(); p != nil {
		return p
	}
	p := page{site: a.cfg.Site, target: target{directory: true}}
	d := endpoint.Document{Cache: "private, max-age=60", Vary: "Authorization", Source: []string{Root}}
	if v.Reader.Anonymous() {
		d.Cache = "public, max-age=60"
	}
	for _, name := range slices.Sorted(maps.Keys(v.Snapshot.Instruments)) {
		in := v.Snapshot.Instruments[name]
		if access.Decide(access.Archive, v.Reader, name, in.Access, time.Time{}, v.Now) != access.Granted {
			continue
		}
		p.folders = append(p.folders, Folder{Name: name, Objects: -1})
		d.Source = append(d.Source, name)
	}
	if len(p.folders) == 0 && len(v.Snapshot.Instruments) > 0 && v.Reader.Anonymous() {
		return problem.New(http.StatusUnauthorized,
			"no Instrument's archive is for everybody: show a reader's token, as Authorization: Bearer … or as the password")
	}
	return a.servePage(v, p, d)
}

func (a *Archive) servePage(v *endpoint.Request, p page, d endpoint.Document) *problem.Problem {
	if p.objects == nil {
		p.objects = func(func(Object, error) bool) {}
	}
	d.Vary = endpoint.Joined("Accept", d.Vary)
	d.MediaType, d.Write = mediaHTML, p.writeHTML
	if format, _ := queried(v.URL.RawQuery, "format"); format == "json" || format == "" && endpoint.PrefersJSON(v.Request) {
		d.MediaType, d.Write = mediaJSON, p.writeJSON
	} else {
		v.W.Header().Add("Link", `<?format=json>; rel="alternate"; type="application/json"`)
	}
	return v.Serve(p.target.String(), d)
}

// visible leaves out what is under embargo. A folder is, where all beneath it is.
func (a *Archive) visible(v *endpoint.Request, in wire.InstrumentEntry, t target, l Listing) (Listing, error) {
	all := l.Objects
	seen := Listing{Tag: l.Tag}
	for _, f := range l.Folders {
		path := f.Name
		if t.path != "" {
			path = t.path + "/" + f.Name
		}
		oldest, err := a.cfg.Catalog.Oldest(v.Context(), t.instrument, path)
		if err != nil {
			return seen, err
		}
		if v.Sees(in, oldest) {
			seen.Folders = append(seen.Folders, Folder{Name: f.Name, Objects: -1}) // the number of hidden objects is not revealed
		}
	}
	seen.Objects = func(yield func(Object, error) bool) {
		if all == nil {
			return
		}
		for o, err := range all {
			if (err != nil || v.Sees(in, o.Record.ObservedEnd())) && !yield(o, err) {
				return
			}
		}
	}
	return seen, nil
}

// any reports whether there is anything in a directory.
func (l *Listing) any() (bool, error) {
	if len(l.Folders) > 0 || l.Objects == nil {
		return len(l.Folders) > 0, nil
	}
	for _, err := range l.Objects {
		return err == nil, err
	}
	return false, nil
}

// count is how many objects are in the directory itself.
func (l *Listing) count() (n int, err error) {
	if l.Objects == nil {
		return 0, nil
	}
	for _, err := range l.Objects {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// title is what the page is about.
func (p *page) title() string {
	if p.target.instrument == "" {
		return fmt.Sprintf("Archive of %s", p.site)
	}
	return p.target.String() + "/"
}

// fprint writes to a buffer, whose error is kept for its Flush.
func fprint(w *bufio.Writer, all ...string) {
	for _, s := range all {
		_, _ = w.WriteString(s)
	}
}
