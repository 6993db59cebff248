// SPDX-License-Identifier: Apache-2.0

package push

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/naming"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/summary"
)

// Catalog knows what the archive holds. internal/catalog is one.
type Catalog interface {
	Days(ctx context.Context, instrument string) ([]wire.RootDay, error)
	DayTag(ctx context.Context, instrument string, day wire.Day) (string, error)
	Day(ctx context.Context, instrument string, day wire.Day) (*catalog.Day, error)
	// Find returns the object that is published under a path, or that was last.
	Find(ctx context.Context, instrument, path string) (wire.Record, error)
	// Versions returns all objects that are or were published under a path. Errors: catalog.ErrNotFound, of the store.
	Versions(ctx context.Context, instrument, path string) ([]wire.Record, error)
}

// Config says what is pushed to whom.
type Config struct {
	Site     string
	Entry    wire.MirrorEntry
	Registry func() *registry.Snapshot
	Catalog  Catalog
	Store    objectstore.Store
	Mover    Mover
	Book     Book
	// At returns a mover to a place that copies were brought to before spec was changed, at another server, or in another folder.
	At func(ctx context.Context, p Place) (Mover, error)
	// Pause returns when objects may be moved. Errors: ctx's.
	Pause func(ctx context.Context) error
	// From and To bound the time of observation further; zero: no bound.
	From, To time.Time
	// VerifyOnly compares and moves nothing. Force moves and compares all that is selected,
	// whatever the partner has confirmed, and removes however many copies must go.
	VerifyOnly, Force bool
	// Following: the run was begun by a notice. It does not verify what the partner confirmed before.
	Following bool
	Progress  *Progress
	Logger    *slog.Logger
	// Patience is how long the archive's object store may give nothing of an object before the run ends; 0: a minute.
	Patience time.Duration
}

// ErrOwed: the partner does not have all that is selected.
var ErrOwed = errors.New("something is still owed to the partner")

// ErrKept: the partner keeps copies that it is to remove.
var ErrKept = errors.New("copies that must go are still at the partner")

// Run makes one run. Errors: ErrOwed, ErrKept, Problem, of the archive.
func Run(ctx context.Context, cfg Config) error {
	r := &run{Config: cfg, log: summary.New(cfg.Logger), now: time.Now().UTC(), policy: plan.PushPolicy{
		AllVersions: cfg.Entry.Selection.Versions == wire.MirrorVersionsAll, Prune: plan.Prune(cfg.Entry.Prune),
		Retractions: cfg.Entry.Retractions, SafetyStop: cfg.Entry.SafetyStopPercent,
	}}
	defer r.log.Flush()
	r.Mover = answering{cfg.Mover, cfg.Progress}
	r.server, r.former = &server{mover: r.Mover}, map[string]*place{}
	r.names = make(map[string]bool, len(cfg.Entry.Selection.Instruments))
	for _, name := range cfg.Entry.Selection.Instruments {
		r.names[name] = true
	}
	if cfg.Entry.Template != "" {
		t, err := naming.ParseLayout(cfg.Entry.Template)
		if err != nil {
			return &Problem{Reason: wire.MirrorReasonInvalidTemplate, Err: err}
		}
		r.template = t
	}
	r.files, r.bytes = cfg.Mover.Most()
	r.batchFiles = min(firstFiles, r.files)
	r.Store = &patient{cfg.Store, cmp.Or(cfg.Patience, defaultPatience), cfg.Logger}
	if err := r.work(ctx); err != nil {
		return err
	}
	return r.outcome()
}

// outcome says what is not as it should be once the run has ended.
func (r *run) outcome() error {
	var owed, kept error
	if r.owed > 0 {
		owed = fmt.Errorf("%w: %d objects%s", ErrOwed, r.owed, r.firstOwed)
	}
	if r.kept > 0 {
		kept = fmt.Errorf("%w: %d, %w", ErrKept, r.kept, r.firstKept)
	}
	lost := r.losses()
	owed = errors.Join(owed, lost)
	var p *Problem
	switch {
	case r.stop != nil:
		return &Problem{Reason: wire.MirrorReasonSafetyStop, Err: errors.Join(r.stop, kept, owed)}
	case errors.As(kept, &p):
		return &Problem{Reason: p.Reason, Answered: p.Answered || r.Progress.Answered(), Err: errors.Join(kept, owed)}
	case kept != nil: // it says of single files that it does not remove them
		return &Problem{Reason: wire.MirrorReasonAccessDenied, Answered: true, Err: errors.Join(kept, owed)}
	case lost != nil:
		return &Problem{Reason: wire.MirrorReasonDigestMismatch, Answered: true, Err: owed}
	case owed != nil:
		return &Problem{Reason: cmp.Or(r.owedFor, wire.MirrorReasonProtocol), Answered: r.Progress.Answered(), Err: owed}
	default:
		return nil
	}
}

