// SPDX-License-Identifier: Apache-2.0

// Package site pulls from another Substorm into the archive of a Site. A run asks the other Site's mirror index for what
// changed since the last run, compares what it lists with what is listed here, and sends what is missing to the Site's gateways,
// as any sender does: a gateway stores it, announces it, counts it, and only then receipts it. For objects that the other
// Site has retracted, it asks the archivist.
//
//	root ─► days ─► lists ─► plan ─► bundles, large objects ─► gateways ─► tags
//	                           └───► requests to the archivist; retractions and purges at the end, if they are not too many
//
// Pulled objects are listed here under the origin's name, with its rights, and are never offered to mirrors.
package site

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/folder"
	"github.com/substorm/substorm/mirror-jobs/gateway"
	"github.com/substorm/substorm/mirror-jobs/https"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/summary"
)

const (
	// instrumentsAtOnce is how many instruments' days are asked for at once, and daysAtOnce how many days' lists: both
	// questions fit into mirrorindex.MaxQuestionBytes.
	instrumentsAtOnce = 100
	daysAtOnce        = 40
)

// Catalog knows what the archive here holds. internal/catalog is one.
type Catalog interface {
	Day(ctx context.Context, instrument string, day wire.Day) (*catalog.Day, error)
	Days(ctx context.Context, instrument string) ([]wire.RootDay, error)
}

// Config says what is pulled where.
type Config struct {
	Site  string
	Entry wire.MirrorEntry
	// Kind of run: wire.MirrorScheduled or wire.MirrorManual, as its lease.
	Kind    string
	Source  *https.Client
	Catalog Catalog
	// Store is the store of the archive here; it is only read.
	Store     objectstore.Store
	Registry  func() *registry.Snapshot
	JetStream jetstream.JetStream
	// Scratch is where large objects are put together, and ScratchSize what they may take of the disk there; 0: what is free.
	Scratch     *folder.Folder
	ScratchSize int64
	// Pause returns when objects may be moved. Errors: ctx's.
	Pause func(ctx context.Context) error
	// From and To bound the time of observation further; zero: no bound.
	From, To time.Time
	// VerifyOnly compares and moves nothing; Force asks for all that is selected, whatever earlier runs saw, and has all go that the
	// other Site has retracted or purged. Both look at the store, too: what is listed here and was lost there is owed.
	VerifyOnly, Force bool
	Progress          *push.Progress
	Logger            *slog.Logger
}

// Run makes one run. Errors: push.ErrOwed, push.Problem, of the archive and of NATS.
func Run(ctx context.Context, cfg Config) error {
	r := &run{Config: cfg, now: time.Now(), origin: cfg.Entry.HTTPS.Origin, log: summary.New(cfg.Logger), differing: map[string]bool{}}
	defer r.log.Flush()
	r.part = cfg.VerifyOnly || !cfg.From.IsZero() || !cfg.To.IsZero()
	r.anew = r.part || cfg.Force
	r.policy = plan.GuestPolicy{Selection: r.selection(), AllVersions: cfg.Entry.Selection.Versions == wire.MirrorVersionsAll,
		Retractions: cfg.Entry.Retractions, By: By(cfg.Entry.Partner), SafetyStop: cfg.Entry.SafetyStopPercent}
	var err error
	if r.state, err = openState(ctx, cfg.JetStream, cfg.Site, cfg.Entry.Partner, r.selects()); err != nil {
		return err
	}
	if r.announcer, err = newAnnouncer(ctx, &r.Config); err != nil {
		return err
	}
	if !cfg.VerifyOnly {
		r.gateways, err = gateway.Open(ctx, gateway.Config{Site: cfg.Site, Partner: cfg.Entry.Partner, Kind: cfg.Kind, JetStream: cfg.JetStream,
			Connections: max(1, cfg.Entry.Limits.Connections), Logger: cfg.Logger})
		if err != nil {
			return err
		}
		defer r.gateways.Close()
		if r.disk, err = openScratch(ctx, &r.Config); err != nil {
			return err
		}
	}
	return r.do(ctx)
}

