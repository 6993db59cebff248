// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// An instrument that stands here and that the other Site does not offer any more is closed to this mirror, or absent: it was deleted
// there, or the Site was installed again. A run asks the other Site, by name, which of the two it is. An instrument that is closed
// there is closed here; one that is absent keeps the access that it had last. If more than a share is missing at once, neither is done
// until a run that is forced accepts it.

// offeredIn says which instruments a root lists.
func offeredIn(root mirrorindex.Root) func(name string) bool {
	listed := map[string]bool{}
	for _, line := range root.Instruments {
		listed[line.Instrument] = true
	}
	return func(name string) bool { return listed[name] }
}

// endUnchanged is a run that finds the root as the last one left it: only what was absent then may be closed by now.
func (r *run) endUnchanged(ctx context.Context) error {
	if !slices.Contains(slices.Collect(maps.Values(r.state.root.Missing)), missingAbsent) {
		if err := r.keepClock(ctx); err != nil {
			return err
		}
		if err := r.confirmRun(ctx); err != nil {
			return err
		}
		return r.endError()
	}
	err := r.findMissing(ctx, func(name string) bool { return r.state.root.Missing[name] == "" }, r.now)
	if err == nil {
		err = r.lookAgain(ctx)
	}
	if err != nil {
		return err
	}
	etag := r.state.root.ETag
	if r.left() > 0 || r.vanished != nil {
		etag = ""
	}
	if err := r.keep(ctx, etag); err != nil {
		return err
	}
	if err := r.confirmRun(ctx); err != nil {
		return err
	}
	return r.endError()
}

// findMissing finds the instruments that stand here and that the other Site does not offer, and acts upon those that are new, if
// they are not too many.
func (r *run) findMissing(ctx context.Context, offered func(name string) bool, at time.Time) error {
	if r.part {
		return nil
	}
	held, unknown := 0, []string(nil)
	for guest := range r.Registry().Instruments {
		origin, name, is := wire.ParseGuestName(guest)
		if !is || origin != r.origin {
			continue
		}
		if offered(name) {
			delete(r.state.root.Missing, name)
		}
		if r.policy.Wants != nil && !r.policy.Wants(name) {
			continue
		}
		switch known := r.state.root.Missing[name]; {
		case offered(name):
			held++
		case known.isNew():
			unknown = append(unknown, name)
			held++
		case known == missingAbsent:
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	missing, err := r.askMissing(ctx, unknown, at)
	if err != nil {
		return err
	}
	all := slices.Concat(missing.Closed, missing.Absent)
	for _, name := range all {
		if r.state.root.Missing[name] == missingStopped {
			missing.Stopped++
		}
	}
	policy := r.policy
	if r.Force { // a person has reviewed what is missing
		policy.SafetyStop = 0
	}
	if r.vanished = policy.AllowMissing(missing, held); r.vanished != nil {
		r.vanished.Command = fmt.Sprintf("`kubectl substorm mirror run %s --force`", r.Entry.Partner)
		r.Logger.Error("the other Site does not offer instruments that are here; closing none of them here", "error", r.vanished)
		for _, name := range all {
			r.miss(name, missingStopped)
		}
		return nil
	}
	return r.acceptMissing(ctx, missing, at)
}

// askMissing asks the other Site why it does not offer some instruments. The answers leave out instruments that an earlier run found to
// be absent and that still are, and those that are closed there and have been closed to all readers here.
func (r *run) askMissing(ctx context.Context, names []string, at time.Time) (m plan.Missing, err error) {
	for some := range slices.Chunk(names, instrumentsAtOnce) {
		var questions []mirrorindex.DaysQuestion
		for _, name := range some {
			questions = append(questions, mirrorindex.DaysQuestion{Instrument: name})
		}
		answers, err := r.Source.Days(ctx, questions)
		if err != nil {
			return m, problemOf(err)
		}
		for i, answer := range answers {
			if err := r.judge(ctx, &m, some[i], answer, at); err != nil {
				return m, err
			}
		}
	}
	return m, nil
}

// judge adds an instrument to those that are missing, by what the other Site answers about it.
func (r *run) judge(ctx context.Context, m *plan.Missing, name string, answer []mirrorindex.DaysLine, at time.Time) error {
	known := r.state.root.Missing[name]
	switch head := answer[0]; {
	case !head.Gone && len(answer) > 1: // it came back since the root was read: another run will know more
		r.differs(name, false)
	case !head.Gone: // it is declared, and nothing was received for it: its data is gone there, and its access holds
		if err := r.announcer.guest(ctx, head, at); err != nil {
			return err
		}
		if known.isNew() {
			m.Absent = append(m.Absent, name)
		}
	case head.Absent && known.isNew():
		m.Absent = append(m.Absent, name)
	case head.Absent:
	case r.restricted(name):
		r.state.root.Missing[name] = missingClosed
	default:
		m.Closed = append(m.Closed, name)
	}
	return nil
}

// restricted says whether the archive of the other Site's instrument is restricted here.
func (r *run) restricted(name string) bool {
	in := r.Registry().Instruments[wire.GuestName(r.origin, name)]
	return in.Access.InForce().Archive == wire.AccessRestricted
}

// acceptMissing closes here what is closed there, and notes what is absent there.
func (r *run) acceptMissing(ctx context.Context, m plan.Missing, at time.Time) error {
	for _, name := range m.Closed {
		r.Logger.Warn("the other side no longer lets this mirror read an instrument: its objects stay here, closed to all readers", "instrument", name)
		if err := r.announcer.close(ctx, name, at); err != nil {
			return err
		}
		r.miss(name, missingClosed)
	}
	for _, name := range m.Absent {
		r.Logger.Warn("the other side no longer has an instrument: its objects stay here, with their access unchanged", "instrument", name)
		r.miss(name, missingAbsent)
	}
	return nil
}

// miss notes that an instrument is missing. Its tag is forgotten: when it comes back it is looked at again.
func (r *run) miss(name string, as missingState) {
	r.state.root.Missing[name] = as
	delete(r.state.root.Instruments, name)
}

// differs notes that the other Site answers that it has an instrument which its root does not list, or the other way round. Another
// run asks for it again.
func (r *run) differs(name string, listed bool) {
	r.withheld++
	r.differing[name] = listed
}

// lookAgain reads the root again where the answers differ from it. An instrument that came or went in between is for the next run. If
// the root is as it was, the index contradicts itself, and so it may in each run.
func (r *run) lookAgain(ctx context.Context) error {
	if len(r.differing) == 0 {
		return nil
	}
	root, _, _, err := r.Source.Root(ctx, "")
	if err != nil {
		return problemOf(err)
	}
	offered := offeredIn(root)
	for name, listed := range r.differing {
		if offered(name) == listed {
			r.contradicted = append(r.contradicted, name)
		}
	}
	slices.Sort(r.contradicted)
	return nil
}

// contradiction is the error of a run to which the other Site contradicted itself; nil: it did not.
func (r *run) contradiction() error {
	if len(r.contradicted) == 0 {
		return nil
	}
	return fmt.Errorf("the index of the other Site contradicts itself about %d instruments (%q and so on): it lists them and answers not to have them, or the reverse; nothing new of these comes. "+
		"Ask its administrator whether an old copy of the index answers, and whether all of its feed servers are up to date", len(r.contradicted), r.contradicted[0])
}