// reasonOf says as a reason why one object is owed: verification found another one, or the partner does not take it.
func reasonOf(err error) string {
	var p *Problem
	var differs *differsError
	switch {
	case errors.As(err, &p):
		return p.Reason
	case errors.As(err, &differs):
		return wire.MirrorReasonDigestMismatch
	default:
		return wire.MirrorReasonProtocol
	}
}

// run is one.
type run struct {
	Config
	log *summary.Log
	now time.Time
	// names are the instruments that are selected.
	names    map[string]bool
	policy   plan.PushPolicy
	template *naming.Template
	// server is where copies are brought to, and former, by name, are places where copies were brought to before.
	server *server
	former map[string]*place
	// files and bytes that the mover takes at once.
	files int
	bytes int64
	// batchFiles are those of the next batch: few at first, so that a run which ends soon has brought something.
	batchFiles int
	// batch are days whose files are delivered together, and compared those whose copies are.
	batch    batch
	compared comparison
	// sample counts the copies that were chosen to be compared, those that were, and those of them that differed.
	sample struct{ chosen, compared, differing int }
	// doubt is why it is not certain that the partner has what it confirmed; doubtedBefore: it is older than this run.
	doubt         Doubt
	doubtedBefore bool
	// unsettled: another run noted something meanwhile of a day in doubt.
	unsettled bool
	owed      int
	// firstOwed names the first object that is owed, and says why, and owedFor is the reason.
	firstOwed, owedFor string
	// removable copies are left that the run may remove. Stop says why it removes none.
	removable int
	stop      error
	// held are the copies that the partner had when the run began, and removed those that it has removed.
	held, removed int
	// kept are the copies that must go and that the partner keeps, and firstKept says why of the first.
	kept      int
	firstKept error
	// lost are the copies whose originals are gone here and that the partner was found not to have any more, and firstLost is one.
	lost      int
	firstLost string
}

// owe counts an object, or what else lies under a path at the partner, that the partner does not have as it should.
func (r *run) owe(path string, err error) {
	if r.owed++; r.firstOwed == "" && err != nil && !errors.Is(err, errOpen) {
		r.firstOwed, r.owedFor = fmt.Sprintf(", as %q: %v", path, err), reasonOf(err)
	}
}

// work does what the run is to do.
func (r *run) work(ctx context.Context) error {
	if err := r.keepPlaces(ctx); err != nil {
		return err
	}
	if err := r.beginDoubt(ctx); err != nil {
		return err
	}
	return r.endDoubt(ctx, r.moveAndCompare(ctx))
}

// moveAndCompare brings and removes what is to be, and compares.
func (r *run) moveAndCompare(ctx context.Context) error {
	if r.VerifyOnly || r.Force {
		if err := r.compareKept(ctx); err != nil {
			return err
		}
	}
	if r.VerifyOnly {
		if err := r.compareAll(ctx, plan.Share{Percent: 100}); err != nil {
			return err
		}
		return r.purges(ctx)
	}
	if err := r.moveAll(ctx); err != nil {
		var p *Problem
		if errors.As(err, &p) && p.Reason == wire.MirrorReasonPartnerFull { // what goes makes space for the next run
			err = errors.Join(err, r.each(ctx, r.removeDay))
		}
		return err
	}
	if err := r.purges(ctx); err != nil {
		return err
	}
	return r.compareOlder(ctx)
}

// moveAll brings what the partner lacks of all days, and removes what it should not have.
func (r *run) moveAll(ctx context.Context) error {
	if err := r.allow(ctx); err != nil {
		return err
	}
	if err := r.each(ctx, r.day); err != nil {
		return err
	}
	if err := r.eachLeft(ctx, r.leftDay); err != nil {
		return err
	}
	r.Progress.Listed()
	return r.flush(ctx)
}

// each calls do for the days of all instruments that are selected.
func (r *run) each(ctx context.Context, do dayFunc) error {
	for _, name := range r.Entry.Selection.Instruments {
		if in, declared := r.Registry().Instruments[name]; declared { // else it is not any more, or not yet
			if err := r.eachDay(ctx, in, do); err != nil {
				return err
			}
		}
	}
	return nil
}

// eachLeft calls do for the days of the instruments that the partner has copies of, but that are not selected any more: partners are
// asked to remove what is purged of them, too.
func (r *run) eachLeft(ctx context.Context, do dayFunc) error {
	names, err := r.Book.Instruments(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if r.names[name] {
			continue
		}
		in, declared := r.Registry().Instruments[name]
		if !declared {
			in = wire.InstrumentEntry{Instrument: name}
		}
		if err := r.eachDay(ctx, in, do); err != nil {
			return err
		}
	}
	return nil
}

