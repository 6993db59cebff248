// SPDX-License-Identifier: Apache-2.0

package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// firstFiles are those of the first batch of a run; each has twice as many as the one before, as far as the mover takes them.
const firstFiles = 250

// batch are files that are delivered together, and the days that they are of.
type batch struct {
	files   []File
	records []*wire.Record
	of      []*pushed
	bytes   int64
	// paths of the files: of two versions with one path the later is delivered behind the other.
	paths owners
}

// add puts an object of a day into the batch, which is delivered before where it would be too
// large.
func (r *run) add(ctx context.Context, d *pushed, i int) error {
	o := &d.objects[i]
	if !r.inside(o.Record) {
		d.cut = true
		return nil
	}
	f, err := r.file(d, o)
	if err == nil {
		err = r.batch.paths.clash(f)
	}
	if err != nil {
		d.fail(o.Record, err)
		r.countLacking(d.in, f, err)
		return nil
	}
	if f.outdated != nil && d.known.Count > 0 && !d.plan.Confirmed {
		if is, err := f.outdated(ctx); err != nil || is {
			return err // the partner has the newer one already, or gets it
		}
	}
	if f.candidates, err = r.candidates(ctx, d, o); err != nil {
		return err
	}
	r.Progress.Owe(f.Size)
	if n := len(r.batch.files); n > 0 && (n >= r.batchFiles || r.batch.bytes+f.Size > r.bytes || r.batch.paths.have(f)) {
		if err := r.flush(ctx); err != nil {
			return err
		}
	}
	d.open++
	r.batch.files, r.batch.records, r.batch.of = append(r.batch.files, f), append(r.batch.records, o.Record), append(r.batch.of, d)
	r.batch.bytes += f.Size
	r.batch.paths.add(f)
	return nil
}

// countLacking counts an object as owed that cannot be brought, and is not tried.
func (r *run) countLacking(in wire.InstrumentEntry, f File, err error) {
	r.log.Add(slog.LevelError, "objects are not at the partner", "instrument", in.Instrument, "path", f.Path, "error", err)
	r.Progress.Owe(f.Size)
	r.Progress.End(f.Size, false)
	r.Progress.lack(f.Modified)
	r.owe(f.Path, err)
}

// owners are the objects that paths belong to.
type owners map[string]string

func (o *owners) add(f File) {
	if *o == nil {
		*o = owners{}
	}
	(*o)[f.Path] = f.owner
}

func (o owners) have(f File) bool { return o[f.Path] != "" }

// clash says that a path belongs to another object: then neither overwrites the other.
func (o owners) clash(f File) error {
	if owner := o[f.Path]; owner != "" && owner != f.owner {
		return &Problem{Reason: wire.MirrorReasonInvalidTemplate, Err: fmt.Errorf(
			"%q at the partner is the path of two objects, %s and %s: change spec.layout.template of the MirrorPartner so that each has its own", f.Path, owner, f.owner)}
	}
	return nil
}

// flush delivers and verifies the batch, and notes the days with nothing open.
func (r *run) flush(ctx context.Context) error {
	b := r.batch
	r.batch = batch{}
	if len(b.files) == 0 {
		return nil
	}
	r.batchFiles = min(2*r.batchFiles, r.files)
	ended := make([]error, len(b.files))
	for i := range ended {
		ended[i] = errOpen
		b.files[i].Moving = r.Progress.Begin(b.files[i].Size)
	}
	err := r.Pause(ctx)
	if err == nil {
		err = errors.Join(r.deliver(ctx, b.files, ended), r.clear(ctx, b, ended))
	}
	for i, d := range b.of {
		d.open--
		if ended[i] != nil {
			d.fail(b.records[i], ended[i])
			r.owe(b.files[i].Path, ended[i])
			r.Progress.lack(b.files[i].Modified)
			if !errors.Is(ended[i], errOpen) {
				r.log.Add(slog.LevelError, "objects are not at the partner", "instrument", d.in.Instrument, "path", b.files[i].Path, "error", ended[i])
			}
		}
		b.files[i].Moving.End(ended[i] == nil)
	}
	seen := map[*pushed]bool{}
	for _, d := range b.of {
		switch {
		case d.open > 0 || seen[d]:
			continue
		case d.complete:
			err = errors.Join(err, r.finish(ctx, d, err))
		case err != nil: // none of its other objects is brought
			err = errors.Join(err, r.noteLost(ctx, d))
		default:
			continue
		}
		seen[d] = true
	}
	return err
}

