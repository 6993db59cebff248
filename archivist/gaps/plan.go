// SPDX-License-Identifier: Apache-2.0

// Package gaps finds what is missing of what instruments should have observed, says
// why, and notices when what comes late fills it.
//
// Plan compares a day of observation with what is archived, and does no I/O. The keeper
// reads, plans and writes the bucket GAPS_<site>, under the archivist's lease.
package gaps

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/observing"
	"github.com/substorm/substorm/internal/wire"
)

// Input is all that a plan of one instrument and day of observation goes by. Spans of
// the archive may come in any order, and overlap.
type Input struct {
	Now   time.Time             `json:"now"`
	Day   wire.Day              `json:"day"`
	Entry *wire.InstrumentEntry `json:"entry"`
	// Settled is up to when nothing waits in a spool that was received; zero: now.
	Settled time.Time `json:"settled,omitzero"`
	// Since is when the instrument first observed: nothing was due before.
	Since time.Time `json:"since"`
	// Channels by name; the empty one has the objects.
	Channels map[string]Archived `json:"channels"`
	Evidence Evidence            `json:"evidence"`
	// Was is what the last plan said; nil for the first.
	Was *wire.DayGaps `json:"was,omitempty"`
}

// Archived is what the archive holds of a channel, of the day and a while before and
// after it.
type Archived struct {
	Observed []wire.TimeSpan `json:"observed"`
	// Retracted objects, and segments with messages that cannot be read.
	Retracted   []wire.TimeSpan `json:"retracted,omitempty"`
	Undecodable []wire.TimeSpan `json:"undecodable,omitempty"`
	// Delay is how long after it was observed something shows in the archive at the
	// latest, in cadence.
	Delay Duration `json:"delay,omitempty"`
}

// Duration is spelled as 10m0s.
type Duration time.Duration

// MarshalText spells a duration.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what MarshalText spelled.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// planner is one plan on its way.
type planner struct {
	Input
	start, end time.Time
	cadence    time.Duration
	due        []wire.TimeSpan
	excused    []wire.TimeSpan
}

// overdue is how long after the last observation the next is missing: as in the
// condition DataFlowing.
func (p *planner) overdue() time.Duration { return 2*p.cadence + 2*time.Second }

// Plan says what is missing of the day. Errors: wire.ErrMalformed, of the day and of
// when the instrument observes.
func Plan(in Input) (wire.DayGaps, error) {
	p := &planner{Input: in, cadence: time.Duration(in.Entry.CadenceMillis) * time.Millisecond}
	var err error
	if p.start, err = in.Day.Start(); err != nil {
		return wire.DayGaps{}, err
	}
	p.end = p.start.AddDate(0, 0, 1)
	schedule, err := observing.Of(in.Entry.Observes)
	if err != nil {
		return wire.DayGaps{}, err
	}
	if p.Was == nil {
		p.Was = &wire.DayGaps{}
	}
	p.excuse()
	from := p.start
	if p.Since.After(from) {
		from = p.Since
	}
	day := wire.DayGaps{CheckedAt: p.Now, Until: p.start, Excused: p.excused}
	if p.cadence <= 0 || p.Since.IsZero() {
		return day, nil
	}
	p.due = subtract(schedule.Due(from, p.end, 2*p.cadence), p.excused)
	var found []wire.MissingGap
	for _, name := range slices.Sorted(maps.Keys(p.Channels)) {
		until := p.until(p.Channels[name])
		if until.After(day.Until) {
			day.Until = until
		}
		span := total(clipSpans(p.due, p.start, until))
		day.DueMillis = max(day.DueMillis, span.Milliseconds())
		day.Due += int64(span / p.cadence)
		found = append(found, p.missing(name, until)...)
	}
	p.explain(found)
	day.Gaps = p.mergeKnown(found)
	dropShortest(&day)
	return day, nil
}

// until is up to when something of a channel must be there.
func (p *planner) until(c Archived) time.Time {
	until := p.Now
	if !p.Settled.IsZero() && p.Settled.Before(until) {
		until = p.Settled
	}
	until = until.Add(-time.Duration(c.Delay) - p.overdue())
	if until.After(p.end) {
		until = p.end
	}
	if until.Before(p.start) {
		until = p.start
	}
	return until
}

// excuse notes the time of maintenance and retirement: only the present state is known, so it lasts from when the
// last plan said so. An instrument that is retired on the day, or on the day after, owes nothing behind its last
// observation: it is first stopped, and then declared retired.
func (p *planner) excuse() {
	p.excused = slices.Clone(p.Was.Excused)
	if !p.Entry.Maintenance && !p.Entry.Retired {
		return
	}
	to := p.Now
	if to.After(p.end) {
		to = p.end
	}
	if p.Entry.Retired && p.Now.Before(p.end.Add(24*time.Hour)) {
		if from := p.lastObserved(); from.Before(to) {
			p.excused = merge(append(p.excused, wire.TimeSpan{From: from, To: to}), 0)
		}
		return
	}
	from := to
	if at := p.Was.CheckedAt; !at.IsZero() && at.Before(to) {
		from = at
	}
	if n := len(p.excused); n > 0 && !p.excused[n-1].To.Before(from) {
		p.excused[n-1].To = to
		return
	}
	if from.Before(p.start) || p.Was.CheckedAt.IsZero() && p.Now.After(p.end) {
		from = p.start
	}
	if from.Before(to) {
		p.excused = append(p.excused, wire.TimeSpan{From: from, To: to})
	}
}

