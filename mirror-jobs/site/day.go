// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/https"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/push"
)

// day is one of an instrument on its way.
type day struct {
	in    *instrument
	day   wire.Day
	tag   string
	lines []mirrorindex.Entry
	// here is what was listed here before.
	here []*wire.Record
	// partial: lines are those alone that are new.
	partial bool
	// looked: here was compared with the store.
	looked bool
	plan.Guest
	// left are the objects that did not come, asked the changes that the archivist is asked for, held those that wait for the end of
	// a legal hold, and waits those that wait for the end of the run.
	left, asked, held, waits int
	// packed are objects that were lost here with their packs: they do not come again.
	packed int
	// missing are objects that were lost here and do not come again, since the other Site does not give them any more.
	missing int
	// again are the objects that are listed otherwise than when the run asked: the next one looks at them.
	again int
	// counted are the retractions and purges of it so far, with those that a forced run asks for; 0 if none is asked for.
	counted int
}

// pullDays pulls some days of an instrument that changed.
func (r *run) pullDays(ctx context.Context, in *instrument, names []wire.Day) error {
	if err := r.Pause(ctx); err != nil {
		return err
	}
	for len(names) > 0 {
		days, rest, err := r.compare(ctx, in, names)
		if err == nil {
			err = r.bring(ctx, in, days)
		}
		if err != nil {
			return err
		}
		names = rest
	}
	return nil
}

// bring does what is to be done about some days.
func (r *run) bring(ctx context.Context, in *instrument, days []*day) error {
	for _, d := range days {
		r.noteReused(d)
		r.unlisted(d)
		r.reverted(d)
		r.Progress.Compare(d.Same)
		for _, i := range d.Fetch {
			r.Progress.Owe(d.lines[i].Size)
		}
		r.withheld += d.Withheld
		if r.VerifyOnly {
			d.left += len(d.Fetch) + len(d.Changes) + len(d.Remove)
			r.owed += d.left
			r.logOwed(d)
		}
	}
	if !r.VerifyOnly {
		if err := r.fetch(ctx, days); err != nil {
			return err
		}
		for _, d := range days {
			if err := r.follow(ctx, d); err != nil {
				return err
			}
		}
	}
	err := r.confirmDays(ctx, days)
	if err == nil && !r.VerifyOnly {
		err = r.note(ctx, in, days)
	}
	if err != nil {
		return err
	}
	return r.settleDoubt(ctx, days) // once what follows from it is noted
}

// logOwed names what a run that only verifies finds owed.
func (r *run) logOwed(d *day) {
	var first string
	var why error
	if len(d.Fetch)+len(d.Changes)+len(d.Remove) == 0 {
		return
	} else if len(d.Fetch) > 0 {
		first = d.lines[d.Fetch[0]].Path
	} else {
		first, why = slices.Concat(d.Changes, d.Remove)[0].Record.ID, errDecided
	}
	r.owes(d.in.name, first, why)
	r.Logger.Warn("objects of a day are owed, among them this one", "instrument", d.in.name, "day", d.day, "object", first, "objects", d.left)
}

// errDecided: what the other Site decided of an object is not done here.
var errDecided = errors.New("the other Site retracted it, purged it or replaced it")