// fail counts an object that the partner did not get.
func (d *pushed) fail(record *wire.Record, err error) {
	d.failed++
	d.missing.AddCopy(record)
	if d.known.Count > 0 && !errors.Is(err, errOpen) && !record.ReceivedAt.After(d.known.Last) {
		d.lost++
	}
}

// noteLost notes what the partner has of a day with objects that it lacks: in the ledger, and if it had confirmed them, in the book.
func (r *run) noteLost(ctx context.Context, d *pushed) error {
	has, known := d.plan.Totals, !(r.doubts(d.known) && d.plan.Confirmed || !d.complete || d.cut)
	switch {
	case d.lost > 0 && !known:
		return r.setMissing(ctx, d.in, d.day, d.known, wire.Totals{}, d.missing, d.lost)
	case d.lost > 0:
		return r.setMissing(ctx, d.in, d.day, d.known, has, d.missing, d.lost)
	case d.failed > 0 && known:
		return r.Book.SetMissing(ctx, d.in.Instrument, d.day, d.known.was, has.MinusCopies(d.missing))
	default:
		return nil
	}
}

// finish removes what must go of a day that was delivered in full, and notes it. After an error what must go stays.
func (r *run) finish(ctx context.Context, d *pushed, err error) error {
	if len(d.plan.Remove) > 0 {
		if err != nil {
			return r.noteLost(ctx, d)
		}
		if err := r.remove(ctx, d); err != nil {
			return err
		}
	}
	return r.note(ctx, d)
}

// errOpen: the run ended before it was known how a file ended.
var errOpen = errors.New("it was not delivered")

// deliver brings files and verifies them. It is not known how a file ended that was acknowledged and not verified.
func (r *run) deliver(ctx context.Context, files []File, ended []error) error {
	if err := r.setAside(ctx, files); err != nil {
		return err
	}
	err := r.bring(ctx, files, false, ended)
	if r.Entry.Verify == wire.MirrorVerifyNone {
		return err
	}
	var p *Problem
	if err != nil && !(errors.As(err, &p) && p.Answered) {
		reopen(ended)
		return err
	}
	if err := errors.Join(err, r.verify(ctx, files, ended)); err != nil {
		return err
	}
	return r.bringDiffering(ctx, files, ended)
}

// reopen says that it is not known how those files ended that the partner acknowledged.
func reopen(ended []error) {
	for i, err := range ended {
		if err == nil {
			ended[i] = errOpen
		}
	}
}

func (r *run) bring(ctx context.Context, files []File, anew bool, ended []error) error {
	return r.Mover.Deliver(ctx, files, anew, func(i int, err error) {
		ended[i] = err
		if err != nil && (errors.Is(err, objectpath.ErrDamaged) || errors.Is(err, objectstore.ErrNotFound)) {
			ended[i] = &Problem{Reason: wire.MirrorReasonStore, Err: fmt.Errorf("its bytes here are not those that were received: %w", err)}
		}
		switch {
		case errors.Is(err, ErrThere):
			ended[i] = nil
			files[i].Moving.There()
		case errors.Is(err, ErrAside):
			ended[i] = nil
			r.log.Add(slog.LevelWarn, "renamed copies of expired objects at the partner, as the names of these objects are used again", "path", files[i].Path, "suffix", files[i].Aside)
		}
	})
}

// differsError is what verification said of a file.
type differsError struct{ why string }

// Error implements error.
func (e *differsError) Error() string { return "verification: " + e.why }

