// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
)

// legacyRoot is what the paths of the legacy tree begin with, see wire.Legacy.
const legacyRoot = "/legacy/"

// serveLegacy answers with a run: all of its objects that the client may have.
func (a *Archive) serveLegacy(v *endpoint.Request) *problem.Problem {
	path, err := unescape(strings.TrimPrefix(v.URL.EscapedPath(), "/"))
	if err != nil {
		return problem.New(http.StatusBadRequest, "%v", err)
	}
	l, err := wire.ParseLegacyPath(path)
	if err != nil {
		return problem.New(http.StatusNotFound, "%v", err)
	}
	t := target{path: path}
	r, p := a.gather(v, t, l, false)
	if p == nil && v.Method == http.MethodGet && endpoint.Evaluate(v.Request, r.tag(), time.Time{}) == endpoint.Proceed {
		r, p = a.gather(v, t, l, true)
	}
	if p != nil {
		return p
	}
	return a.answerRun(v, t, r)
}

func (a *Archive) answerRun(v *endpoint.Request, t target, r *run) *problem.Problem {
	tag := r.tag()
	h := v.W.Header()
	h.Set("ETag", tag)
	h.Set("Cache-Control", r.policy())
	h.Set("Vary", "Authorization")
	for _, c := range r.parts {
		v.Share(c.instrument, 0)
	}
	// No time of the change is sent: an object that comes late from a spool is inserted in between.
	switch endpoint.Evaluate(v.Request, tag, time.Time{}) {
	case endpoint.Unchanged:
		v.W.WriteHeader(http.StatusNotModified)
		return nil
	case endpoint.Failed:
		return problem.New(http.StatusPreconditionFailed, "%s is another than the one that you mean: it has ETag %s", t, tag)
	}
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Accept-Ranges", "bytes")
	asked, p := partOf(v, t, tag, time.Time{}, r.size())
	if p != nil {
		return p
	}
	if v.Method == http.MethodHead {
		begin(v, r.size(), asked)
		return nil
	}
	return deliver(v, t, r.size(), asked, func(write func([]byte) error) error { return a.writeRun(v, write, r, asked) })
}

// gather finds what is in a run; whole: its objects too.
func (a *Archive) gather(v *endpoint.Request, t target, l wire.Legacy, whole bool) (*run, *problem.Problem) {
	r := &run{public: true}
	var refused *problem.Problem
	for _, name := range slices.Sorted(maps.Keys(v.Snapshot.Instruments)) {
		in := v.Snapshot.Instruments[name]
		if !slices.ContainsFunc(in.Listeners, func(w wire.ListenerEntry) bool { return w.Protocol != wire.ProtocolUDP }) {
			continue
		}
		if p := v.Verdict(in, t.String(), time.Time{}); p != nil {
			refused = p
			continue
		}
		s, objects, err := a.contribution(v, in, t, l, whole)
		if err != nil {
			return nil, v.Unreadable(t.String(), err)
		}
		if s.objects > 0 {
			r.add(in, s, objects)
		}
	}
	if len(r.parts) == 0 {
		if refused != nil {
			return nil, refused
		}
		return nil, notFound(t)
	}
	slices.SortFunc(r.objects, func(a, b sent) int { return wire.ByReceipt(a.Record, b.Record) })
	return r, nil
}

// contribution is what an instrument has in a run. Unless its objects are wanted, or some of them
// are hidden from the client, a day that did not change is not read again: robots ask for these
// lengths all the time.
func (a *Archive) contribution(v *endpoint.Request, in wire.InstrumentEntry, t target, l wire.Legacy, whole bool) (sum, []*wire.Record, error) {
	key, embargoed := sumKey{in.Instrument, l}, v.Embargoed(in)
	if !whole && !embargoed {
		tag, err := a.cfg.Catalog.DayTag(v.Context(), in.Instrument, l.Day)
		if err != nil {
			return sum{}, nil, err
		}
		if s, known := a.sums.of(key, tag); known {
			return s, nil, nil
		}
	}
	day, err := a.cfg.Catalog.Day(v.Context(), in.Instrument, l.Day)
	if err != nil {
		return sum{}, nil, err
	}
	var objects []*wire.Record
	for o := range day.Records {
		if o.Port != l.Port { // quick: an address is not
			continue
		}
		if of, ok := wire.LegacyOf(*o); ok && of == l && a.withheld(v, in, t, o) == nil {
			objects = append(objects, o)
		}
	}
	s := sumOf(objects)
	if !embargoed {
		a.sums.put(key, day.Tag, s)
	}
	return s, objects, nil
}
