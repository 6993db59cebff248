// SPDX-License-Identifier: Apache-2.0

package push

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// Doubt says why it is not certain that a partner has what it confirmed. While there is a doubt, every run compares the days that no run has
// found whole since, and where it cannot, the ledger does not say that the partner has them.
type Doubt struct {
	Since time.Time `json:"since,omitzero"`
	Why   string    `json:"why,omitempty"`
}

// beginDoubt reads what doubt there is. A run with force begins one: a run that fails, or is killed, has not compared all.
func (r *run) beginDoubt(ctx context.Context) (err error) {
	if r.doubt, err = r.Book.Doubt(ctx); err != nil || !r.Force {
		return err
	}
	r.doubtedBefore = !r.doubt.Since.IsZero()
	return r.setDoubt(ctx, "a run with --force has not compared all")
}

// setDoubt notes a doubt in what the partner confirmed before this run.
func (r *run) setDoubt(ctx context.Context, why string) error {
	r.doubt = Doubt{Since: r.now, Why: why}
	return r.Book.SetDoubt(ctx, r.doubt)
}

// endDoubt ends a doubt once a run has looked at all copies. After an error what is still in doubt is not confirmed any more.
func (r *run) endDoubt(ctx context.Context, err error) error {
	switch part := !r.From.IsZero() || !r.To.IsZero(); {
	case r.doubt.Since.IsZero() || ctx.Err() != nil:
		return err
	case err != nil:
		r.Logger.Warn("copies that the partner confirmed before could not be compared, and are not confirmed any more", "why", r.doubt.Why, "since", r.doubt.Since)
		return errors.Join(err, r.each(ctx, func(ctx context.Context, in wire.InstrumentEntry, day wire.Day, known seen) error {
			if !r.doubts(known) {
				return nil
			}
			return r.Book.SetUnverified(ctx, in.Instrument, day)
		}))
	case part && (!r.Force || r.doubtedBefore) || r.unsettled:
		return nil // the next run compares the rest
	default:
		return r.Book.SetDoubt(ctx, Doubt{})
	}
}

// doubts says whether it is not certain that the partner has what it confirmed of a day.
func (r *run) doubts(known seen) bool {
	return !r.doubt.Since.IsZero() && known.Count > 0 && known.Checked.Before(r.doubt.Since)
}

// isBroughtAnew says whether everything of a day is brought again: with force, and if there is a doubt and nothing is ever compared.
func (r *run) isBroughtAnew(known seen) bool {
	return r.Force || r.Entry.Verify == wire.MirrorVerifyNone && r.doubts(known)
}

// compareDoubted compares all copies of the days that are in doubt.
func (r *run) compareDoubted(ctx context.Context) error {
	r.Logger.Warn("all copies that the partner confirmed before are compared", "why", r.doubt.Why, "since", r.doubt.Since)
	if err := r.compareKept(ctx); err != nil {
		return err
	}
	return r.compareAll(ctx, plan.Share{Percent: 100})
}

// compareRest compares all copies where those that were compared give a reason to.
func (r *run) compareRest(ctx context.Context) error {
	s := r.sample
	if !plan.Doubtful(s.compared, s.differing) {
		return nil
	}
	if err := r.setDoubt(ctx, fmt.Sprintf("of %d copies that were compared %d are not at the partner as they should be", s.compared, s.differing)); err != nil {
		return err
	}
	return r.compareDoubted(ctx)
}

// setMissing notes that a partner lacks some of the copies of a day that it had confirmed: the next run brings the day again.
func (r *run) setMissing(ctx context.Context, in wire.InstrumentEntry, day wire.Day, known seen, has, missing wire.Totals, copies int) error {
	next := KnownDay{Place: placeOf(&r.Entry, in).Name(), Begun: true, Left: known.Left}
	next.Objects = max(0, known.Objects-copies)
	return r.Book.SetMissing(ctx, in.Instrument, day, next, has.MinusCopies(missing))
}
