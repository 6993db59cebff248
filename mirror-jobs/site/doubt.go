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
	// manifests could not be read. Each run looks at them until they are whole.
	Days map[string][]wire.Day `json:"days,omitempty"`
	// Whole: a run with --force began, or Days would have more than maxDoubted, and no run has looked at all since. The next one does.
	Whole bool `json:"whole,omitempty"`
}

// isMended reports whether all that was lost is here again.
func (s *comparedState) isMended() bool {
	return s.Lost && !s.Whole && len(s.Days) == 0 && s.Missing == 0 && s.Packed == 0
}

// doubt is what a run knows of what earlier runs found lost, and what it finds itself.
type doubt struct {
	// looks: the run looks into the store for all that it compares.
	looks bool
	// doubted: what the lists have is in doubt.
	doubted bool
	// inDoubt are the days that this run or one before it put in doubt. They are looked at, whatever their tags are.
	inDoubt map[string][]wire.Day
	// looked are the days that the run has compared with the store, or whose manifests it cannot read.
	looked map[instrumentDay]bool
	// unlooked: the other Site did not answer for an instrument or a day that the run was to look at.
	unlooked bool
	// overflow: there are more days in doubt than can be noted.
	overflow bool
	// lostUnlisted are objects that were lost of days which the other Site does not list any more.
	lostUnlisted int
}

type instrumentDay struct {
	instrument string
	day        wire.Day
}

// beginDoubt reads what is in doubt here, and notes that a forced run begins: one that ends before it has looked at all is made again.
func (r *run) beginDoubt(ctx context.Context) error {
	state, _, err := stream.Load[comparedState](ctx, r.state.cursors, r.state.key(comparedPart))
	if err != nil {
		return err
	}
	if state.isMended() && !r.part {
		// Days that came since were not confirmed. This is noted first: the run may end before it has confirmed them.
		r.state.root.Confirms, r.state.root.ETag = false, ""
		if err := r.state.keepRoot(ctx); err != nil {
			return err
		}
		state.Lost = false
		if err := r.changeCompared(ctx, func(s *comparedState) { s.Lost = s.Lost && !s.isMended() }); err != nil {
			return err
		}
	}
	r.doubted, r.inDoubt, r.looked = state.Lost, state.Days, map[instrumentDay]bool{}
	if r.inDoubt == nil {
		r.inDoubt = map[string][]wire.Day{}
	}
	r.looks = r.VerifyOnly || r.Force || state.Whole
	r.anew = r.anew || state.Whole
	if !r.looks { // else the run counts them itself
		r.missing, r.firstMissing, r.unrepairable = state.Missing, state.First, state.Packed
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

// looksAt reports whether the run looks into the store for a day.
func (r *run) looksAt(instrument string, day wire.Day) bool {
	return r.looks || r.isInDoubt(instrument, day)
}

func (r *run) isInDoubt(instrument string, day wire.Day) bool {
	return slices.Contains(r.inDoubt[instrument], day)
}

// isBounded reports whether the run looks at a part of each day alone.
func (r *run) isBounded() bool { return !r.From.IsZero() || !r.To.IsZero() }

// putInDoubt notes that a day is to be looked at again, before anything is fetched: the run may end before that.
func (r *run) putInDoubt(ctx context.Context, instrument string, day wire.Day) error {
	if r.isInDoubt(instrument, day) {
		return nil
	}
	r.inDoubt[instrument] = append(r.inDoubt[instrument], day)
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
	})
}

// clearDoubt takes a day out of doubt.
func (r *run) clearDoubt(ctx context.Context, instrument string, day wire.Day) error {
	remove := func(from map[string][]wire.Day) {
		if rest := slices.DeleteFunc(from[instrument], func(d wire.Day) bool { return d == day }); len(rest) > 0 {
			from[instrument] = rest
		} else {
			delete(from, instrument)
		}
	}
	remove(r.inDoubt)
	return r.changeCompared(ctx, func(s *comparedState) { remove(s.Days) })
}

