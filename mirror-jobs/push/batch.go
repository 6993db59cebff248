// SPDX-License-Identifier: Apache-2.0

package push

import (
	"context"
	"errors"
	"fmt"

	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// batch are files that are delivered together, and the days that they are of.
type batch struct {
	files []File
	of    []*pushed
	bytes int64
}

// add puts a file of a day into the batch, which is delivered before where it would be too
// large.
func (r *run) add(ctx context.Context, d *pushed, i int) error {
	f := d.files[i]
	if !r.VerifyOnly {
		r.Progress.Owe(f.Size)
	}
	if n := len(r.batch.files); n > 0 && (n >= r.files || r.batch.bytes+f.Size > r.bytes) {
		if err := r.flush(ctx); err != nil {
			return err
		}
	}
	d.open++
	r.batch.files, r.batch.of = append(r.batch.files, f), append(r.batch.of, d)
	r.batch.bytes += f.Size
	return nil
}

// flush delivers and verifies the batch, and notes the days of which nothing is open.
func (r *run) flush(ctx context.Context) error {
	b := r.batch
	r.batch = batch{}
	if len(b.files) == 0 {
		return nil
	}
	ended := make([]error, len(b.files))
	for i := range ended {
		ended[i] = errOpen
	}
	err := r.Pause(ctx)
	if err == nil {
		err = r.deliver(ctx, b.files, ended)
	}
	for i, d := range b.of {
		d.open--
		if ended[i] != nil {
			d.failed++
			r.owed++
			if !errors.Is(ended[i], errOpen) {
				r.Logger.Error("an object is not at the partner", "instrument", d.in.Instrument, "path", b.files[i].Path, "error", ended[i])
			}
		}
		r.Progress.ended(b.files[i].Size, ended[i] == nil, r.VerifyOnly)
	}
	seen := map[*pushed]bool{}
	for _, d := range b.of {
		if d.open == 0 && d.complete && !seen[d] {
			seen[d] = true
			err = errors.Join(err, r.note(ctx, d))
		}
	}
	return err
}

// errOpen: the run ended before it was known how a file ended.
var errOpen = errors.New("it was not delivered")

func (r *run) deliver(ctx context.Context, files []File, ended []error) error {
	if r.VerifyOnly {
		clear(ended)
		return r.verify(ctx, files, ended)
	}
	if err := r.bring(ctx, files, false, ended); err != nil {
		return err
	}
	if r.Entry.Verify == wire.MirrorVerifyNone {
		return nil
	}
	if err := r.verify(ctx, files, ended); err != nil {
		return err
	}
	return r.mend(ctx, files, ended)
}

func (r *run) bring(ctx context.Context, files []File, anew bool, ended []error) error {
	return r.Mover.Deliver(ctx, files, anew, func(i int, err error) {
		ended[i] = err
		if err != nil && (errors.Is(err, objectpath.ErrDamaged) || errors.Is(err, objectstore.ErrNotFound)) {
			ended[i] = fmt.Errorf("its bytes here are not those that were received: %w", err)
		}
	})
}

// differsError is what verification said of a file.
type differsError struct{ why string }

// Error implements error.
func (e *differsError) Error() string { return "verification: " + e.why }

// verify compares those files that ended without an error, as the partner's spec says.
func (r *run) verify(ctx context.Context, files []File, ended []error) error {
	there, of := chosen(files, ended, func(err error) bool { return err == nil })
	if len(there) == 0 {
		return nil
	}
	return r.Mover.Verify(ctx, there, r.Entry.Verify == wire.MirrorVerifyDigest, func(i int, why string) {
		ended[of[i]] = &differsError{why}
		r.Progress.differ()
	})
}

// mend brings again what differs at the partner, though it has its size and time, and
// compares it once more.
func (r *run) mend(ctx context.Context, files []File, ended []error) error {
	var differs *differsError
	wrong, of := chosen(files, ended, func(err error) bool { return errors.As(err, &differs) })
	if len(wrong) == 0 {
		return nil
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

// remove removes at the partner what was retracted or purged of a day.
func (r *run) remove(ctx context.Context, d *pushed) error {
	if n := len(d.retracted); n > 1 && !r.Force {
		if err := (plan.Policy{SafetyStop: r.Entry.SafetyStopPercent}).Allow(n, d.known.Count); err != nil {
			return &Problem{wire.MirrorReasonSafetyStop, fmt.Errorf("%s, %s: %w", d.in.Instrument, d.day, err)}
		}
	}
	var paths []string
	for _, o := range d.retracted {
		p, ok := r.pathOf(d.in, o.published, o.record)
		if !ok {
			continue
		}
		// Another object may have the path by now.
		is, err := r.Catalog.Find(ctx, d.in.Instrument, o.published)
		if err != nil && !errors.Is(err, catalog.ErrNotFound) {
			return err
		}
		if err == nil && is.State == wire.StateCurrent {
			continue
		}
		paths = append(paths, p)
	}
	if len(paths) > 0 {
		if err := r.Mover.Remove(ctx, paths); err != nil {
			return err
		}
		r.Progress.Remove(len(paths))
	}
	for _, o := range d.retracted {
		if o.record.State == wire.StatePurged {
			if err := r.Book.Confirm(ctx, d.in.Instrument, d.day, o.record.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// note writes what the partner has of a day by now. Where something failed that is what it
// confirmed before, and the next run tries all that came since.
func (r *run) note(ctx context.Context, d *pushed) error {
	if d.failed > 0 || r.VerifyOnly {
		return nil
	}
	if err := r.Book.SetMirrored(ctx, d.in.Instrument, d.day, d.totals); err != nil {
		return err
	}
	return r.Book.SetDay(ctx, d.in.Instrument, d.day, KnownDay{Tag: d.tag, Sum: d.sum, Objects: int(d.totals.Objects)})
}
