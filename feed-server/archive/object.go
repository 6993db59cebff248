// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
)

// objectAge is how long an object may be kept unasked: it may be corrected or
// retracted.
const objectAge = time.Hour

// serveObject answers for one object, or shows the way to a directory.
func (a *Archive) serveObject(v *endpoint.Request, in wire.InstrumentEntry, t target) *problem.Problem {
	if t.path == "" {
		return redirect(v, t)
	}
	record, err := a.lookUp(v, t)
	if errors.Is(err, ErrNotFound) {
		return a.redirectOrNotFound(v, in, t)
	}
	if err != nil {
		return v.Unreadable(t.String(), err)
	}
	if p := a.withheld(v, in, t, &record); p != nil {
		return p
	}
	return a.serveRecord(v, in, t, record)
}

// Serve answers with an object as its own URL does, but that it may be kept for the age most at
// most, and that no time says whether a client has it: another object may take its place that
// was received before it. The parameter what says in the answer what was asked for.
func (a *Archive) Serve(v *endpoint.Request, in wire.InstrumentEntry, what string, record wire.Record, most time.Duration) *problem.Problem {
	t := target{instrument: what}
	if p := a.withheld(v, in, t, &record); p != nil {
		return p
	}
	return a.answer(v, in, t, record, time.Time{}, most)
}

// Addressed reports whether the URL of an object is known: a path with a sequence is determined
// when the manifest is written, and is not part of the object's record.
func Addressed(in wire.InstrumentEntry, record *wire.Record) bool {
	return record.Path != "" || record.Segment != nil || !strings.Contains(in.Naming, "{sequence")
}

// URL is the path of an object's URL, and which version it is.
func URL(instrument string, record *wire.Record) string {
	u := target{instrument: instrument, path: record.Published()}.url()
	if record.Version > 1 {
		u += "?version=" + strconv.Itoa(record.Version)
	}
	return u
}

// MediaType is the type under which an object of an instrument is served.
func MediaType(in wire.InstrumentEntry, record *wire.Record) string {
	return cmp.Or(record.MediaType, in.MediaType, "application/octet-stream")
}

// serveRecord answers at an object's own URL to clients that may have it.
func (a *Archive) serveRecord(v *endpoint.Request, in wire.InstrumentEntry, t target, record wire.Record) *problem.Problem {
	changed := record.ReceivedAt.UTC().Truncate(time.Second)
	v.W.Header().Set("Last-Modified", changed.Format(http.TimeFormat))
	return a.answer(v, in, t, record, changed, objectAge)
}

// answer answers with an object that the client may have. Changed is when the URL got it; zero if
// it is not reliable.
func (a *Archive) answer(v *endpoint.Request, in wire.InstrumentEntry, t target, record wire.Record, changed time.Time, most time.Duration) *problem.Problem {
	tag := `"` + record.Digest.String() + `"`
	h := v.W.Header()
	h.Set("ETag", tag)
	h.Set("Cache-Control", endpoint.Policy(in, most))
	coding := codingOf(v.Request, h, MediaType(in, &record), record.Size)
	switch endpoint.Evaluate(v.Request, tag, changed) {
	case endpoint.Unchanged:
		h.Del("Access-Control-Expose-Headers") // a client that has the object has these headers too
		if coding != "" {
			h.Set("ETag", weak(tag))
		}
		if v.Header.Get("Want-Repr-Digest") != "" {
			setDigest(h, v.Request, record.Digest)
		}
		v.W.WriteHeader(http.StatusNotModified)
		return nil
	case endpoint.Failed:
		return problem.New(http.StatusPreconditionFailed, "%s is another than the one that you mean: it has ETag %s", t, tag)
	}
	a.describe(h, in, &record)
	setDigest(h, v.Request, record.Digest)
	asked, p := partOf(v, t, tag, changed, record.Size)
	if p != nil {
		return p
	}
	switch {
	case v.Method == http.MethodGet:
		return a.send(v, t, record, asked, coding)
	case coding != "": // the length is unknown
		setCoding(h, coding)
		v.W.WriteHeader(http.StatusOK)
	default:
		begin(v, record.Size, asked)
	}
	return nil
}

// partOf is what a request asks for of size bytes. HEAD asks for all (RFC 9110, section
// 14.2).
func partOf(v *endpoint.Request, t target, tag string, changed time.Time, size int64) (part, *problem.Problem) {
	asked, satisfiable := part{length: size}, true
	if v.Method == http.MethodGet && endpoint.RangeHolds(v.Request, tag, changed) {
		asked, satisfiable = parseRange(v.Header.Get("Range"), size)
	}
	if satisfiable {
		return asked, nil
	}
	v.W.Header().Set("Content-Range", "bytes */"+strconv.FormatInt(size, 10))
	return asked, problem.New(http.StatusRequestedRangeNotSatisfiable, "%s has %d bytes, and none of the range that you ask for", t, size)
}

// withheld returns the reason why an object is not given to the client; nil: it is.
func (a *Archive) withheld(v *endpoint.Request, in wire.InstrumentEntry, t target, r *wire.Record) *problem.Problem {
	if p := v.Verdict(in, t.String(), r.ObservedEnd()); p != nil {
		return p
	}
	switch r.State {
	case wire.StateCurrent, wire.StateSuperseded:
		return nil
	case wire.StateRetracted, wire.StatePurged:
		return gone(t, r)
	default:
		return notFound(t)
	}
}

