// SPDX-License-Identifier: Apache-2.0

package push

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// Copies are removed in two passes. The first one counts those of all days that must go and that the partner has: where that
// are too many, none is removed. The second one removes them, day by day, and never more than the first one allowed.

// gone is a copy that must go, if it is there.
type gone struct {
	path   string
	record *wire.Record
	// by is the path of the version that replaces it; empty if there is none.
	by string
	// shared: what lies under the path may be the copy of another version by now, or of another object. It goes only with the size and time of
	// this one, and where those of the other are the same with other bytes than its.
	shared bool
	// former: it was brought to a place that copies are not brought to any more.
	former bool
}

// file is what is asked for by size and time.
func (g gone) file() File {
	return File{Path: g.path, Size: g.record.Size, Modified: g.record.ReceivedAt, Digest: g.record.Digest}
}

// allow counts the copies that must go before any is removed.
func (r *run) allow(ctx context.Context) error {
	if r.Force {
		return nil
	}
	held, all := 0, questions{run: r, of: map[*server][]gone{}}
	count := func(ctx context.Context, in wire.InstrumentEntry, day wire.Day, known seen) error {
		held += known.copies()
		if known.isEmpty() && len(known.Left) == 0 {
			return nil
		}
		if tag, err := r.tag(ctx, in, day); err != nil || tag == known.Tag {
			return err
		}
		d, err := r.read(ctx, in, day, known)
		if err != nil {
			return err
		}
		return r.eachGone(ctx, d, func(p *place, gone []gone) error { return all.ask(ctx, p.server, gone) })
	}
	err := r.each(ctx, count)
	if err == nil {
		err = r.eachLeft(ctx, count)
	}
	if err == nil {
		err = all.end(ctx)
	}
	if err != nil {
		return err
	}
	r.held = held
	if r.removable = r.policy.Most(held); all.there > r.removable {
		r.stopRemoval(all.there, held)
		r.Logger.Warn("copies must go; these are some or all of them", "paths", all.some)
	}
	return nil
}

// questions collect copies that must go until it is asked which of them are there.
type questions struct {
	run *run
	of  map[*server][]gone
	// there is how many are, and some names some.
	there int
	some  []string
}

func (q *questions) ask(ctx context.Context, s *server, all []gone) error {
	q.of[s] = append(q.of[s], all...)
	if len(q.of[s]) < q.run.files {
		return nil
	}
	return q.askNow(ctx, s)
}