// verify compares those files that ended without an error, as the partner's spec says. After an error it is not known how those ended in
// which it found no difference.
func (r *run) verify(ctx context.Context, files []File, ended []error) error {
	there, of := chosen(files, ended, func(err error) bool { return err == nil })
	if len(there) == 0 {
		return nil
	}
	err := r.Mover.Verify(ctx, there, r.Entry.Verify == wire.MirrorVerifyDigest, func(i int, why string) {
		ended[of[i]] = &differsError{why}
		r.Progress.differ()
	})
	if err != nil {
		reopen(ended)
	}
	return err
}

// forgive drops what verification said of files whose paths are those of newer versions by now.
func (r *run) forgive(ctx context.Context, files []File, ended []error) error {
	var differs *differsError
	for i, err := range ended {
		if f := files[i]; errors.As(err, &differs) && f.outdated != nil {
			is, err := f.outdated(ctx)
			if err != nil {
				return err
			}
			if is {
				ended[i] = nil
			}
		}
	}
	return nil
}

// bringDiffering brings again what differs at the partner, though it has its size and time, and
// compares it once more.
func (r *run) bringDiffering(ctx context.Context, files []File, ended []error) error {
	if err := r.forgive(ctx, files, ended); err != nil {
		return err
	}
	var differs *differsError
	wrong, of := chosen(files, ended, func(err error) bool { return errors.As(err, &differs) })
	if len(wrong) == 0 {
		return nil
	}
	for i := range wrong {
		wrong[i].Moving.Anew()
	}
	again := make([]error, len(wrong))
	err := r.bring(ctx, wrong, true, again)
	if err == nil {
		err = r.verify(ctx, wrong, again)
	}
	if err != nil {
		return err // as they were
	}
	for n, i := range of {
		ended[i] = again[n]
	}
	return nil
}

// chosen are the files that ended in some way, and their indexes.
func chosen(files []File, ended []error, is func(error) bool) (some []File, of []int) {
	for i, err := range ended {
		if is(err) {
			some, of = append(some, files[i]), append(of, i)
		}
	}
	return some, of
}

// note writes what the partner has of a day by now. If something failed, that is what it confirmed
// before, and the next run tries all that came since.
func (r *run) note(ctx context.Context, d *pushed) error {
	if d.failed > 0 || d.cut {
		return r.noteLost(ctx, d)
	}
	known := KnownDay{Tag: d.tag, Place: d.here.Name(), PushKnown: d.plan.Known, Moved: r.now, Checked: r.now, Left: d.left}
	if d.plan.Confirmed {
		known.Before, known.Checked = d.known.Last, d.known.Checked
	}
	if d.stays { // the next run looks again
		known.Tag, known.Changed, known.Objects = "", d.known.Changed, max(known.Objects, d.known.Objects)
	}
	if d.stays && len(d.plan.Deliver) == 0 || d.plan.Confirmed && r.doubts(d.known) {
		_, err := r.Book.SetDay(ctx, d.in.Instrument, d.day, d.known.was, known) // the ledger has the copies that stay, and is written once those in doubt are compared
		return err
	}
	set, err := r.Book.SetConfirmed(ctx, d.in.Instrument, d.day, d.known.was, known, d.plan.Totals)
	if err != nil || set {
		return err
	}
	month, err := r.Book.Month(ctx, d.in.Instrument, mirrorindex.MonthOf(d.day))
	if err != nil {
		return err
	}
	listed := month.Days[d.day]
	if !(KnownDay{Tag: listed.Tag, Place: listed.Place, PushKnown: listed.PushKnown}).same(KnownDay{Tag: known.Tag, Place: known.Place, PushKnown: known.PushKnown}) {
		r.owe(d.in.Instrument+" "+string(d.day), errOther)
	}
	return nil
}

// errOther: another run of the partner noted something else of a day.
var errOther = &Problem{Reason: wire.MirrorReasonDigestMismatch, Err: errors.New("another run noted meanwhile that the partner has less, or other objects: the next run looks again")}
