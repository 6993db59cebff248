// SPDX-License-Identifier: Apache-2.0

package site

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// comparedPart is the part of a partner's cursors that says when all that is here was last compared, and what is in doubt since.
const comparedPart = "pull-compared"

// maxDoubted bounds the days that a comparedState names.
const maxDoubted = 1000

// comparedState is what runs found that looked into the object store here. A doubt stays until a run has looked again:
// the lists alone, by which other runs go, do not say what was lost.
type comparedState struct {
	// At is when a run last found all here that is to be, by what the store has.
	At time.Time `json:"at,omitzero"`
	// Lost: the store had lost some when a run last looked. Until all of it is here again, no run confirms what it did not look for.
	Lost bool `json:"lost,omitempty"`
	// Missing are those of them that no run fetches again, and First names one.
	Missing int    `json:"missing,omitempty"`
	First   string `json:"first,omitempty"`
	// Packed are those that were lost with their packs.
	Packed int `json:"packed,omitempty"`
	// Days, by the instrument's name at the other Site, are those of which objects are lost that the other Site gives again, and those whose
	// manifests could not be read. The next run looks at them.
	Days map[string][]wire.Day `json:"days,omitempty"`
	// Whole: a run with --force began, or Days would have more than maxDoubted, and no run has looked at all since. The next one does.
	Whole bool `json:"whole,omitempty"`
}

// isMended says whether all that was lost is here again.
func (s *comparedState) isMended() bool {
	return s.Lost && !s.Whole && len(s.Days) == 0 && s.Missing == 0 && s.Packed == 0
}

// doubt is what a run knows of what earlier runs found lost.
type doubt struct {
	// looks: the run looks into the store for all that it compares.
	looks bool
	// doubted: what the lists have is in doubt.
	doubted bool
	// inDoubt are the days that are looked at again, whatever their tags are.
	inDoubt map[string][]wire.Day
	// settled are those of them that the run has looked at, as name and day, and overflow says that there are more than it can note.
	settled  map[instrumentDay]bool
	overflow bool
}

type instrumentDay struct {
	instrument string
	day        wire.Day
}

// beginDoubt reads what is in doubt here, and notes that a forced run begins: one that ends before it has looked at all is made again.
func (r *run) beginDoubt(ctx context.Context) error {
	is, _, err := stream.Load[comparedState](ctx, r.state.cursors, r.state.key(comparedPart))
	if err != nil {
		return err
	}
	if is.isMended() && !r.part {
		is.Lost = false
		r.state.root.Confirms, r.state.root.ETag = false, "" // what came since was not confirmed
		if err := r.changeCompared(ctx, func(s *comparedState) { s.Lost = s.Lost && !s.isMended() }); err != nil {
			return err
		}
	}
	r.doubted, r.inDoubt, r.settled = is.Lost, is.Days, map[instrumentDay]bool{}
	r.looks = r.VerifyOnly || r.Force || is.Whole
	r.anew = r.anew || is.Whole
	if !r.looks { // else the run counts them itself
		r.missing, r.firstMissing, r.unrepairable = is.Missing, is.First, is.Packed
	}
	if r.Force && !r.part {
		return r.changeCompared(ctx, func(s *comparedState) { s.Whole = true })
	}
	return nil
}

// changeCompared changes the comparedState, which another run may change at the same time.
func (r *run) changeCompared(ctx context.Context, f func(*comparedState)) error {
	return change(ctx, r.state, comparedPart, f)
}

// looksAt says whether the run looks into the store for a day.
func (r *run) looksAt(instrument string, day wire.Day) bool {
	return r.looks || r.isInDoubt(instrument, day)
}

func (r *run) isInDoubt(instrument string, day wire.Day) bool {
	return slices.Contains(r.inDoubt[instrument], day)
}

// putInDoubt notes that a day is to be looked at again, before anything is fetched: the run may end before that.
func (r *run) putInDoubt(ctx context.Context, instrument string, day wire.Day) error {
	if r.isInDoubt(instrument, day) {
		return nil
	}
	return r.changeCompared(ctx, func(s *comparedState) {
		count := 0
		for _, days := range s.Days {
			count += len(days)
		}
		switch {
		case slices.Contains(s.Days[instrument], day):
		case count >= maxDoubted:
			s.Whole, r.overflow = true, true
		default:
			if s.Days == nil {
				s.Days = map[string][]wire.Day{}
			}
			s.Days[instrument] = append(s.Days[instrument], day)
		}
		r.inDoubt = s.Days
	})
}

