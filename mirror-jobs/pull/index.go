// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"errors"
	"sync"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

const (
	// instrumentsAtOnce is how many instruments' days are asked for at once, and daysAtOnce how
	// many days' lists: both questions fit into MaxQuestionBytes. Days that may have more than
	// entriesAtOnce new entries together are not asked for at once, so that bundles begin early.
	instrumentsAtOnce = 100
	daysAtOnce        = 40
	entriesAtOnce     = 1000
)

// instrument is an instrument with changes.
type instrument struct {
	mirrorindex.RootLine
	plan.Selection
	known plan.Known
	// months are the tags that are known once all days are done.
	months map[string]string

	mu sync.Mutex
	// open are the days that are not done yet, and one as long as days may be added.
	open   int
	failed bool
	// embargoed: the other side does not list all that it has.
	embargoed bool
	// gone: the other side does not let this mirror read it any more.
	gone bool
}

// endDay is called when a day is, or no more come; true: it was the last one.
func (i *instrument) endDay(ok bool) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.open--
	i.failed = i.failed || !ok
	return i.open == 0
}

// index asks which days of instruments changed, and passes these on.
func (p *run) index(ctx context.Context, changed []mirrorindex.RootLine) error {
	for len(changed) > 0 {
		n := min(len(changed), instrumentsAtOnce)
		if err := p.instrumentsOf(ctx, changed[:n]); err != nil {
			return err
		}
		changed = changed[n:]
	}
	return nil
}

// instrumentsOf does that for some.
func (p *run) instrumentsOf(ctx context.Context, lines []mirrorindex.RootLine) error {
	var all []*instrument
	var questions []mirrorindex.DaysQuestion
	for _, line := range lines {
		known, err := p.known(line.Instrument)
		if err != nil {
			return err
		}
		all = append(all, &instrument{RootLine: line, Selection: p.ForInstrument(line.Instrument), known: known, months: map[string]string{}, open: 1})
		questions = append(questions, mirrorindex.DaysQuestion{Instrument: line.Instrument})
	}
	answers, err := p.Source.Days(ctx, questions)
	if err != nil {
		return err
	}
	months, days := monthsToAsk{p: p}, daysToAsk{p: p}
	for i, in := range all {
		if answers[i][0].Gone {
			p.noteGone(in)
			continue
		}
		in.embargoed = answers[i][0].Access.Embargo() > 0
		p.unlistedDays(in, answers[i][1:], "")
		if err := p.days(ctx, in, answers[i][1:], &months, &days); err != nil {
			return err
		}
	}
	if err := errors.Join(months.ask(ctx, &days), days.ask(ctx)); err != nil {
		return err
	}
	for _, in := range all {
		if in.endDay(true) {
			p.finish(in)
		}
	}
	return nil
}

// known returns what is known of an instrument, without the tags of days whose lists are lost: these are compared again.
func (p *run) known(instrument string) (plan.Known, error) {
	known, err := p.Folder.Known(instrument)
	if err != nil {
		return known, err
	}
	if p.compares || p.sweeps {
		known.Forget()
	}
	lost, err := p.Folder.Lost(instrument, known)
	if err != nil {
		return known, err
	}
	for _, day := range lost {
		known.ForgetDay(day)
		p.Logger.Warn("the list of a day is lost; comparing the day again", "instrument", instrument, "day", day)
	}
	return known, nil
}

// noteGone notes that the other side does not let this mirror read an instrument any more. No tag of it is noted: once it lets this
// mirror read it again, the tag may be the same.
func (p *run) noteGone(in *instrument) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.gone {
		p.Logger.Warn("the other side no longer lets this mirror read an instrument: its copies here stay", "instrument", in.Instrument)
	}
	in.gone, in.failed = true, true
}

// days passes on those of an answer that changed; months are asked for.
func (p *run) days(ctx context.Context, in *instrument, lines []mirrorindex.DaysLine, months *monthsToAsk, days *daysToAsk) error {
	in.mu.Lock() // days that were passed on before may be noted meanwhile
	changed := in.Changed(lines, in.known)
	had := make([]int, len(changed))
	for i, line := range changed {
		had[i] = in.known.Days[line.Day].Objects
	}
	in.mu.Unlock()
	for i, line := range changed {
		if line.Month != "" {
			in.months[line.Month] = line.Tag
			months.add(in, line.Month)
			continue
		}
		if err := days.add(ctx, &day{in: in, day: line.Day, had: had[i]}, line.Entries-had[i]); err != nil {
			return err
		}
	}
	return nil
}

// daysToAsk are days, of one instrument or several, that are to be looked at together.
type daysToAsk struct {
	p    *run
	days []*day
	// entries is how many new ones their lists may have.
	entries int
}

// add adds a day with so many new entries.
func (d *daysToAsk) add(ctx context.Context, one *day, entries int) error {
	one.in.mu.Lock()
	one.in.open++
	one.in.mu.Unlock()
	d.days = append(d.days, one)
	d.entries += max(0, entries)
	if len(d.days) < daysAtOnce && d.entries < entriesAtOnce {
		return nil
	}
	return d.ask(ctx)
}

// ask passes them on.
func (d *daysToAsk) ask(ctx context.Context) error {
	if len(d.days) == 0 {
		return nil
	}
	select {
	case d.p.wanted <- d.days:
	case <-ctx.Done():
		return ctx.Err()
	}
	d.days, d.entries = nil, 0
	return nil
}

// monthsToAsk are months that changed, whose days are not known yet.
type monthsToAsk struct {
	p         *run
	questions []mirrorindex.DaysQuestion
	of        []*instrument
}

func (m *monthsToAsk) add(in *instrument, month string) {
	m.questions = append(m.questions, mirrorindex.DaysQuestion{Instrument: in.Instrument, Month: month})
	m.of = append(m.of, in)
}

func (m *monthsToAsk) ask(ctx context.Context, days *daysToAsk) error {
	for len(m.questions) > 0 {
		n := min(len(m.questions), instrumentsAtOnce)
		answers, err := m.p.Source.Days(ctx, m.questions[:n])
		if err != nil {
			return err
		}
		for i, lines := range answers {
			if lines[0].Gone { // since the list of months was sent: that it has no days means nothing
				m.p.noteGone(m.of[i])
				continue
			}
			m.p.unlistedDays(m.of[i], lines[1:], m.questions[i].Month)
			if err := m.p.days(ctx, m.of[i], lines[1:], nil, days); err != nil {
				return err
			}
		}
		m.questions, m.of = m.questions[n:], m.of[n:]
	}
	return nil
}

// day is one whose list may have changed.
type day struct {
	in  *instrument
	day wire.Day
	// had is how many of its objects were known to be here.
	had int
	// anew: its list was lost, so that its files may be here.
	anew bool

	tag   string
	lines []plan.Line

	mu sync.Mutex
	// open are the objects that are still to be fetched, and failed those that cannot be had. Again are those that are listed otherwise
	// than when the run asked: the next one looks at them.
	open, failed, again int
}

// noteOutcome notes what became of some objects of a day; true: nothing of it is open any more.
func (d *day) noteOutcome(held []int, failed, again int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, i := range held {
		d.lines[i].Held, d.lines[i].Lost = true, false
	}
	d.open -= len(held) + failed + again
	d.failed += failed
	d.again += again
	return d.open == 0
}
