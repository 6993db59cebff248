// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"time"

	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/wire"
)

// had is what a client has of some days: of one, or of a month.
type had struct {
	span
	// filesTell: the token knows their files, and what may be read of them is all that
	// they list.
	filesTell bool
	lacks     lacks
}

// due is a day that may have something to send.
type due struct {
	planned
	// had is what a client has of it, as far as that is known of it alone.
	had sum
	// lacks are what an earlier bundle lacks of that.
	lacks map[uint64]bool
	// changed: the day differs from what the client has.
	changed bool
}

// instrument sends what one instrument has, day by day.
func (s *sending) instrument(i int) error {
	s.in, s.left = s.todo.instruments[i], nil
	hidden := s.v.Embargoed(s.in)
	var was, is part
	if s.todo.again {
		was = s.todo.since.all[i]
	}
	daily := firstDaily(s.v.Now)
	days := s.todo.days[i]
	for len(days) > 0 {
		old, known := was.spans.of(days[0].number)
		n := 1
		for known && n < len(days) && days[n].number < old.to {
			n++
		}
		now, err := s.days(days[:n], had{old, known && !hidden, was.lacks})
		if err != nil {
			return err
		}
		for j, sum := range now {
			if hidden {
				sum.files = 0
			}
			is.spans = is.spans.add(span{days[j].number, days[j].number + 1, sum}, daily)
		}
		days = days[n:]
	}
	is.lacks = s.left
	s.next.all = append(s.next.all, is)
	return nil
}

// days sends what a client does not have of some days, and returns their sums.
func (s *sending) days(days []planned, had had) ([]sum, error) {
	now, changed, err := s.sums(days, had)
	if err != nil {
		return nil, err
	}
	for i, d := range days {
		todo := due{planned: d, lacks: had.lacks.of(d.number), changed: changed}
		if had.to-had.from == 1 {
			todo.had = had.sum
		}
		if !changed && len(todo.lacks) == 0 {
			continue
		}
		if err := s.day(todo, &now[i]); err != nil {
			return nil, err
		}
	}
	return now, nil
}

// sums sums up some days, and reports whether they differ from what a client has.
func (s *sending) sums(days []planned, had had) (now []sum, changed bool, err error) {
	var files sum
	for _, d := range days {
		files = files.plus(sum{files: filesOf(d.RootDay)})
	}
	if had.filesTell && files.files == had.files {
		// Nothing of the days changed, so none is read: a month's sum is kept as the sum of its
		// first day, as sums add up.
		now = make([]sum, len(days))
		now[0] = had.sum
		return now, false, nil
	}
	var total sum
	for _, d := range days {
		day, err := s.cfg.Catalog.Day(s.v.Context(), s.in.Instrument, d.Day)
		if err != nil {
			return nil, false, err
		}
		one := s.sumOf(day, d, time.Time{})
		now, total = append(now, one), total.plus(one)
	}
	return now, had.count == 0 || !total.same(had.sum), nil
}

// unsentSince returns the time of receipt from which on objects of a day are to be sent: behind
// all that a client has, if that is all there still, else the zero time.
func (s *sending) unsentSince(day *catalog.Day, d *due) time.Time {
	if !d.changed {
		return (d.number + 1).start() // none but those that lack
	}
	last := d.number.start().Add(time.Duration(d.had.last) + 1)
	if d.had.count == 0 || !s.sumOf(day, d.planned, last).same(d.had) {
		return time.Time{}
	}
	return last
}

// sumOf sums up what is asked for of a day and received before a time, if that is set.
func (s *sending) sumOf(day *catalog.Day, d planned, before time.Time) sum {
	now := sum{files: filesOf(d.RootDay)}
	for i, r := range day.Records {
		if s.maySend(r) && r.State == wire.StateCurrent && (before.IsZero() || r.ReceivedAt.Before(before)) {
			now.add(day.Path(i), r, d.number)
		}
	}
	return now
}