// lookUp returns the object that a target and its ?version= mean. All other queries
// mean the same object: pages add them to get past caches.
func (a *Archive) lookUp(v *endpoint.Request, t target) (wire.Record, error) {
	version, asked := queried(v.URL.RawQuery, "version")
	if !asked {
		return a.cfg.Catalog.Find(v.Context(), t.instrument, t.path)
	}
	number, err := strconv.Atoi(version)
	if err != nil || number < 1 {
		return wire.Record{}, fmt.Errorf("version %.20q of %s: %w", version, t, ErrNotFound)
	}
	all, err := a.cfg.Catalog.Versions(v.Context(), t.instrument, t.path)
	if err != nil {
		return wire.Record{}, err
	}
	at := 0
	for _, record := range all { // objects of another Site that went back have one path and no versions: they count by age
		if at = max(at+1, record.Version); at == number {
			return record, nil
		}
	}
	return wire.Record{}, fmt.Errorf("version %d of %s: %w", number, t, ErrNotFound)
}

// queried returns the value of a query parameter. It is quick if the query lacks it.
func queried(query, name string) (string, bool) {
	if !strings.Contains(query, name+"=") {
		return "", false
	}
	values, _ := url.ParseQuery(query) // parts that cannot be parsed are ignored
	return values.Get(name), values.Has(name)
}

// redirectOrNotFound answers for a path that no object has: it may be a directory's.
func (a *Archive) redirectOrNotFound(v *endpoint.Request, in wire.InstrumentEntry, t target) *problem.Problem {
	if t.path == "" || strings.Contains(v.URL.RawQuery, "version=") {
		return notFound(t)
	}
	_, some, err := a.list(v, in, t, v.Embargoed(in))
	switch {
	case err != nil:
		return v.Unreadable(t.String(), err)
	case !some:
		return notFound(t)
	default:
		return redirect(v, t)
	}
}

// redirect shows the way to a directory: links in a page lead on from its slash.
func redirect(v *endpoint.Request, t target) *problem.Problem {
	t.directory = true
	to := t.url()
	if t.path == "" {
		to = Root + escape(t.instrument) + "/"
	}
	if v.URL.RawQuery != "" {
		to += "?" + v.URL.RawQuery
	}
	v.W.Header().Set("Location", to)
	v.W.WriteHeader(http.StatusMovedPermanently)
	return nil
}

// gone says that an object was retracted or purged, or expired.
func gone(t target, r *wire.Record) *problem.Problem {
	change, at, otherwise, reason := "was retracted", r.RetractedAt, "it is not published any more", r.Reason
	if r.State == wire.StatePurged {
		change, at, otherwise = "was purged", r.PurgedAt, "its bytes are not kept any more"
	}
	if r.Expired() {
		change, reason = "expired", strings.TrimPrefix(strings.TrimPrefix(reason, "expired"), ": ")
	}
	when := ""
	if at != nil {
		when = " at " + wire.FormatTime(*at)
	}
	return problem.New(http.StatusGone, "%s %s%s: %s", t, change, when, cmp.Or(reason, otherwise))
}

// describe sets the headers that a client without the object needs.
func (a *Archive) describe(h http.Header, in wire.InstrumentEntry, r *wire.Record) {
	h.Set("Content-Type", MediaType(in, r))
	h.Set("Accept-Ranges", "bytes")
	setRights(h, a.rights(in, r))
}

// rights are the rights that an instrument gave its data when the object was observed, or, if that
// time is unknown, when it was received.
func (a *Archive) rights(in wire.InstrumentEntry, r *wire.Record) *wire.RightsEntry {
	if a.cfg.Described == nil {
		return in.Rights
	}
	at, _ := r.Observed()
	if d, ok := a.cfg.Described(in.Instrument, at); ok {
		return d.Rights
	}
	return in.Rights
}

// setDigest says the digest of all of the object (RFC 9530), unless the client wants
// none or others alone.
func setDigest(h http.Header, r *http.Request, d wire.Digest) {
	if !wantsSHA256(r.Header.Values("Want-Repr-Digest")) {
		return
	}
	h.Set("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(d[:])+":")
}

// wantsSHA256 reports whether a client takes a SHA-256 (RFC 9530, section 4). A header that cannot be
// parsed is ignored.
func wantsSHA256(lines []string) bool {
	if len(lines) == 0 {
		return true
	}
	dictionary, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil {
		return true
	}
	member, named := dictionary.Get("sha-256")
	if !named {
		return len(dictionary.Names()) == 0
	}
	item, _ := member.(httpsfv.Item)
	weight, _ := item.Value.(int64)
	return weight > 0
}

// setRights links to an instrument's license (RFC 4946, and IANA's link relations) and
// to what to cite (RFC 8574).
func setRights(h http.Header, rights *wire.RightsEntry) {
	if rights == nil {
		return
	}
	if u := rights.LicenseURL(); u != "" {
		h.Add("Link", "<"+u+`>; rel="license"`)
	}
	if u := rights.CiteURL(); u != "" {
		h.Add("Link", "<"+u+`>; rel="cite-as"`)
	}
}