// settleDoubt clears the days that the run has looked at in full, and that lack nothing which a run fetches again.
func (r *run) settleDoubt(ctx context.Context, days []*day) error {
	for _, d := range days {
		if !d.looked {
			continue
		}
		r.looked[instrumentDay{d.in.name, d.day}] = true
		switch {
		case !r.isInDoubt(d.in.name, d.day) || r.isBounded():
		case len(d.Again) > 0 && (r.VerifyOnly || d.left+d.again > 0):
		case d.missing+d.packed > 0 && !r.looks: // a run that looks at all counts them
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

// lookAtUnlisted looks at the days in doubt that the other Site does not list any more: no run brings back what is lost of them. They stay in
// doubt until it is restored.
func (r *run) lookAtUnlisted(ctx context.Context) error {
	if r.isBounded() || r.unlooked {
		return nil
	}
	for name, days := range maps.Clone(r.inDoubt) {
		for _, day := range slices.Clone(days) {
			if r.looked[instrumentDay{name, day}] {
				continue
			}
			if err := r.lookAtUnlistedDay(ctx, name, day); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) lookAtUnlistedDay(ctx context.Context, name string, day wire.Day) error {
	guest := wire.GuestName(r.origin, name)
	listed, err := r.Catalog.Day(ctx, guest, day)
	if unreadable(err) {
		r.unread++
		return nil
	}
	if err != nil {
		return err
	}
	lost, packed, err := r.lostOf(ctx, listed.Records)
	if err != nil {
		return err
	}
	if len(lost)+packed == 0 {
		return r.clearDoubt(ctx, name, day)
	}
	r.Logger.Error("the object store lost objects of a day that the other Site does not list any more, and no run fetches them: "+
		"substorm archive verify names them; restore their files in the bucket from a copy",
		"instrument", guest, "day", day, "objects", len(lost)+packed)
	r.lostUnlisted += len(lost) + packed
	r.firstMissing = cmp.Or(r.firstMissing, fmt.Sprintf("those of %s, %s", guest, day))
	return nil
}

// revokeConfirmed says to the other Site that it cannot rely on the copies of days whose manifests here cannot be read. They are looked at
// again, and confirmed once they can be.
func (r *run) revokeConfirmed(ctx context.Context, in *instrument, days []wire.Day) error {
	var lines []mirrorindex.ConfirmLine
	months := map[string]map[string]noted{}
	for _, day := range days {
		if err := r.putInDoubt(ctx, in.name, day); err != nil {
			return err
		}
		r.looked[instrumentDay{in.name, day}] = true
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
	if !r.looks {
		state, _, err := stream.Load[comparedState](ctx, r.state.cursors, r.state.key(comparedPart))
		return state.At, err
	}
	whole := !r.isBounded() && !r.unlooked
	err = r.changeCompared(ctx, func(s *comparedState) {
		s.Whole = s.Whole && !whole || r.overflow
		if whole { // a part does not see the rest
			s.Missing, s.First, s.Packed = r.missing, r.firstMissing, r.unrepairable
		} else {
			s.Missing, s.First, s.Packed = max(s.Missing, r.missing), cmp.Or(s.First, r.firstMissing), max(s.Packed, r.unrepairable)
		}
		remains := s.Missing+s.Packed+len(s.Days) > 0 || r.overflow
		switch {
		case remains && (r.lost || s.Missing+s.Packed > 0):
			s.Lost = true
		case whole && !remains && !r.unsent: // what was lost came back, and all of it is confirmed
			s.Lost = false
		}
		switch {
		case remains:
			s.At = time.Time{}
		case whole && r.owed == 0:
			s.At = r.now.UTC()
		}
		at = s.At
	})
	return at, err
}

// isCertain reports whether nothing here is in doubt: a run that found all of the lists has found all.
func (r *run) isCertain() bool { return (r.looks || !r.doubted) && len(r.inDoubt) == 0 }