func (q *questions) end(ctx context.Context) error {
	for s := range q.of {
		if err := q.askNow(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (q *questions) askNow(ctx context.Context, s *server) error {
	all := q.of[s]
	q.of[s] = nil
	for some := range groups(all, q.run.files) {
		there, err := q.run.presentCopies(ctx, s, some)
		if err != nil && !q.run.refuses(ctx, s, err, &s.silent) {
			return err
		}
		q.there += len(there)
		for _, g := range there[:min(len(there), max(0, maxNamed-len(q.some)))] {
			q.some = append(q.some, g.path)
		}
	}
	return nil
}

// groups yields the copies in groups of at most most, without two equal paths in a group.
func groups(all []gone, most int) iter.Seq[[]gone] {
	return func(yield func([]gone) bool) {
		for len(all) > 0 {
			paths, n := map[string]bool{}, 0
			for n < min(len(all), most) && !paths[all[n].path] {
				paths[all[n].path] = true
				n++
			}
			if !yield(all[:n]) {
				return
			}
			all = all[n:]
		}
	}
}

// maxNamed are the copies that the log names where too many must go.
const maxNamed = 100

// stopRemoval has the run remove nothing more.
func (r *run) stopRemoval(remove, held int) {
	r.removable = 0
	r.stop = &plan.SafetyStopError{Remove: remove, Held: held, Percent: r.Entry.SafetyStopPercent,
		Command: fmt.Sprintf("`kubectl substorm mirror run %s --force`", r.Entry.Partner)}
	r.Logger.Error("copies must go, and none is removed", "error", r.stop)
}

// presentCopies returns those of some copies that the partner has. Errors: Problem.
func (r *run) presentCopies(ctx context.Context, s *server, some []gone) (there []gone, err error) {
	if s.silent != nil {
		return nil, s.silent
	}
	var paths []string
	var files []File
	for _, g := range some {
		if g.shared {
			files = append(files, g.file())
		} else {
			paths = append(paths, g.path)
		}
	}
	has := make(map[string]bool, len(some))
	if len(paths) > 0 {
		found, err := s.mover.Has(ctx, paths)
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			has[p] = true
		}
	}
	if len(files) > 0 {
		for _, f := range files {
			has[f.Path] = true
		}
		if err := s.mover.Verify(ctx, files, false, func(i int, _ string) { has[files[i].Path] = false }); err != nil {
			return nil, err
		}
	}
	var shared []gone
	for _, g := range some {
		switch {
		case !has[g.path]:
		case g.shared && s == r.server || g.former:
			shared = append(shared, g)
		default:
			there = append(there, g)
		}
	}
	if len(shared) == 0 {
		return there, nil
	}
	shared, err = r.unclaimed(ctx, s, shared)
	return append(there, shared...), err
}

// refuses says whether an error means that a server cannot be asked what it has, or lets nothing be removed, and that files are
// taken all the same as far as is known: from then on it is not asked that again in this run. For a place that copies were
// brought to before, each error means that.
func (r *run) refuses(ctx context.Context, s *server, err error, why *error) bool {
	var p *Problem
	if ctx.Err() != nil || s == r.server && (!errors.As(err, &p) || p.Reason != wire.MirrorReasonAccessDenied && p.Reason != wire.MirrorReasonProtocol) {
		return false
	}
	if *why == nil {
		*why = err
	}
	return true
}

// keep counts copies that must go and that the partner keeps.
func (r *run) keep(d *pushed, some []gone, err error) {
	d.stays = true
	if !d.asked || r.firstKept == nil { // else they count already
		r.Progress.Keep(len(some))
		r.kept += len(some)
	}
	if r.firstKept == nil {
		r.firstKept = fmt.Errorf("as %q: %w", some[0].path, err)
	}
	r.Logger.Error("the partner keeps copies that it is to remove: the next run asks again", "instrument", d.in.Instrument, "day", d.day, "copies", len(some), "error", err)
}

// eachGone calls do for the copies of a day that must go, place by place: where they lie now, and where they were brought to before.
func (r *run) eachGone(ctx context.Context, d *pushed, do func(*place, []gone) error) error {
	never := d.known.isEmpty() && !r.Force // no run has brought anything
	if never && len(d.plan.Remove) > 0 {   // unless what was known of it is lost
		has, err := r.Book.Mirrored(ctx, d.in.Instrument, d.day)
		if err != nil {
			return err
		}
		never = has.Objects+has.Datagrams == 0
	}
	here, err := r.copiesToRemove(ctx, d, d.here, never)
	if err != nil {
		return err
	}
	asked := make(map[string]bool, len(here))
	for _, g := range here {
		asked[g.path] = true
	}
	if err := do(d.here.place, here); err != nil || len(d.plan.Remove) == 0 {
		return err
	}
	for _, l := range d.left {
		p, err := r.formerPlace(ctx, l.Place)
		if err != nil {
			return err
		}
		all, err := r.copiesToRemove(ctx, d, d.layout(p), false)
		if err != nil {
			return err
		}
		if p.taken { // that one goes by its own spec; what was purged must go nevertheless
			all = slices.DeleteFunc(all, func(g gone) bool { return !isPurged(g.record) })
		}
		if p.server == r.server { // with other paths, and some may be the same
			all = slices.DeleteFunc(all, func(g gone) bool { return asked[g.path] })
		}
		if err := do(p, all); err != nil {
			return err
		}
	}
	return nil
}

// copiesToRemove are the copies of a day at a place that may be there and should not. Never: no run has brought any.
func (r *run) copiesToRemove(ctx context.Context, d *pushed, at layout, never bool) (all []gone, err error) {
	for _, i := range d.plan.Remove {
		o := &d.objects[i]
		if never && !isPurged(o.Record) {
			continue
		}
		if !r.inside(o.Record) {
			d.cut = true
			continue
		}
		published, err := r.Catalog.Find(ctx, d.in.Instrument, o.Path)
		if err != nil && !errors.Is(err, catalog.ErrNotFound) {
			return nil, err
		}
		by := ""
		if err == nil && published.State == wire.StateCurrent {
			by, _ = at.pathOf(&plan.PushObject{Path: o.Path, Record: &published}, false)
		}
		former := at.former && at.server == r.server // by another template, or with other versions
		if p, ok := at.pathOf(o, false); ok {
			all = append(all, gone{path: p, record: o.Record, by: by, former: at.former, shared: former || at.shared(o.Record, err == nil && published.ID != o.Record.ID)})
		}
		if p, ok := at.pathOf(o, false); ok && err == nil && published.ID != o.Record.ID {
			all = append(all, gone{path: p + asideSuffix(o.Record), record: o.Record, former: at.former})
		}
		if p, ok := at.pathOf(o, true); ok && at.all() {
			all = append(all, gone{path: p, record: o.Record, by: by, former: at.former, shared: former})
		}
	}
	return all, nil
}

// remove removes the copies of a day that must go, and confirms what was purged once it lies at no place. It comes when all that the
// day has was delivered: a partner that refuses to remove gets it all the same.
func (r *run) remove(ctx context.Context, d *pushed) error {
	err := r.eachGone(ctx, d, func(p *place, all []gone) error {
		for some := range groups(all, r.files) {
			if err := r.removeSome(ctx, d, p, some); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || d.stays {
		return err
	}
	for _, i := range d.plan.Remove {
		if o := d.objects[i].Record; isPurged(o) && r.inside(o) {
			if err := r.Book.Confirm(ctx, d.in.Instrument, d.day, o.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// isPurged says whether an object was purged by request. Partners are asked to remove it even if the book does not know that they have
// it.
func isPurged(r *wire.Record) bool { return r.State == wire.StatePurged && !plan.Expired(r) }

func (r *run) removeSome(ctx context.Context, d *pushed, p *place, some []gone) error {
	if err := r.Pause(ctx); err != nil {
		return err
	}
	there, err := r.presentCopies(ctx, p.server, some)
	why := &p.silent
	switch {
	case err != nil:
		some = some[:d.maxCopies(p, len(some))]
	case len(there) == 0:
		return nil
	case p.refused == nil && !r.Force && len(there) > r.removable:
		d.stays = true
		if r.stop == nil { // more was retracted meanwhile
			r.stopRemoval(r.removed+len(there), r.held)
		}
		return nil
	default:
		some, why = there, &p.refused
		if err = p.refused; err == nil {
			err = r.removeThere(ctx, d, p, there)
		}
	}
	if err == nil || !r.refuses(ctx, p.server, err, why) {
		return err
	}
	if p.former {
		err = fmt.Errorf("at the former place of copies (%s): %w", strings.TrimSpace(p.Place.server()), err)
	}
	r.keep(d, some, err)
	return nil
}

// errStillThere: the partner acknowledged a removal, and has the copy.
var errStillThere = errors.New("the partner reported it as removed, but still has it")

// removeThere removes copies that the partner has.
func (r *run) removeThere(ctx context.Context, d *pushed, p *place, there []gone) error {
	if !p.removes && slices.ContainsFunc(there, func(g gone) bool { return r.policy.Tombstone(g.record) }) { // else there is a file that says that it is gone
		if err := p.mover.MayRemove(ctx, []string{there[0].path}); err != nil {
			return err
		}
		p.removes = true
	}
	told, err := r.leaveTombstones(ctx, d, p, there)
	if err != nil || len(told) == 0 {
		return err
	}
	paths := make([]string, len(told))
	for i, g := range told {
		paths[i] = g.path
	}
	left, failed := 0, p.mover.Remove(ctx, paths)
	if failed != nil && !errors.As(failed, new(*KeptError)) {
		return failed
	}
	if failed != nil || slices.ContainsFunc(told, func(g gone) bool { return isPurged(g.record) }) { // that a purge was done is said of what was looked for
		still, err := r.presentCopies(ctx, p.server, told)
		if err != nil {
			return err
		}
		if left = len(still); left > 0 {
			r.keep(d, still, cmp.Or(failed, errStillThere))
		}
	}
	n := len(told) - left
	r.removable -= n
	r.removed += n
	r.Progress.Remove(n)
	d.noteRemoved(p, n)
	return nil
}

// maxCopies is how many of so many copies may lie at a place that cannot be asked.
func (d *pushed) maxCopies(p *place, n int) int {
	for _, l := range d.left {
		if p.former && l.Place == p.Name() {
			return min(n, max(1, l.Objects))
		}
	}
	return n
}

// noteRemoved notes that so many copies of the day are gone from a place.
func (d *pushed) noteRemoved(p *place, n int) {
	if !p.former {
		d.removed += n
		return
	}
	for i := range d.left {
		if l := &d.left[i]; l.Place == p.Name() {
			l.Objects = max(0, l.Objects-n)
		}
	}
}
