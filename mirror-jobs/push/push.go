// SPDX-License-Identifier: Apache-2.0

package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/naming"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// Catalog knows what the archive holds. internal/catalog is one.
type Catalog interface {
	Days(ctx context.Context, instrument string) ([]wire.RootDay, error)
	DayTag(ctx context.Context, instrument string, day wire.Day) (string, error)
	Day(ctx context.Context, instrument string, day wire.Day) (*catalog.Day, error)
	// Find returns the object that is published under a path, or that was last.
	Find(ctx context.Context, instrument, path string) (wire.Record, error)
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
	// Pause returns when objects may be moved. Errors: ctx's.
	Pause func(ctx context.Context) error
	// From and To bound the time of observation further; zero: no bound.
	From, To time.Time
	// VerifyOnly compares and moves nothing. Force moves and compares all that is selected,
	// whatever the partner has confirmed.
	VerifyOnly, Force bool
	Progress          *Progress
	Logger            *slog.Logger
}

// ErrOwed: the partner does not have all that is selected.
var ErrOwed = errors.New("something is still owed to the partner")

// Run makes one run. Errors: ErrOwed, Problem, of the archive.
func Run(ctx context.Context, cfg Config) error {
	r := &run{Config: cfg, now: time.Now()}
	if cfg.Entry.Template != "" {
		t, err := naming.Parse(cfg.Entry.Template)
		if err != nil {
			return &Problem{wire.MirrorReasonInvalidTemplate, err}
		}
		r.template = t
	}
	r.files, r.bytes = cfg.Mover.Most()
	snapshot := cfg.Registry()
	for _, name := range cfg.Entry.Selection.Instruments {
		in, known := snapshot.Instruments[name]
		if !known {
			continue // it is not declared any more, or not yet
		}
		if err := r.instrument(ctx, in); err != nil {
			return err
		}
	}
	if err := r.flush(ctx); err != nil {
		return err
	}
	if r.owed > 0 {
		return fmt.Errorf("%w: %d objects", ErrOwed, r.owed)
	}
	return nil
}

// run is one.
type run struct {
	Config
	now      time.Time
	template *naming.Template
	// files and bytes that the mover takes at once.
	files int
	bytes int64
	// batch are days whose files are delivered together.
	batch batch
	owed  int
}

// instrument pushes the days of one that changed since the partner confirmed them.
func (r *run) instrument(ctx context.Context, in wire.InstrumentEntry) error {
	days, err := r.Catalog.Days(ctx, in.Instrument)
	if err != nil {
		return err
	}
	months := map[string]Month{}
	for _, d := range days {
		if !r.may(d) {
			continue
		}
		name := mirrorindex.MonthOf(d.Day)
		month, known := months[name]
		if !known {
			if month, err = r.Book.Month(ctx, in.Instrument, name); err != nil {
				return err
			}
			months[name] = month
		}
		if err := r.day(ctx, in, d.Day, month.Days[d.Day]); err != nil {
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
	least, greatest := r.bounds()
	return (greatest.IsZero() || from.Before(greatest)) && !to.Before(least)
}

// bounds of the time of observation.
func (r *run) bounds() (from, to time.Time) {
	return plan.Bounds(r.Entry.Selection, r.From, r.To, r.now)
}

// day puts into the batch what the partner lacks of a day.
func (r *run) day(ctx context.Context, in wire.InstrumentEntry, day wire.Day, known KnownDay) error {
	tag, err := r.tag(ctx, in, day)
	if err != nil {
		return err
	}
	if tag == known.Tag && !r.Force && !r.VerifyOnly {
		return nil
	}
	held, err := r.Catalog.Day(ctx, in.Instrument, day)
	if err != nil {
		return err
	}
	d := &pushed{in: in, day: day, tag: tag, known: known, reader: access.Mirror(r.Entry.Partner, r.names(), r.Entry.Selection.Embargoed)}
	d.choose(r, held)
	if len(d.retracted) > 0 && !r.VerifyOnly {
		if err := r.remove(ctx, d); err != nil {
			return err
		}
	}
	for i := range d.files {
		if err := r.add(ctx, d, i); err != nil {
			return err
		}
	}
	d.complete = true
	if d.open == 0 {
		return r.note(ctx, d)
	}
	return nil
}

func (r *run) names() map[string]bool {
	all := map[string]bool{}
	for _, name := range r.Entry.Selection.Instruments {
		all[name] = true
	}
	return all
}

// tag is one of what the archive holds of a day, and of what else decides what is selected.
func (r *run) tag(ctx context.Context, in wire.InstrumentEntry, day wire.Day) (string, error) {
	tag, err := r.Catalog.DayTag(ctx, in.Instrument, day)
	if err != nil {
		return "", err
	}
	s := r.Entry.Selection
	text := fmt.Sprintf("%s %d %d %s %s %s", tag, in.Generation, r.Entry.Generation, r.From, r.To, s.Versions)
	if s.ObservedWithinMillis > 0 || in.Access.InForce().EmbargoMillis > 0 && !s.Embargoed {
		text += r.now.Truncate(time.Minute).String() // it changes without a change of the archive
	}
	return short(text), nil
}
