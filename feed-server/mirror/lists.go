// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
)

// lists answers what days hold.
func (x *Index) lists(v *endpoint.Request) *problem.Problem {
	if p := v.Ready(); p != nil {
		return p
	}
	questions, p := endpoint.Questions[mirrorindex.ListQuestion](v)
	if p == nil {
		p = endpoint.Distinct(questions, func(q mirrorindex.ListQuestion) string { return q.Instrument + ", " + string(q.Day) })
	}
	if p != nil {
		return p
	}
	x.answer(v, func(out *lines) error {
		for _, q := range questions {
			if err := x.list(v, out, q); err != nil {
				return err
			}
		}
		return out.write(mirrorindex.ListLine{End: true})
	})
	return nil
}

// list answers one question.
func (x *Index) list(v *endpoint.Request, out *lines, q mirrorindex.ListQuestion) error {
	if err := v.Context().Err(); err != nil { // a day may be summed up without anything being written
		return err
	}
	in, over := v.Offered(q.Instrument)
	if _, err := q.Day.Start(); over != nil || err != nil {
		return out.write(mirrorindex.ListLine{Instrument: q.Instrument, Day: q.Day, Gone: true})
	}
	day, err := x.cfg.Catalog.Day(v.Context(), q.Instrument, q.Day)
	if err != nil {
		return err
	}
	seen := visible{v: v, in: in, day: day}
	head := mirrorindex.ListLine{Instrument: q.Instrument, Day: q.Day, Tag: tagOf(v, in, day.Tag)}
	var after time.Time
	if head.More = q.Have != nil && seen.until(q.Have.Last).Same(*q.Have); head.More {
		after = q.Have.Last
	}
	if err := out.write(head); err != nil {
		return err
	}
	for e := range seen.all {
		if head.More && !e.ReceivedAt.After(after) {
			continue
		}
		if err := out.write(mirrorindex.ListLine{Entry: &e}); err != nil {
			return err
		}
	}
	return nil
}

// visible is what a day holds that the client may have.
type visible struct {
	v   *endpoint.Request
	in  wire.InstrumentEntry
	day *catalog.Day
}

// all yields the entries in the order of their paths, and then what was retracted or purged under another path.
func (s visible) all(yield func(mirrorindex.Entry) bool) {
	for i, r := range s.day.Records {
		if s.v.Sees(s.in, r.ObservedEnd()) && !yield(mirrorindex.EntryOf(s.day.Path(i), r)) {
			return
		}
	}
	for _, r := range s.day.TakenBack() {
		if s.v.Sees(s.in, r.ObservedEnd()) && !yield(mirrorindex.EntryOf(r.Published(), r)) {
			return
		}
	}
}

// until sums up what was received up to a time.
func (s visible) until(last time.Time) (sum mirrorindex.Sum) {
	for e := range s.all {
		if !e.ReceivedAt.After(last) {
			sum.Add(&e)
		}
	}
	return sum
}
