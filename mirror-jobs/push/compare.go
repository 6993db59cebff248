// SPDX-License-Identifier: Apache-2.0

package push

import (
	"context"
	"errors"
	"log/slog"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// comparison are copies that are compared together.
type comparison struct {
	files   []File
	records []*wire.Record
	of      []*comparedDay
	bytes   int64
	// paths of the files: two versions with one path are compared one behind the other.
	paths owners
}

// comparedDay is a day some of whose copies are compared.
type comparedDay struct {
	in    wire.InstrumentEntry
	day   wire.Day
	known seen
	// totals are what the partner has as far as is known, and missing of that what it turned out not to have.
	totals, missing wire.Totals
	differing       int
	open            int
	complete        bool
	// lost: the ledger does not say what the partner has confirmed.
	lost bool
	// cut: some of its copies are not compared.
	cut bool
}

// compareOlder compares a share of what the partner had confirmed before this run: each run another one. Copies that differ are brought again.
func (r *run) compareOlder(ctx context.Context) error {
	switch {
	case r.Force || r.Entry.Verify == wire.MirrorVerifyNone:
		return nil
	case !r.doubt.Since.IsZero():
		return r.compareDoubted(ctx)
	case r.Following || r.Entry.VerifyPercent <= 0:
		return nil
	}
	share, err := r.Book.Share(ctx)
	if err != nil {
		return err
	}
	share.Percent = r.Entry.VerifyPercent
	if err := r.compareAll(ctx, share); err != nil {
		return err
	}
	if r.From.IsZero() && r.To.IsZero() { // else others of the share are to be compared yet
		if err := r.Book.SetShare(ctx, share.Next()); err != nil {
			return err
		}
	}
	return r.compareRest(ctx)
}

// compareAll compares a share of the copies: those that were confirmed before this run, or with VerifyOnly all that the partner
// should have.
func (r *run) compareAll(ctx context.Context, share plan.Share) error {
	err := r.each(ctx, func(ctx context.Context, in wire.InstrumentEntry, day wire.Day, known seen) error {
		if !r.VerifyOnly && (known.Count == 0 || !r.doubt.Since.IsZero() && !r.doubts(known)) {
			return nil
		}
		return r.compareDay(ctx, in, day, known, share)
	})
	if err != nil {
		return err
	}
	return r.compare(ctx)
}

func (r *run) compareDay(ctx context.Context, in wire.InstrumentEntry, day wire.Day, known seen, share plan.Share) error {
	d, err := r.read(ctx, in, day, known)
	if err != nil {
		return err
	}
	c := &comparedDay{in: in, day: day, known: known, totals: d.plan.Totals}
	if !r.VerifyOnly && known.Tag != "" && d.plan.Confirmed && len(d.plan.Deliver) == 0 {
		has, err := r.Book.Mirrored(ctx, in.Instrument, day)
		if err != nil {
			return err
		}
		c.lost = !has.SameObjects(c.totals) || !has.SameSegments(c.totals)
	}
	compared := map[int]bool{}
	for i := range d.objects {
		o := &d.objects[i]
		if !r.policy.Gives(o) || !r.VerifyOnly && !r.confirmedBefore(o.Record, known) {
			continue
		}
		if !r.inside(o.Record) || !r.VerifyOnly && !share.Holds(o.Record.Digest) && r.sample.chosen >= plan.LeastCompared {
			c.cut = true
			continue
		}
		r.sample.chosen++
		f, err := r.file(d, o)
		if err == nil {
			err = r.compared.paths.clash(f)
		}
		if err != nil {
			c.cut = true
			r.countLacking(in, f, err)
			continue
		}
		if n := len(r.compared.files); n > 0 && (n >= r.files || r.compared.bytes+f.Size > r.bytes || r.compared.paths.have(f)) {
			if err := r.compare(ctx); err != nil {
				return err
			}
		}
		c.open++
		compared[i] = true
		r.compared.files, r.compared.records, r.compared.of = append(r.compared.files, f), append(r.compared.records, o.Record), append(r.compared.of, c)
		r.compared.bytes += f.Size
		r.compared.paths.add(f)
	}
	for _, i := range d.plan.Deliver {
		if !compared[i] {
			c.missing.AddCopy(d.objects[i].Record)
		}
	}
	c.complete = true
	if c.open == 0 {
		return r.noteDiffering(ctx, c)
	}
	return nil
}

// confirmedBefore says whether the partner confirmed an object before this run, which has verified what it moved.
func (r *run) confirmedBefore(record *wire.Record, known seen) bool {
	last := known.Last
	if known.Moved.Equal(r.now) {
		last = known.Before
	}
	return !record.ReceivedAt.After(last)
}

// compare compares what is in the comparison, and brings again what differs.
func (r *run) compare(ctx context.Context) error {
	c := r.compared
	r.compared = comparison{}
	if len(c.files) == 0 {
		return nil
	}
	if err := r.Pause(ctx); err != nil {
		return err
	}
	ended := make([]error, len(c.files))
	if err := r.verify(ctx, c.files, ended); err != nil {
		return err
	}
	if err := r.forgive(ctx, c.files, ended); err != nil {
		return err
	}
	differed := make([]bool, len(ended))
	for i, err := range ended {
		if differed[i] = err != nil; differed[i] {
			r.Progress.Owe(c.files[i].Size)
		}
	}
	var err error
	if !r.VerifyOnly {
		err = r.bringDiffering(ctx, c.files, ended)
	}
	for i, d := range c.of {
		d.open--
		r.sample.compared++
		if differed[i] {
			r.sample.differing++
		}
		switch {
		case !differed[i]:
			r.Progress.Compare(1)
			continue
		case ended[i] == nil:
			r.log.Add(slog.LevelWarn, "the partner lacked copies, or had other ones, and has them again", "instrument", d.in.Instrument, "path", c.files[i].Path)
		default:
			r.log.Add(slog.LevelError, "objects are not at the partner", "instrument", d.in.Instrument, "path", c.files[i].Path, "error", ended[i])
			r.owe(c.files[i].Path, ended[i])
			r.Progress.lack(c.files[i].Modified)
			d.differing++
			d.missing.AddCopy(c.records[i])
		}
		r.Progress.End(c.files[i].Size, ended[i] == nil)
	}
	seen := map[*comparedDay]bool{}
	for _, d := range c.of {
		if d.open == 0 && (d.complete || err != nil && d.differing > 0) && !seen[d] { // after an error none of its other copies is compared
			seen[d] = true
			err = errors.Join(err, r.noteDiffering(ctx, d))
		}
	}
	return err
}

// noteDiffering notes that a partner has less of a day than it had confirmed: the next run brings what it lacks. If it has all of
// it, and the ledger has lost that, or there was a doubt, it is noted there again.
func (r *run) noteDiffering(ctx context.Context, c *comparedDay) error {
	checked := r.doubts(c.known) && !c.cut && c.complete
	switch {
	case c.differing == 0 && checked:
		known := c.known.KnownDay
		known.Checked = r.now
		set, err := r.Book.SetConfirmed(ctx, c.in.Instrument, c.day, c.known.was, known, c.totals.MinusCopies(c.missing))
		r.unsettled = r.unsettled || !set
		return err
	case c.differing == 0 && c.lost:
		_, err := r.Book.SetConfirmed(ctx, c.in.Instrument, c.day, c.known.was, c.known.KnownDay, c.totals)
		return err
	case c.differing == 0 || c.known.Count == 0:
		return nil
	}
	has := c.totals
	if r.doubts(c.known) && !checked {
		has = wire.Totals{}
	}
	return r.setMissing(ctx, c.in, c.day, c.known, has, c.missing, c.differing)
}
