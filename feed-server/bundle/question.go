// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
)

// maxInstruments of one bundle.
const maxInstruments = 32

// question is what a bundle is to hold.
type question struct {
	instruments []wire.InstrumentEntry // by name
	// from and to bound the time; the zero time is no bound.
	from, to time.Time
	by       catalog.By
	zstd     bool
	since    token
	again    bool // since is set
}

// known are the parameters of a query.
var known = []string{"instrument", "from", "to", "by", "since"}

// ask reads a request. Name is the name of the file in the path, without instruments if the query
// names them.
func ask(v *endpoint.Request, name string) (question, *problem.Problem) {
	var q question
	query, err := url.ParseQuery(v.URL.RawQuery)
	if err != nil {
		return q, problem.New(http.StatusBadRequest, "the query cannot be read: %v", err)
	}
	for key := range query {
		if !slices.Contains(known, key) {
			return q, problem.New(http.StatusBadRequest, "a bundle knows no parameter %.50q, but %s", key, strings.Join(known, ", "))
		}
	}
	rest, isZstd := strings.CutSuffix(name, ".zst")
	names, isTar := strings.CutSuffix(rest, ".tar")
	if !isTar {
		return q, problem.New(http.StatusNotFound, "there is no bundle %.100q: its name is that of an instrument with .tar or .tar.zst behind it", name)
	}
	q.zstd = isZstd
	all := map[string]bool{}
	for _, name := range append(query["instrument"], names) {
		if name != "" {
			all[name] = true
		}
	}
	if len(all) == 0 || len(all) > maxInstruments {
		return q, problem.New(http.StatusBadRequest, "a bundle is of one to %d Instruments: name each as ?instrument=", maxInstruments)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		in, p := v.Instrument(name, name)
		if p != nil {
			return q, p
		}
		q.instruments = append(q.instruments, in)
	}
	if len(q.instruments) > 1 {
		v.About("") // each by itself, when its objects were sent
	}
	if p := q.times(query); p != nil {
		return q, p
	}
	if text := query.Get("since"); text != "" {
		if q.since, err = parseToken(text, q.digest(), len(q.instruments)); err != nil {
			return q, problem.New(http.StatusBadRequest, "since: %v: leave it out, and all is sent", err)
		}
		q.again = true
	}
	return q, nil
}

func (q *question) times(query url.Values) *problem.Problem {
	for name, to := range map[string]*time.Time{"from": &q.from, "to": &q.to} {
		text := query.Get(name)
		if text == "" {
			continue
		}
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t, err = time.Parse(time.DateOnly, text)
		}
		if err != nil || t.Year() < 1900 || t.Year() > 9999 {
			return problem.New(http.StatusBadRequest, "%s is %.50q: a time is like 2026-11-21T12:00:00Z or 2026-11-21, from 1900 on", name, text)
		}
		*to = t.UTC()
	}
	if !q.to.IsZero() && !q.from.Before(q.to) {
		return problem.New(http.StatusBadRequest, "from is not before to: what is at that instant does not belong to it any more")
	}
	switch by := query.Get("by"); by {
	case "", "received":
		q.by = catalog.ByReceived
	case "observed":
		q.by = catalog.ByObserved
	default:
		return problem.New(http.StatusBadRequest, "by is %.50q: objects are chosen by received or by observed", by)
	}
	return nil
}

// digest distinguishes questions.
func (q *question) digest() (d [8]byte) {
	h := sha256.New()
	for _, in := range q.instruments {
		_, _ = fmt.Fprintf(h, "%s\n", in.Instrument)
	}
	_, _ = fmt.Fprintf(h, "%s %s %d", wire.FormatTime(q.from), wire.FormatTime(q.to), q.by)
	copy(d[:], h.Sum(nil))
	return d
}

// may reports whether a day may hold anything that is asked for.
func (q *question) may(d wire.RootDay, day dayNumber) bool {
	from, to := day.start(), (day + 1).start()
	if q.by == catalog.ByObserved {
		for _, t := range []*time.Time{d.ObservedFrom, d.ObservedTo} {
			if t != nil && t.Before(from) {
				from = *t
			}
			if t != nil && !t.Before(to) {
				to = t.Add(1)
			}
		}
	}
	return (d.Entries > 0 || d.Version > 0 || len(d.Parts) > 0) && (q.to.IsZero() || from.Before(q.to)) && to.After(q.from)
}

// wants reports whether an object is asked for.
func (q *question) wants(r *wire.Record) bool {
	from, to := r.ReceivedAt, r.ReceivedAt
	if q.by == catalog.ByObserved {
		from, to = q.by.Span(r)
	}
	return !to.Before(q.from) && (q.to.IsZero() || from.Before(q.to))
}