// dayFunc processes a day with known data.
type dayFunc func(ctx context.Context, in wire.InstrumentEntry, day wire.Day, known seen) error

// eachDay calls do for the days of an instrument that may hold anything within the bounds of the run.
func (r *run) eachDay(ctx context.Context, in wire.InstrumentEntry, do dayFunc) error {
	days, err := r.Catalog.Days(ctx, in.Instrument)
	if err != nil {
		return err
	}
	for _, d := range days {
		if !r.may(d) {
			continue
		}
		month, err := r.Book.Month(ctx, in.Instrument, mirrorindex.MonthOf(d.Day))
		if err != nil {
			return err
		}
		if err := do(ctx, in, d.Day, r.seen(in, month.Days[d.Day])); err != nil {
			return err
		}
	}
	return nil
}

// may says whether a day may hold anything that is selected.
func (r *run) may(d wire.RootDay) bool {
	from, to, err := d.Observed()
	if err != nil {
		return true
	}
	least, greatest := plan.Bounds(r.Entry.Selection, r.From, r.To, r.now)
	return (greatest.IsZero() || from.Before(greatest)) && !to.Before(least)
}

// day puts into the batch what the partner lacks of a day. Copies that the partner should not have are removed once that is delivered.
func (r *run) day(ctx context.Context, in wire.InstrumentEntry, day wire.Day, known seen) error {
	tag, err := r.tag(ctx, in, day)
	if err != nil {
		return err
	}
	if tag == known.Tag && !r.isBroughtAnew(known) {
		return nil
	}
	d, err := r.read(ctx, in, day, known)
	if err != nil {
		return err
	}
	if len(d.objects) == 0 {
		return nil // what was listed once is listed for ever: nothing is known now
	}
	d.tag = tag
	if known.isEmpty() && len(d.plan.Deliver) > 0 {
		// A run that is killed leaves copies that the next one must know of.
		begun := KnownDay{Place: d.here.Name(), Begun: true, Left: known.Left}
		if set, err := r.Book.SetDay(ctx, in.Instrument, day, known.was, begun); err != nil {
			return err
		} else if set {
			d.known.was = begun
		}
	}
	for _, i := range d.plan.Deliver {
		if err := r.add(ctx, d, i); err != nil {
			return err
		}
	}
	d.complete = true
	if d.open == 0 {
		return r.finish(ctx, d, nil)
	}
	return nil
}

// removeDay removes what the partner should not have of a day, and notes nothing: the next run delivers.
func (r *run) removeDay(ctx context.Context, in wire.InstrumentEntry, day wire.Day, known seen) error {
	tag, err := r.tag(ctx, in, day)
	if err != nil || known.isEmpty() && len(known.Left) == 0 || tag == known.Tag {
		return err
	}
	d, err := r.read(ctx, in, day, known)
	if err != nil {
		return err
	}
	return r.remove(ctx, d)
}

// leftDay removes what the partner should not have of a day of an instrument that is not selected any more. All other copies stay.
func (r *run) leftDay(ctx context.Context, in wire.InstrumentEntry, day wire.Day, known seen) error {
	tag, err := r.tag(ctx, in, day)
	if err != nil || known.isEmpty() && len(known.Left) == 0 || tag == known.Tag && !r.Force {
		return err
	}
	d, err := r.read(ctx, in, day, known)
	if err != nil || len(d.objects) == 0 {
		return err
	}
	if err := r.remove(ctx, d); err != nil || d.stays || d.cut {
		return err
	}
	known.Left = d.left
	known.Tag, known.Changed, known.Policy, known.Objects = tag, d.plan.Known.Changed, d.plan.Known.Policy, max(0, known.Objects-d.removed)
	_, err = r.Book.SetDay(ctx, in.Instrument, day, known.was, known.KnownDay) // else the next run looks again
	return err
}

// tag is one of what the archive holds of a day, and of what else decides what is selected.
func (r *run) tag(ctx context.Context, in wire.InstrumentEntry, day wire.Day) (string, error) {
	tag, err := r.Catalog.DayTag(ctx, in.Instrument, day)
	if err != nil {
		return "", err
	}
	s := r.Entry.Selection
	text := fmt.Sprintf("%s %d %d", tag, in.Generation, r.Entry.Generation)
	if s.ObservedWithinMillis > 0 || in.Access.InForce().EmbargoMillis > 0 && !s.Embargoed {
		text += r.now.Truncate(time.Minute).String() // it changes without a change of the archive
	}
	return short(text), nil
}