// run is one.
type run struct {
	Config
	log       *summary.Log
	now       time.Time
	origin    string
	policy    plan.GuestPolicy
	state     *state
	announcer *announcer
	gateways  *gateway.Client
	disk      *scratch
	// confirming says to the other Site what is here.
	confirming
	doubt
	// anew: what earlier runs saw does not count. Part: what this run sees does not count for later ones.
	anew, part bool
	// owed are objects that did not come, withheld those under embargo, and asked the changes that the archivist is asked for, or
	// that wait for the end of a legal hold. A later run looks again at all of them.
	owed, withheld, asked int
	// firstOwed names the first object that is owed, and says why, and owedFor is the reason for reports. Lost: the object store here does
	// not have some that are listed.
	firstOwed, owedFor string
	lost               bool
	// again are those of what was lost that the other Site gives again. Missing are those that it does not, found by this run or by an
	// earlier one, and firstMissing names one.
	again, missing int
	firstMissing   string
	// unrepairable are objects here that were lost with their packs.
	unrepairable int
	// unread are days whose content here is unknown.
	unread int
	// removal waits for the end of the run, and stop says why nothing of it is asked for; nil where it is.
	removal removal
	stop    *plan.SafetyStopError
	// vanished says that more instruments are missing at the other Site than a run may act upon; nil where it does.
	vanished *plan.VanishedError
	// differing are the instruments whose answers differ from the root, and whether it lists them; contradicted are those for which a
	// second root says the same.
	differing    map[string]bool
	contradicted []string
	// clock says what is wrong with the clock of the other Site; nil: nothing.
	clock *plan.ClockError
	// noted is what its clock showed in an earlier run, as it was noted.
	noted time.Time
	// full says of the last object that had no space in the scratch what to do; nil where all had some.
	full error
}

// left is how much of what was looked at so far a later run looks at again.
func (r *run) left() int { return r.owed + r.withheld + r.asked + r.unread }

func (r *run) selection() plan.Selection {
	s := r.Entry.Selection
	var sel plan.Selection
	sel.ObservedFrom, sel.ObservedTo = plan.Bounds(s, r.From, r.To, r.now)
	if !slices.Contains(s.Instruments, wire.AllInstruments) && len(s.Instruments) > 0 {
		sel.Wants = func(name string) bool { return slices.Contains(s.Instruments, name) }
	}
	return sel
}

// selects tells selections apart: what earlier runs saw counts for the same one.
func (r *run) selects() string {
	s := r.Entry.Selection
	return fmt.Sprint(r.Entry.HTTPS.URL, s.Instruments, s.ObservedFrom, s.ObservedTo, s.ObservedWithinMillis, s.Versions, s.Embargoed, r.Entry.Retractions)
}

func (r *run) do(ctx context.Context) error {
	r.forgetUndeclared()
	r.beginWentBack()
	if err := r.beginDoubt(ctx); err != nil {
		return err
	}
	root, etag, unchanged, err := r.root(ctx)
	if err == nil {
		r.Progress.Answer()
	}
	if err != nil {
		return problemOf(err)
	}
	r.checkClock(root.Now)
	r.noteAwaited(root, unchanged)
	if unchanged { // the root does not list absent instruments, even if they are declared again and closed
		return r.endUnchanged(ctx)
	}
	if root.Site != r.origin {
		return &push.Problem{Reason: wire.MirrorReasonProtocol, Err: fmt.Errorf(
			"the other side is Site %q, and spec.https.origin is %q: name the Site whose archive spec.https.url serves", root.Site, r.origin)}
	}
	known := r.state.root.Instruments
	changed := r.policy.Instruments(root, r.hasGuest, func(name string) string {
		if r.anew || r.sweeps || len(r.inDoubt[name]) > 0 {
			return ""
		}
		return known[name]
	})
	if !r.Force && r.looks { // what is new comes first: the run may be made again and again
		isKnown := func(line mirrorindex.RootLine) bool { return known[line.Instrument] == line.Tag }
		others := slices.DeleteFunc(slices.Clone(changed), func(line mirrorindex.RootLine) bool { return !isKnown(line) })
		changed = append(slices.DeleteFunc(changed, isKnown), others...)
	}
	if r.isNew {
		if err := r.confirmNothing(ctx, root); err != nil {
			return err
		}
	}
	if err := r.findMissing(ctx, offeredIn(root), root.Now); err != nil {
		return err
	}
	for chunk := range slices.Chunk(changed, instrumentsAtOnce) {
		if err := r.instruments(ctx, chunk, root.Now); err != nil {
			if ctx.Err() == nil { // else a link that breaks in each run would keep what was retracted
				err = errors.Join(err, r.remove(ctx))
			}
			return errors.Join(err, r.keep(ctx, ""))
		}
	}
	if err := r.remove(ctx); err != nil {
		return errors.Join(err, r.keep(ctx, ""))
	}
	if !r.VerifyOnly {
		if err := r.Scratch.RemoveParts(); err != nil {
			return fmt.Errorf("scratch: %w", err)
		}
	}
	r.noteSwept()
	if err := errors.Join(r.lookAgain(ctx), r.lookAtUnlisted(ctx)); err != nil {
		return errors.Join(err, r.keep(ctx, ""))
	}
	if r.left() > 0 || r.vanished != nil || r.clock != nil || root.Confirms && !r.state.root.Confirms {
		etag = "" // the next run must look at the rest, look at the clock again, or confirm all
	}
	if err := r.keep(ctx, etag); err != nil {
		return err
	}
	if err := r.confirmRun(ctx); err != nil {
		return err
	}
	return r.endError()
}

