// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// aliases are the templates of old URLs, read once for each registry.
type aliases struct {
	log *slog.Logger

	mu       sync.Mutex
	snapshot *registry.Snapshot
	all      []objectpath.Instrument
}

// of returns the instruments that have any, by name.
func (a *aliases) of(s *registry.Snapshot) []objectpath.Instrument {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.snapshot == s {
		return a.all
	}
	a.snapshot, a.all = s, nil
	for _, name := range slices.Sorted(maps.Keys(s.Instruments)) {
		entry := s.Instruments[name]
		if len(entry.Aliases) == 0 {
			continue
		}
		in, err := objectpath.OfEntry(entry)
		if err != nil {
			a.log.Error("aliases cannot be read: their old URLs are not answered", "instrument", name, "error", err)
			continue
		}
		in.Naming = nil // published paths are below Root
		a.all = append(a.all, in)
	}
	return a.all
}

// serveAlias answers old URLs, and what no other endpoint answers.
func (a *Archive) serveAlias(v *endpoint.Request) *problem.Problem {
	path, err := unescape(strings.TrimPrefix(v.URL.EscapedPath(), "/"))
	if err != nil {
		return problem.New(http.StatusBadRequest, "%v", err)
	}
	t := target{path: path}
	var refused *problem.Problem
	for _, c := range objectpath.Candidates(path, a.aliases.of(v.Snapshot)) {
		in := v.Snapshot.Instruments[c.Instrument]
		p := v.Verdict(in, t.String(), time.Time{})
		if p == nil {
			record, found, err := a.findCandidate(v.Context(), path, c)
			if err != nil {
				return v.Unreadable(t.String(), err)
			}
			if !found {
				continue
			}
			if p = a.withheld(v, in, t, &record); p == nil {
				v.About(c.Instrument)
				return a.serveRecord(v, in, t, record)
			}
		}
		if refused == nil {
			refused = p
		}
	}
	if refused != nil {
		return refused
	}
	if feed, is := strings.CutPrefix(path, "feeds/"); is {
		return problem.New(http.StatusNotFound, "a Feed is read as a stream, at /feeds/%s/events?consumer=NAME or /feeds/%[1]s/ws?consumer=NAME, by the delivery of FeedConsumer NAME",
			strings.TrimSuffix(feed, "/"))
	}
	return notFound(t)
}

// findCandidate looks for the object of a path where a candidate says.
func (a *Archive) findCandidate(ctx context.Context, path string, c objectpath.Candidate) (found wire.Record, ok bool, err error) {
	if c.Name != "" {
		found, err = a.cfg.Catalog.Named(ctx, c.Instrument, c.Name)
		if errors.Is(err, ErrNotFound) {
			return found, false, nil
		}
		return found, err == nil && c.Matches(&found), err
	}
	key := lookKey{path, c.Template, c.Instrument, c.Day}
	tag, err := a.cfg.Catalog.DayTag(ctx, c.Instrument, c.Day)
	if err != nil {
		return found, false, err
	}
	if l, known := a.looked.of(key, tag); known {
		return l.record, l.found, nil
	}
	day, err := a.cfg.Catalog.Day(ctx, c.Instrument, c.Day)
	if err != nil {
		return found, false, err
	}
	for r := range day.Records {
		if (!ok || (wire.ByReceipt(r, &found) < 0) != c.Newest) && c.Matches(r) {
			found, ok = *r, true
		}
	}
	a.looked.put(key, day.Tag, looked{found, ok})
	return found, ok, nil
}

// lookKey is what was looked for by a template, and where.
type lookKey struct {
	path, template, instrument string
	day                        wire.Day
}

// looked is what was found, if there was anything.
type looked struct {
	record wire.Record
	found  bool
}
