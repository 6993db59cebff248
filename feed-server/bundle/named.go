// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
)

// serveNamed answers a mirror with the objects that it names.
func (b *Bundles) serveNamed(v *endpoint.Request) *problem.Problem {
	if p := v.Ready(); p != nil {
		return p
	}
	questions, p := endpoint.Questions[mirrorindex.ObjectsQuestion](v)
	if p == nil {
		questions = byDay(questions)
		p = endpoint.Distinct(questions, func(q mirrorindex.ObjectsQuestion) string { return q.Instrument + ", " + string(q.Day) })
	}
	if p != nil {
		return p
	}
	done, p := b.turn(v)
	if p != nil {
		return p
	}
	defer done()
	h := v.W.Header()
	h.Set("Cache-Control", "private, no-store")
	h.Set("Vary", "Accept-Encoding, Authorization")
	h.Set("Content-Type", mediaTar)
	compressed := endpoint.AcceptsZstd(v.Request)
	if compressed {
		h.Set("Content-Encoding", "zstd")
	}
	v.W.WriteHeader(http.StatusOK)
	s := &sending{Bundles: b, v: v, ids: true, end: End{Format: format}}
	v.Finish("bundle", s.tarTo(permitted{s}, compressed, func() error { return s.named(questions) }))
	return nil
}

// byDay merges questions that name objects of the same day, so that the day is read once and each object sent once.
func byDay(questions []mirrorindex.ObjectsQuestion) (all []mirrorindex.ObjectsQuestion) {
	type day struct {
		instrument string
		day        wire.Day
	}
	named := map[day]int{}
	for _, q := range questions {
		if len(q.IDs) == 0 {
			all = append(all, q)
			continue
		}
		k := day{q.Instrument, q.Day}
		i, is := named[k]
		if !is {
			i, all = len(all), append(all, mirrorindex.ObjectsQuestion{Instrument: q.Instrument, Day: q.Day})
			named[k] = i
		}
		all[i].IDs = append(all[i].IDs, q.IDs...)
	}
	return all
}

// named sends the objects of each question. If the client may not read an instrument, or its
// day is no day, it sends none: the mirror sees that they are not there.
func (s *sending) named(questions []mirrorindex.ObjectsQuestion) error {
	for _, q := range questions {
		in, over := s.v.Offered(q.Instrument)
		if _, err := q.Day.Start(); over != nil || err != nil {
			continue
		}
		s.in = in
		day, err := s.cfg.Catalog.Day(s.v.Context(), q.Instrument, q.Day)
		if err != nil {
			return err
		}
		if err := s.objects(day, s.chosenBy(q, day)); err != nil {
			return err
		}
	}
	return s.writeEnd()
}

// chosenBy returns the objects that a question names, in the order of the store.
func (s *sending) chosenBy(q mirrorindex.ObjectsQuestion, day *catalog.Day) []chosen {
	ids := make(map[string]bool, len(q.IDs))
	for _, id := range q.IDs {
		ids[id] = true
	}
	all := make([]chosen, 0, cmp.Or(len(ids), len(day.Records)))
	for i, r := range day.Records {
		named := ids[r.ID] && (r.State == wire.StateCurrent || r.State == wire.StateSuperseded)
		if len(ids) == 0 {
			named = r.State == wire.StateCurrent && (q.Below == 0 || r.Size <= q.Below)
		}
		if named && s.v.Sees(s.in, r.ObservedEnd()) {
			all = append(all, chosen{record: r, path: day.Path(i), send: true})
		}
	}
	slices.SortFunc(all, func(a, b chosen) int {
		return cmp.Or(strings.Compare(a.record.Key, b.record.Key), cmp.Compare(a.record.Offset, b.record.Offset))
	})
	return all
}
