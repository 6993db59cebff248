// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"errors"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/mirror-jobs/folder"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// listers ask for lists at the same time: while one waits for an answer, another plans.
const listers = 4

// lists asks what days hold, and passes on what is missing.
func (p *run) lists(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for range listers {
		group.Go(func() error {
			for days := range p.wanted {
				if err := p.listsOf(ctx, days); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// listsOf does that for some days: for as many at once as their lists fit into memory.
func (p *run) listsOf(ctx context.Context, days []*day) error {
	for len(days) > 0 {
		n, err := p.ask(ctx, days)
		if err == nil {
			err = p.pass(ctx, days[:n])
		}
		if err != nil {
			return err
		}
		days = days[n:]
	}
	return nil
}

// pass passes on what is missing of days whose lists came.
func (p *run) pass(ctx context.Context, days []*day) error {
	var wanted []plan.Wanted
	var of []*day
	for _, d := range days {
		missing := p.missing(d)
		if len(missing) == 0 {
			p.markReady(d)
			continue
		}
		d.open = len(missing)
		p.markOpen(d)
		for _, i := range missing {
			p.Progress.owe(1, d.lines[i].Size)
		}
		wanted = append(wanted, plan.Wanted{Instrument: d.in.Instrument, Day: d.day, Lines: d.lines, Missing: missing})
		of = append(of, d)
	}
	bundles, large := plan.Batches(wanted)
	for _, b := range bundles {
		if err := send(ctx, p.bundles, batch{Batch: b, days: of}); err != nil {
			return err
		}
	}
	for _, part := range large {
		if err := send(ctx, p.large, batch{Batch: plan.Batch{Parts: []plan.Part{part}}, days: of}); err != nil {
			return err
		}
	}
	return nil
}

func send(ctx context.Context, to chan<- batch, b batch) error {
	select {
	case to <- b:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask fetches the lists of some days, and lays them over what is known. It returns of how many, from the first on, they came.
func (p *run) ask(ctx context.Context, days []*day) (n int, err error) {
	var questions []mirrorindex.ListQuestion
	var of []*day
	for _, d := range days {
		lines, err := p.Folder.Lines(d.in.Instrument, d.day)
		if errors.Is(err, folder.ErrUnreadable) {
			p.Logger.Warn("the list of a day is damaged; comparing the day again", "instrument", d.in.Instrument, "day", d.day, "error", err)
			lines, err = nil, nil
			d.anew = true
		}
		if err != nil {
			return 0, err
		}
		d.anew = d.anew || len(lines) == 0 && d.had > 0
		q := mirrorindex.ListQuestion{Instrument: d.in.Instrument, Day: d.day}
		if sum := plan.SumOf(lines); sum.Count > 0 && !p.compares {
			q.Have = &sum
		}
		d.lines = lines
		questions, of = append(questions, q), append(of, d)
	}
	answers, err := p.Source.Lists(ctx, questions)
	if err != nil {
		return 0, err
	}
	for i, a := range answers {
		d := of[i]
		if a.Head.Gone { // since the list of days was sent: another run will know more
			d.failed++
			continue
		}
		for _, u := range a.Untaken {
			p.log.Add(slog.LevelError, "objects are not mirrored", "instrument", d.in.Instrument, "path", u.Path, "error", u.Err)
		}
		d.failed += len(a.Untaken)
		p.Progress.fail(len(a.Untaken))
		if err := p.noteReplaced(d, a.Entries); err != nil {
			return 0, err
		}
		d.tag = a.Head.Tag
		var kept int
		d.lines, kept = p.Policy.Merge(d.lines, a.Entries, a.Head.More)
		p.noteLast(d)
		p.reverted(d, kept)
		p.unlistedDay(d)
	}
	return len(answers), nil
}

// missing returns the lines of a day that are to be fetched. Files that a killed run had not noted
// yet are there already, and so are files whose list was lost.
func (p *run) missing(d *day) []int {
	for i := range d.lines {
		l := &d.lines[i]
		leftover := l.Replaced && p.Policy.Removes(l)
		if p.compares || leftover { // files are compared, and not what was noted
			p.checkFile(d, l)
		}
		l.Replaced = l.Replaced && !leftover
	}
	if p.Folder.Interrupted() || p.compares || d.anew {
		for _, i := range (plan.Selection{}).Missing(d.lines) { // also what is not selected any more
			if l := &d.lines[i]; p.Folder.Has(d.in.Instrument, &l.Entry) {
				l.Held, l.Lost = true, false
			}
		}
	}
	return d.in.Missing(d.lines)
}