// root asks for the root of the other Site, if it is another than before.
func (r *run) root(ctx context.Context) (root mirrorindex.Root, etag string, unchanged bool, err error) {
	if !r.anew && len(r.inDoubt) == 0 {
		etag = r.state.root.ETag
	}
	return r.Source.Root(ctx, etag)
}

// endError is the error of a run that did all it could; nil if nothing is left.
func (r *run) endError() error {
	var stops []error
	if r.stop != nil {
		stops = append(stops, r.stop)
	}
	if r.vanished != nil {
		stops = append(stops, r.vanished)
	}
	if len(stops) > 0 {
		return &push.Problem{Reason: wire.MirrorReasonSafetyStop, Err: errors.Join(append(stops, r.owedError())...)}
	}
	if err := r.contradiction(); err != nil {
		return &push.Problem{Reason: wire.MirrorReasonProtocol, Answered: true, Err: errors.Join(err, r.owedError())}
	}
	return r.owedError()
}

// owedError is the error of a run that could not do everything; nil where it could.
func (r *run) owedError() error {
	var err error
	reason := r.owedFor
	switch {
	case r.missing+r.lostUnlisted > 0:
		reason = wire.MirrorReasonStore
		err = r.misses()
	case r.unread > 0:
		reason = wire.MirrorReasonStore
		err = fmt.Errorf("%w: %d objects%s, and all of the days whose manifests here cannot be read (%d, which the log names)", push.ErrNotPulled, r.owed, r.firstOwed, r.unread)
	case r.full != nil:
		reason = wire.MirrorReasonLocal
		err = fmt.Errorf("%w: %d objects, some of them too large: %w", push.ErrNotPulled, r.owed, r.full)
	case r.unrepairable > 0:
		reason = wire.MirrorReasonStore
		err = fmt.Errorf("%w: %d objects%s, and %d were lost here with their packs, whose days the log names", push.ErrNotPulled, r.owed, r.firstOwed, r.unrepairable)
	case r.owed > 0:
		err = fmt.Errorf("%w: %d objects%s: %s", push.ErrNotPulled, r.owed, r.firstOwed, r.step())
	default:
		return nil
	}
	return &push.Problem{Reason: reason, Answered: true, Err: err}
}

// reasonOf says as a reason of reports why an object is owed.
func (r *run) reasonOf(why error) string {
	var refused *gateway.RefusedError
	var gone *https.RefusedError
	var differs *folder.DigestError
	switch {
	case errors.As(why, &refused):
		return refused.Reason()
	case errors.As(why, &gone):
		return https.ReasonOf(why)
	case errors.As(why, &differs):
		return wire.MirrorReasonDigestMismatch
	case errors.Is(why, folder.ErrPath):
		return wire.MirrorReasonProtocol
	case errors.Is(why, errOverdue), why != nil && !errors.Is(why, errDecided):
		return wire.MirrorReasonLocal
	case r.again > 0:
		return wire.MirrorReasonStore
	default:
		return wire.MirrorReasonOwed
	}
}

// step says what brings what is owed.
func (r *run) step() string {
	switch {
	case r.VerifyOnly && r.again > 0:
		return fmt.Sprintf("the object store here lost %d that are listed, which the next run without --verify-only brings back", r.again)
	case r.VerifyOnly:
		return "a run without --verify-only brings them"
	default:
		return "the next run tries again"
	}
}

// owes names the first object that is owed, and says why.
func (r *run) owes(instrument, object string, why error) {
	if r.firstOwed != "" {
		return
	}
	r.owedFor = r.reasonOf(why)
	r.firstOwed = fmt.Sprintf(", as %q of %s", object, instrument)
	if why != nil {
		r.firstOwed += fmt.Sprintf(" (%v)", why)
	}
}

// forgetUndeclared has the other side asked for the instruments that the registry here does not have, as after the loss of its
// bucket: a run alone declares them.
func (r *run) forgetUndeclared() {
	declared := r.Registry().Instruments
	for name := range r.state.root.Instruments {
		if _, is := declared[wire.GuestName(r.origin, name)]; !is {
			r.state.root.Instruments[name] = ""
			r.state.root.ETag = ""
		}
	}
}

// keep notes what of the root is acted upon.
func (r *run) keep(ctx context.Context, etag string) error {
	if r.part {
		return nil
	}
	r.state.root.ETag = etag
	return r.state.keepRoot(ctx)
}