// clearDoubt takes a day out of doubt.
func (r *run) clearDoubt(ctx context.Context, instrument string, day wire.Day) error {
	if !r.isInDoubt(instrument, day) {
		return nil
	}
	return r.changeCompared(ctx, func(s *comparedState) {
		if rest := slices.DeleteFunc(s.Days[instrument], func(d wire.Day) bool { return d == day }); len(rest) > 0 {
			s.Days[instrument] = rest
		} else {
			delete(s.Days, instrument)
		}
		r.inDoubt = s.Days
	})
}

// settleDoubt clears the days of which the run looked for everything, and that lack nothing which a run fetches again.
func (r *run) settleDoubt(ctx context.Context, days []*day) error {
	for _, d := range days {
		r.settled[instrumentDay{d.in.name, d.day}] = true
		switch {
		case !r.isInDoubt(d.in.name, d.day) || !r.From.IsZero() || !r.To.IsZero():
		case len(d.Again) > 0 && (r.VerifyOnly || d.left+d.again > 0):
		case d.missing > 0 && !r.looks: // counted by no run yet
			if err := r.changeCompared(ctx, func(s *comparedState) { s.Whole = true }); err != nil {
				return err
			}
		default:
			if err := r.clearDoubt(ctx, d.in.name, d.day); err != nil {
				return err
			}
		}
	}
	return nil
}

// loseUnlisted counts the days in doubt that the other Site does not list any more as lost: no run brings them back.
func (r *run) loseUnlisted(ctx context.Context) error {
	if r.part || r.left() > 0 {
		return nil
	}
	for name, days := range maps.Clone(r.inDoubt) {
		for _, day := range slices.Clone(days) {
			if r.settled[instrumentDay{name, day}] {
				continue
			}
			guest := wire.GuestName(r.origin, name)
			r.Logger.Error("the object store lost objects of a day that the other Site does not list any more, and no run fetches them: "+
				"substorm archive verify names them; restore their files in the bucket from a copy",
				"instrument", guest, "day", day)
			r.missing++
			r.firstMissing = cmp.Or(r.firstMissing, fmt.Sprintf("those of %s, %s", guest, day))
			if err := r.changeCompared(ctx, func(s *comparedState) {
				s.Lost, s.At, s.Missing, s.First = true, time.Time{}, r.missing, r.firstMissing
			}); err != nil {
				return err
			}
			if err := r.clearDoubt(ctx, name, day); err != nil {
				return err
			}
		}
	}
	return nil
}

// revokeConfirmed says to the other Site that it cannot rely on the copies of days whose manifests here cannot be read. They are looked at again,
// and confirmed once they can be.
func (r *run) revokeConfirmed(ctx context.Context, in *instrument, days []wire.Day) error {
	var lines []mirrorindex.ConfirmLine
	months := map[string]map[string]noted{}
	for _, day := range days {
		if err := r.putInDoubt(ctx, in.name, day); err != nil {
			return err
		}
		r.settled[instrumentDay{in.name, day}] = true
		lines = append(lines, mirrorindex.ConfirmLine{Instrument: in.name, Day: day})
		addNoted(months, day, noted{})
	}
	if len(lines) > 0 && r.awaited {
		if _, err := r.send(ctx, lines); err != nil {
			return err
		}
	}
	if r.part {
		return nil
	}
	return r.keepNoted(ctx, in, months)
}

// compared returns when a run last compared all that is here, this one included.
func (r *run) compared(ctx context.Context) (at time.Time, err error) {
	whole := r.From.IsZero() && r.To.IsZero()
	if !r.looks {
		is, _, err := stream.Load[comparedState](ctx, r.state.cursors, r.state.key(comparedPart))
		return is.At, err
	}
	err = r.changeCompared(ctx, func(is *comparedState) {
		is.Whole = is.Whole && !whole || r.overflow
		switch {
		case whole && r.owed+r.unread+r.unrepairable+r.missing == 0:
			*is = comparedState{At: r.now.UTC()} // what was lost came back
		case r.lost, r.unrepairable > 0:
			is.Lost, is.At = true, time.Time{}
			if whole || r.missing > is.Missing { // a part does not see the rest
				is.Missing, is.First = r.missing, r.firstMissing
			}
			if whole || r.unrepairable > is.Packed {
				is.Packed = r.unrepairable
			}
		case r.unread > 0:
			is.At = time.Time{}
		}
		at = is.At
	})
	return at, err
}

// isCertain says whether nothing here is in doubt: a run that found all of the lists has found all.
func (r *run) isCertain() bool { return r.looks || !r.doubted && len(r.inDoubt) == 0 }