// compare finds out what is to be done about some days. Rest are those whose lists did not fit into memory beside those of the others.
func (r *run) compare(ctx context.Context, in *instrument, names []wire.Day) (days []*day, rest []wire.Day, err error) {
	policy := r.policyOf(in)
	var questions []mirrorindex.ListQuestion
	var here [][]*wire.Record
	var lost []map[string]bool
	var packed []int
	var looked []bool
	var unread []wire.Day
	for _, name := range names {
		listed, err := r.Catalog.Day(ctx, in.guest, name)
		if unreadable(err) {
			r.unread++
			unread = append(unread, name)
			r.Logger.Error("cannot read what is listed here of a day, and nothing of it is pulled: substorm archive rebuild recreates its manifests",
				"instrument", in.guest, "day", name, "error", err)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		var missed map[string]bool
		inPacks := 0
		looks := r.looksAt(in.name, name)
		if looks {
			if missed, inPacks, err = r.findLost(ctx, in, name, listed.Records); err != nil {
				return nil, nil, err
			}
		}
		here, lost, packed, looked = append(here, listed.Records), append(lost, missed), append(packed, inPacks), append(looked, looks)
		q := mirrorindex.ListQuestion{Instrument: in.name, Day: name}
		if have := plan.Have(listed.Records); have.Count > 0 && !r.anew && !looks {
			q.Have = &have
		}
		questions = append(questions, q)
	}
	if err := r.revokeConfirmed(ctx, in, unread); err != nil || len(questions) == 0 {
		return nil, nil, err
	}
	answers, err := r.Source.Lists(ctx, questions)
	if err != nil {
		return nil, nil, problemOf(err)
	}
	for i, a := range answers {
		d := &day{in: in, day: questions[i].Day, tag: a.Head.Tag, lines: a.Entries, partial: a.Head.More, here: here[i], packed: packed[i], looked: looked[i]}
		if a.Head.Gone { // since the list of days was sent: another run will know more
			r.withheld++
			r.unlooked = true
			continue
		}
		for _, u := range a.Untaken {
			r.log.Add(slog.LevelError, "objects are not mirrored", "instrument", in.name, "path", u.Path, "error", u.Err)
			r.owes(in.name, u.Path, u.Err)
		}
		d.left += len(a.Untaken)
		policy.Lost = lost[i]
		if d.Guest = policy.Day(a.Entries, here[i], r.now); a.Head.More {
			d.Same += len(here[i])
		}
		r.countMissing(d)
		days = append(days, d)
	}
	for _, q := range questions[len(answers):] {
		rest = append(rest, q.Day)
	}
	return days, rest, nil
}

// unreadable says whether an error is about the manifests of one day alone: they are damaged, or lost.
func unreadable(err error) bool {
	return errors.Is(err, wire.ErrMalformed) || errors.Is(err, wire.ErrNewerFormat) || errors.Is(err, objectstore.ErrNotFound)
}

// follow asks the archivist for what the other Site has retracted. Objects are here by then.
func (r *run) follow(ctx context.Context, d *day) error {
	for _, c := range d.Changes {
		if c.Action == wire.ActionRetract && r.isHeld(d.in) {
			d.held++
			continue
		}
		if err := r.ask(ctx, d, c); err != nil {
			return err
		}
		r.logAsked(d.in, c)
	}
	for _, i := range d.Supersede {
		e := &d.lines[i]
		origin := wire.Origin{Site: r.origin, ID: e.ID}
		record := &wire.Record{ID: origin.ObjectID(r.Site, d.in.guest, e.ReceivedAt, e.Digest), ReceivedAt: e.ReceivedAt}
		if err := r.ask(ctx, d, plan.Change{Action: wire.ActionSupersede, Record: record}); err != nil {
			return err
		}
	}
	return r.followRemovals(ctx, d)
}

// followRemovals postpones what the other Site has retracted or purged to the end of the run. A run with force asks for it now.
func (r *run) followRemovals(ctx context.Context, d *day) error {
	switch {
	case len(d.Remove) == 0:
	case r.isHeld(d.in):
		d.held += len(d.Remove)
		r.Logger.Warn("the Site is under legal hold: what the other Site has retracted or purged stays here until that ends", "instrument", d.in.guest, "day", d.day, "objects", d.held)
	case r.Force:
		d.counted = d.Gone + len(d.Remove)
		for _, c := range d.Remove {
			d.asked++
			if err := r.hide(ctx, d.in, c); err != nil {
				return err
			}
		}
	default:
		d.waits = len(d.Remove)
		r.removal.add(d)
	}
	return nil
}

// isHeld says whether an instrument is under legal hold: the archivist refuses retractions and purges.
func (r *run) isHeld(in *instrument) bool { return r.Registry().Instruments[in.guest].LegalHold }

// logAsked logs a change that the archivist is asked for.
func (r *run) logAsked(in *instrument, c plan.Change) {
	r.Logger.Info("asking the archivist to apply a decision of the other Site", "instrument", in.guest, "object", c.Record.ID, "action", c.Action, "reason", c.Reason)
}

// ask asks the archivist for one change. It may refuse: whether it is made, what is listed here tells the next run.
func (r *run) ask(ctx context.Context, d *day, c plan.Change) error {
	d.asked++
	return r.announcer.change(ctx, d.in.guest, c)
}

// note notes which days are here in full, and for which of them the archivist is asked for changes.
func (r *run) note(ctx context.Context, in *instrument, days []*day) error {
	months := map[string]map[string]noted{}
	for _, d := range days {
		r.owed += d.left
		r.asked += d.asked + d.held + d.waits + d.Later + d.again
		if r.part && d.counted == 0 || d.waits > 0 { // what waits is noted once it is asked for
			continue
		}
		entry := noted{asked: d.asked, counted: d.counted}
		if d.left+d.Withheld+d.asked+d.held+d.Later+d.again == 0 {
			entry.tag = d.tag
		}
		addNoted(months, d.day, entry)
	}
	return r.keepNoted(ctx, in, months)
}

// addNoted adds what a run knows of a day to that of its month.
func addNoted(months map[string]map[string]noted, day wire.Day, entry noted) {
	month := mirrorindex.MonthOf(day)
	if months[month] == nil {
		months[month] = map[string]noted{}
	}
	months[month][string(day)] = entry
}

// errOverdue: the archivist was asked for changes, and does not make them.
var errOverdue = errors.New("the archivist does not apply a decision of the other Site, and its log says why")

// keepNoted writes what the run knows of days of an instrument, by month and day.
func (r *run) keepNoted(ctx context.Context, in *instrument, months map[string]map[string]noted) error {
	for month, all := range months {
		overdue, err := r.state.note(ctx, in.name, month, all, r.now, r.part)
		if err != nil {
			return err
		}
		if overdue > 0 {
			r.Logger.Error("the archivist does not apply decisions of the other Site: its log says why (an object is not retracted)", "instrument", in.guest, "month", month, "objects", overdue)
		}
		if r.owed += overdue; overdue > 0 {
			r.owes(in.guest, month, errOverdue)
		}
	}
	return nil
}

// problemOf is an error of the other side as one with a reason.
func problemOf(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return &push.Problem{Reason: https.ReasonOf(err), Err: fmt.Errorf("the other side: %w", err)}
}
