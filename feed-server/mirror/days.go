// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
)

// daily is how many of the newest days have their own lines, at least; older ones are summed up by
// months.
const daily = 31

// days answers which months and days instruments have.
func (x *Index) days(v *endpoint.Request) *problem.Problem {
	if p := v.Ready(); p != nil {
		return p
	}
	questions, p := endpoint.Questions[mirrorindex.DaysQuestion](v)
	if p == nil {
		p = endpoint.Distinct(questions, func(q mirrorindex.DaysQuestion) string { return strings.TrimSuffix(q.Instrument+", "+q.Month, ", ") })
	}
	if p != nil {
		return p
	}
	for _, q := range questions {
		if err := mirrorindex.CheckMonth(q.Month); q.Month != "" && err != nil {
			return problem.New(http.StatusBadRequest, "%s: %v", q.Instrument, err)
		}
	}
	x.answer(v, func(out *lines) error {
		for _, q := range questions {
			if err := x.daysOf(v, out, q); err != nil {
				return err
			}
		}
		return out.write(mirrorindex.DaysLine{End: true})
	})
	return nil
}

// daysOf answers one question.
func (x *Index) daysOf(v *endpoint.Request, out *lines, q mirrorindex.DaysQuestion) error {
	in, over := v.Offered(q.Instrument)
	if over != nil {
		return out.write(goneLine(v, q.Instrument))
	}
	days, err := x.cfg.Catalog.Days(v.Context(), q.Instrument)
	if err != nil {
		return err
	}
	if err := out.write(headOf(in)); err != nil {
		return err
	}
	newest := firstDaily(v.Now)
	for len(days) > 0 {
		month := mirrorindex.MonthOf(days[0].Day)
		n := 1
		for n < len(days) && mirrorindex.MonthOf(days[n].Day) == month {
			n++
		}
		if q.Month == month || q.Month == "" {
			if err := x.month(v, out, in, month, days[:n], q.Month == "" && month < newest); err != nil {
				return err
			}
		}
		days = days[n:]
	}
	return nil
}

// goneLine answers about an instrument that the client may not read. A mirror that holds a copy closes it where the instrument is closed to
// the mirror, and keeps it where the instrument is absent. The client has to know the name, and learns no more than the status of
// /archive/<name>/ says: 401 or 403, and 404.
func goneLine(v *endpoint.Request, name string) mirrorindex.DaysLine {
	_, declared := v.Snapshot.Instruments[name]
	return mirrorindex.DaysLine{Instrument: name, Gone: true, Absent: !declared}
}

// headOf is the first line about an instrument. It omits the readers, who are private to the Site.
func headOf(in wire.InstrumentEntry) mirrorindex.DaysLine {
	access := in.Access.InForce()
	access.Readers = nil
	return mirrorindex.DaysLine{
		Instrument: in.Instrument, Rights: in.Rights, Access: &access, About: in.About, Station: in.Station, MediaType: in.MediaType,
	}
}

// firstDaily is the first month whose days stand for themselves.
func firstDaily(now time.Time) string { return now.UTC().AddDate(0, 0, -daily).Format("2006-01") }

// month writes the lines about the days of a month, one for each or one for all.
func (x *Index) month(v *endpoint.Request, out *lines, in wire.InstrumentEntry, month string, days []wire.RootDay, together bool) error {
	all, tag := mirrorindex.DaysLine{Month: month}, sha256.New()
	listed, withheld := 0, false
	for _, d := range days {
		line, some := lineOf(v, in, d)
		if !some {
			continue
		}
		of, err := x.cfg.Catalog.DayTag(v.Context(), in.Instrument, d.Day)
		if err != nil {
			return err
		}
		line.Tag = tagOf(v, in, of)
		if !together {
			if err := out.write(line); err != nil {
				return err
			}
			continue
		}
		_, _ = tag.Write([]byte(string(d.Day) + line.Tag))
		withheld = withheld || line.Entries != d.Entries
		all.Entries += line.Entries
		all.Bytes += line.Bytes
		all.ObservedFrom = earlier(all.ObservedFrom, line.ObservedFrom)
		all.ObservedTo = later(all.ObservedTo, line.ObservedTo)
		listed++
	}
	if !together || listed == 0 {
		return nil
	}
	if withheld { // a sum without the withheld days would be wrong
		all.Entries, all.Bytes = 0, 0
	}
	all.Tag = hex.EncodeToString(tag.Sum(nil)[:12])
	return out.write(all)
}

// lineOf is the line about a day. If some of its data is under embargo for the client, the catalog's figures are omitted, because they
// count all its objects; its bounds then cover everything that may have been observed, so that a mirror that selects by observed time asks
// for its list. Not ok: all of a day is under embargo, and the day is omitted.
func lineOf(v *endpoint.Request, in wire.InstrumentEntry, d wire.RootDay) (line mirrorindex.DaysLine, ok bool) {
	line = mirrorindex.DaysLine{Day: d.Day, Entries: d.Entries, Bytes: d.Bytes, ObservedFrom: d.ObservedFrom, ObservedTo: d.ObservedTo}
	if !v.Embargoed(in) {
		return line, true
	}
	from, to, err := d.Observed()
	switch {
	case err == nil && v.Sees(in, to):
		return line, true
	case err == nil && !v.Sees(in, from):
		return line, false
	}
	now := v.Now.UTC().Truncate(endpoint.EmbargoStep)
	return mirrorindex.DaysLine{Day: d.Day, ObservedFrom: &time.Time{}, ObservedTo: &now}, true
}

func earlier(a, b *time.Time) *time.Time {
	if a == nil || b != nil && b.Before(*a) {
		return b
	}
	return a
}

func later(a, b *time.Time) *time.Time {
	if a == nil || b != nil && b.After(*a) {
		return b
	}
	return a
}
