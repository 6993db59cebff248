// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// instruments pulls what changed of some.
func (r *run) instruments(ctx context.Context, lines []mirrorindex.RootLine, at time.Time) error {
	var questions []mirrorindex.DaysQuestion
	for _, line := range lines {
		questions = append(questions, mirrorindex.DaysQuestion{Instrument: line.Instrument})
	}
	answers, err := r.Source.Days(ctx, questions)
	if err != nil {
		return problemOf(err)
	}
	for i, answer := range answers {
		if answer[0].Gone { // since the root was read: the next run counts it among those that are missing
			r.differs(lines[i].Instrument, true)
			r.unlooked = true
			continue
		}
		if err := r.instrument(ctx, lines[i], answer, at); err != nil {
			return err
		}
	}
	return nil
}

// instrument pulls what changed of one.
func (r *run) instrument(ctx context.Context, line mirrorindex.RootLine, answer []mirrorindex.DaysLine, at time.Time) error {
	if !r.VerifyOnly {
		if err := r.announcer.guest(ctx, answer[0], at); err != nil {
			return err
		}
	}
	in := &instrument{name: line.Instrument, guest: wire.GuestName(r.origin, line.Instrument), access: answer[0].Access.InForce(), Selection: r.policy.ForInstrument(line.Instrument)}
	if err := r.vanishedDays(ctx, in, answer[1:], ""); err != nil {
		return err
	}
	before := r.left()
	months, err := r.days(ctx, in, answer[1:])
	if err != nil {
		return err
	}
	for month, tag := range months {
		if err := r.month(ctx, in, month, tag); err != nil {
			return err
		}
	}
	switch _, pulled := r.state.root.Instruments[line.Instrument]; {
	case r.left() == before:
		r.state.root.Instruments[line.Instrument] = line.Tag
	case pulled: // a forced run may know less of it than the one before
		r.state.root.Instruments[line.Instrument] = ""
	}
	return nil
}

// instrument is one of the other Site.
type instrument struct {
	name, guest string
	access      wire.AccessEntry
	plan.Selection
}

// hasGuest says whether objects of an instrument of the other Site may be here, also where it is not selected any more, or where the registry lost it.
func (r *run) hasGuest(name string) bool {
	_, declared := r.Registry().Instruments[wire.GuestName(r.origin, name)]
	_, pulled := r.state.root.Instruments[name]
	return declared || pulled
}

// policyOf is the policy for an instrument.
func (r *run) policyOf(in *instrument) plan.GuestPolicy {
	policy := r.policy
	policy.Selection = in.Selection
	if !r.Entry.Selection.Embargoed {
		policy.Embargo = in.access.Embargo()
	}
	return policy
}

// month pulls what changed of an instrument's days of one.
func (r *run) month(ctx context.Context, in *instrument, month, tag string) error {
	answers, err := r.Source.Days(ctx, []mirrorindex.DaysQuestion{{Instrument: in.name, Month: month}})
	if err != nil {
		return problemOf(err)
	}
	if answers[0][0].Gone { // since the list of months was sent: another run will know more
		r.withheld++
		r.unlooked = true
		return nil
	}
	if err := r.vanishedDays(ctx, in, answers[0][1:], month); err != nil {
		return err
	}
	before := r.left()
	if _, err := r.days(ctx, in, answers[0][1:]); err != nil || r.part {
		return err
	}
	part := monthsPart(in.name)
	all, err := r.state.tagsOf(ctx, part)
	if err != nil {
		return err
	}
	if all.Tags[month] = tag; r.left() > before {
		delete(all.Tags, month)
	}
	return r.state.setTags(ctx, part, all)
}

// addHeld adds how many objects are here of each day, where some days are not selected: what is here of these is retracted and purged, too.
func (r *run) addHeld(ctx context.Context, in *instrument, known *plan.Known) error {
	if in.SelectsAll() || r.isBounded() {
		return nil
	}
	days, err := r.Catalog.Days(ctx, in.guest)
	if unreadable(err) { // each day that is looked at says so
		return nil
	}
	if err != nil {
		return err
	}
	if known.Days == nil {
		known.Days = map[wire.Day]plan.KnownDay{}
	}
	for _, d := range days {
		entry := known.Days[d.Day]
		entry.Objects = d.Entries
		known.Days[d.Day] = entry
	}
	return nil
}

// days pulls the days of an answer that changed, and returns the months that did, with their tags.
func (r *run) days(ctx context.Context, in *instrument, lines []mirrorindex.DaysLine) (months map[string]string, err error) {
	known := plan.Known{}
	if !r.anew && !r.sweeps {
		if known, err = r.state.known(ctx, in.name, lines); err != nil {
			return nil, err
		}
	}
	for _, day := range r.inDoubt[in.name] {
		if known.Days != nil {
			known.ForgetDay(day)
		}
	}
	if err := r.addHeld(ctx, in, &known); err != nil {
		return nil, err
	}
	months = map[string]string{}
	var days []wire.Day
	for _, line := range in.Changed(lines, known) {
		if line.Month != "" {
			months[line.Month] = line.Tag
		} else {
			days = append(days, line.Day)
		}
	}
	for some := range slices.Chunk(days, daysAtOnce) {
		if err := r.pullDays(ctx, in, some); err != nil {
			return nil, err
		}
	}
	return months, nil
}
