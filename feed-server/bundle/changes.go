// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// had is what a client has of some days: of one, or of a month.
type had struct {
	span
	// known: the token knows of them at all. filesTell: it knows their files, and what
	// may be read of them is all that they list.
	known, filesTell bool
	lacks            lacks
}

func (h had) isMonth() bool { return h.to-h.from > 1 }

// due is a day of which something may be to be sent: what was received from a time on,
// and what an earlier bundle lacks.
type due struct {
	planned
	from  time.Time
	lacks map[uint64]bool
	// changed: there is something else of it than the client has. listed: it has a list.
	changed, listed bool
}

func (d *due) wants(path string, r *wire.Record) bool {
	return !r.ReceivedAt.Before(d.from) || len(d.lacks) > 0 && d.lacks[object(path, r)]
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
		now, err := s.days(days[:n], had{old, known, known && !hidden, was.lacks})
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
		todo := due{planned: d, lacks: had.lacks.of(d.number), changed: changed, listed: had.count > 0 && !had.isMonth()}
		switch {
		case !changed && len(todo.lacks) == 0:
			continue
		case !changed:
			todo.from = (d.number + 1).start()
		case had.count > 0 && !had.isMonth():
			if todo.from, err = s.newer(d, had.sum); err != nil {
				return nil, err
			}
		}
		if err := s.day(todo, &now[i]); err != nil {
			return nil, err
		}
	}
	return now, nil
}

// sums sums up some days, and says whether there is something else of them than a client
// has.
func (s *sending) sums(days []planned, had had) (now []sum, changed bool, err error) {
	var files sum
	for _, d := range days {
		files = files.plus(sum{files: filesOf(d.RootDay)})
	}
	if had.filesTell && files.files == had.files {
		// Nothing of them changed, so nothing of them is read: a month's sum is kept as
		// that of its first day, as sums add up.
		now = make([]sum, len(days))
		now[0] = had.sum
		return now, false, nil
	}
	var total sum
	for _, d := range days {
		one, err := s.sumOf(d, time.Time{})
		if err != nil {
			return nil, false, err
		}
		now, total = append(now, one), total.plus(one)
	}
	return now, had.count == 0 || !total.same(had.sum), nil
}

// newer returns the time of receipt from which on a client has nothing of a day, if all
// that it has is there still; else the zero time.
func (s *sending) newer(d planned, old sum) (time.Time, error) {
	last := d.number.start().Add(time.Duration(old.last) + 1)
	before, err := s.sumOf(d, last)
	if err != nil || !before.same(old) {
		return time.Time{}, err
	}
	return last, nil
}

// sumOf sums up what is asked for of a day and received before a time, if that is set.
func (s *sending) sumOf(d planned, before time.Time) (sum, error) {
	day, err := s.cfg.Catalog.Day(s.v.Context(), s.in.Instrument, d.Day)
	if err != nil {
		return sum{}, err
	}
	now := sum{files: filesOf(d.RootDay)}
	for i, r := range day.Records {
		if s.gives(r) && r.State == wire.StateCurrent && (before.IsZero() || r.ReceivedAt.Before(before)) {
			now.add(day.Path(i), r, d.number)
		}
	}
	return now, nil
}