// lastObserved is when the day was last observed on any channel; its beginning where it
// was not.
func (p *planner) lastObserved() time.Time {
	last := p.start
	for _, c := range p.Channels {
		for _, s := range c.Observed {
			last = maxTime(last, s.To)
		}
	}
	return last
}

// missing returns the times without an observation in which some were due.
func (p *planner) missing(channel string, until time.Time) []wire.MissingGap {
	begin, limit := p.start.Add(-p.overdue()), p.end.Add(p.overdue())
	ongoing := false
	if until.Before(p.end) {
		limit, ongoing = until, true
	}
	var gaps []wire.MissingGap
	silent := func(from, to time.Time, open bool) {
		if to.Sub(from) <= p.overdue() && !open || open && !from.Before(to) {
			return
		}
		for _, piece := range clipSpans(p.due, maxTime(from, p.start), minTime(to, p.end)) {
			count := int64((piece.To.Sub(piece.From)+p.cadence/2)/p.cadence) - 1
			if count < 1 {
				continue
			}
			g := wire.MissingGap{Channel: channel, From: piece.From, Missing: count, FoundAt: p.Now}
			if !open || piece.To.Before(to) {
				g.To = &piece.To
			}
			gaps = append(gaps, g)
		}
	}
	at := begin
	for _, s := range merge(p.Channels[channel].Observed, p.overdue()) {
		if s.From.After(limit) {
			break
		}
		if s.From.After(at) {
			silent(at, s.From, false)
		}
		at = maxTime(at, s.To)
	}
	if at.Before(limit) {
		silent(at, limit, ongoing)
	}
	return gaps
}

// mergeKnown gives gaps that were known their first time, and keeps those that are
// filled by now.
func (p *planner) mergeKnown(found []wire.MissingGap) []wire.MissingGap {
	var closed []wire.MissingGap
	for _, known := range p.Was.Gaps {
		if known.ClosedAt != nil {
			if !overlaps(found, known, p.Now) {
				closed = append(closed, known)
			}
			continue
		}
		left := false
		for i := range found {
			g := &found[i]
			if g.Channel != known.Channel || !overlap(*g, known, p.Now) {
				continue
			}
			left = true
			if known.FoundAt.Before(g.FoundAt) {
				g.FoundAt = known.FoundAt
			}
			if g.Cause == wire.GapInstrument {
				g.Cause = known.Cause // what pointed elsewhere then may be gone
			}
		}
		due := clipSpans(p.due, known.From, known.Ends(p.Now))
		if left || total(due) == 0 { // of what was not due after all nothing is kept
			continue
		}
		known.ClosedAt = &p.Now
		if known.To == nil {
			known.To = p.resumed(known)
		}
		closed = append(closed, known)
	}
	all := slices.Concat(found, closed)
	slices.SortStableFunc(all, func(a, b wire.MissingGap) int {
		return cmp.Or(strings.Compare(a.Channel, b.Channel), a.From.Compare(b.From))
	})
	return all
}

// resumed is when something was observed after a gap that had no end.
func (p *planner) resumed(g wire.MissingGap) *time.Time {
	for _, s := range merge(p.Channels[g.Channel].Observed, 0) {
		if s.From.After(g.From) {
			return &s.From
		}
	}
	return new(minTime(p.end, p.Now))
}

func overlap(a, b wire.MissingGap, now time.Time) bool {
	return a.From.Before(b.Ends(now)) && b.From.Before(a.Ends(now))
}

func overlaps(all []wire.MissingGap, g wire.MissingGap, now time.Time) bool {
	return slices.ContainsFunc(all, func(o wire.MissingGap) bool { return o.Channel == g.Channel && overlap(o, g, now) })
}

// dropShortest leaves the shortest gaps out if there are too many.
func dropShortest(day *wire.DayGaps) {
	over := len(day.Gaps) - wire.MaxDayGaps
	if over <= 0 {
		return
	}
	counts := make([]int64, len(day.Gaps))
	for i, g := range day.Gaps {
		counts[i] = g.Missing
	}
	slices.Sort(counts)
	least, more := counts[over-1], over
	kept := day.Gaps[:0]
	for _, g := range day.Gaps {
		if over > 0 && g.Missing <= least {
			over--
			continue
		}
		kept = append(kept, g)
	}
	day.Gaps, day.More = kept, more
}
