// SPDX-License-Identifier: Apache-2.0

// Package scrub reads the whole archive, slowly and over and over, and compares every object with the digest that it
// was received with. It also looks at objects that others, such as feed servers, find damaged. Damage that it confirms
// stands in the status bucket, in the ledger, in the log and in metrics, until the object is whole again or purged.
package scrub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// DefaultRate in bytes a second: 86 GB a day, and of small objects 16 a second.
	DefaultRate = 1 << 20
	// DefaultInterval is between the beginnings of two passes, where one takes less.
	DefaultInterval = 7 * 24 * time.Hour
	// DefaultAgain is how often damaged objects are read again: they may have been repaired.
	DefaultAgain = time.Hour
	// requestCost is what an object counts beside its bytes: the store is busy with a
	// request for as long as with so many of them, about.
	requestCost = 64 << 10
	// saveEvery is how often the place is saved.
	saveEvery = 10 * time.Second
	// reportEvery is how often a pass says how far it has come, for the Site's status.
	reportEvery = 5 * time.Minute
	// pause is how long to wait after something failed.
	pause = 10 * time.Second
)

// Config says whose archive it is.
type Config struct {
	holder.Base

	// Rate is how many bytes a second are read; Interval and Again are as their defaults
	// say.
	Rate            int64
	Interval, Again time.Duration

	Metrics *Metrics
}

// Scrub works while one lease lasts.
type Scrub struct {
	cfg      Config
	pace     *pace
	findings *findings
	cell     *stream.Cell
	cursor   wire.ScrubCursor
	saved    time.Time
	reported time.Time
}

// New returns a scrub; Run runs it.
func New(cfg Config) *Scrub {
	if cfg.Rate <= 0 {
		cfg.Rate = DefaultRate
	}
	if cfg.Interval <= 0 {
		cfg.Interval = DefaultInterval
	}
	if cfg.Again <= 0 {
		cfg.Again = DefaultAgain
	}
	return &Scrub{cfg: cfg, pace: newPace(cfg.Rate)}
}

// Run reads until ctx ends or the lease is lost. Any other failure is logged, counted and retried:
// the archive works without its scrub. Errors: ctx's and stream.ErrLeaseLost.
func (s *Scrub) Run(ctx context.Context) error {
	for {
		err := s.once(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if lost := s.cfg.Lease.Check(); lost != nil {
			return lost
		}
		s.cfg.Metrics.failures.Inc()
		s.cfg.Log.Warn("the scrub pauses", "error", err)
		if !retry.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// once works until something fails.
func (s *Scrub) once(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.followClaims(ctx) })
	group.Go(func() error { return s.lookAgain(ctx) })
	group.Go(func() error { return s.walk(ctx) })
	return group.Wait()
}

func (s *Scrub) begin(ctx context.Context) error {
	cursors, err := s.cfg.JetStream.KeyValue(ctx, wire.CursorBucket(s.cfg.Site))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", wire.CursorBucket(s.cfg.Site), err)
	}
	s.cell = stream.NewCell(s.cfg.JetStream, cursors, wire.ScrubCursorKey)
	data, err := s.cell.Load(ctx)
	if err != nil {
		return err
	}
	if data != nil {
		if s.cursor, err = wire.Decode[wire.ScrubCursor](data); err != nil {
			return fmt.Errorf("cursor %s: %w", wire.ScrubCursorKey, err)
		}
	}
	if s.findings, err = openFindings(ctx, &s.cfg); err != nil {
		return err
	}
	return s.report(ctx)
}

// walk makes one pass after the other.
func (s *Scrub) walk(ctx context.Context) error {
	for {
		if s.cursor.Done || s.cursor.BegunAt.IsZero() {
			if err := s.nextPass(ctx); err != nil {
				return err
			}
		}
		if err := s.pass(ctx); err != nil {
			return err
		}
	}
}

// lookAgain looks at what is known to be damaged, until ctx ends.
func (s *Scrub) lookAgain(ctx context.Context) error {
	for {
		if !retry.Sleep(ctx, s.cfg.Again) {
			return ctx.Err()
		}
		for _, d := range s.findings.all() {
			if err := s.checkDamage(ctx, d); err != nil {
				return err
			}
		}
	}
}

// nextPass waits until it is time for one.
func (s *Scrub) nextPass(ctx context.Context) error {
	if !retry.Sleep(ctx, time.Until(s.cursor.BegunAt.Add(s.cfg.Interval))) {
		return ctx.Err()
	}
	last, _ := s.cursor.Passes()
	s.cursor = wire.ScrubCursor{BegunAt: time.Now().UTC(), LastPass: last}
	return s.saveAndReport(ctx)
}

// pass continues a pass to its end.
func (s *Scrub) pass(ctx context.Context) error {
	from := s.cursor
	for instrument, err := range manifest.Instruments(ctx, s.cfg.Store, s.cfg.Site) {
		if err != nil {
			return err
		}
		if instrument < from.Instrument {
			continue
		}
		for day, err := range manifest.Days(ctx, s.cfg.Store, s.cfg.Site, instrument) {
			if err != nil {
				return err
			}
			if instrument == from.Instrument && day < from.Day {
				continue
			}
			if err := s.day(ctx, instrument, day); err != nil {
				return err
			}
		}
	}
	_, ended := s.cursor.Passes()
	now := time.Now().UTC()
	ended.EndedAt, ended.Instrument, ended.Day = &now, "", ""
	s.cursor.LastPass = ended
	s.cursor.Done, s.cursor.Instrument, s.cursor.Day, s.cursor.Records = true, "", "", 0
	s.cfg.Log.Info("the scrub read the whole archive", "objects", s.cursor.Objects, "bytes", s.cursor.Bytes,
		"damaged", s.cursor.Damaged, "took", time.Since(s.cursor.BegunAt).Round(time.Second))
	return s.saveAndReport(ctx)
}

// day reads the objects of a day, from where the cursor is in it.
func (s *Scrub) day(ctx context.Context, instrument string, day wire.Day) error {
	skip := 0
	if s.cursor.Instrument == instrument && s.cursor.Day == day {
		skip = s.cursor.Records
	}
	s.cursor.Instrument, s.cursor.Day, s.cursor.Records = instrument, day, 0
	for r, err := range manifest.Records(ctx, s.cfg.Store, s.cfg.Site, instrument, day) {
		if errors.Is(err, wire.ErrMalformed) {
			s.cfg.Metrics.unreadable.Inc()
			s.cursor.Unreadable++
			s.cfg.Log.Error("cannot read a manifest: run substorm archive rebuild", "instrument", instrument, "day", day, "error", err)
			return s.unreadableDay(ctx, instrument, day)
		}
		if err != nil {
			return err
		}
		if s.cursor.Records++; s.cursor.Records <= skip || !bucket.Holds(r) {
			continue
		}
		if err := s.object(ctx, instrument, r); err != nil {
			s.cursor.Records--
			return err
		}
		if time.Since(s.saved) > saveEvery {
			if err := s.save(ctx); err != nil {
				return err
			}
		}
		if time.Since(s.reported) > reportEvery {
			if err := s.report(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// unreadableDay notes which files of a day's manifest cannot be read.
func (s *Scrub) unreadableDay(ctx context.Context, instrument string, day wire.Day) error {
	bad, err := s.unreadable(ctx, instrument, day)
	if err != nil {
		return err
	}
	start, err := day.Start()
	if err != nil {
		return nil // it is not listed
	}
	for _, key := range bad {
		d := wire.DamageOf(instrument, wire.Record{ID: key, Key: key, ReceivedAt: start}, wire.DamageDamaged, s.cfg.Pod, time.Now())
		d.Confirmed = true
		if err := s.findings.confirm(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// object reads one object. If anything is wrong, it is looked at once more.
func (s *Scrub) object(ctx context.Context, instrument string, r wire.Record) error {
	cause, err := s.check(ctx, r)
	if err != nil {
		return err
	}
	s.cursor.Objects++
	s.cursor.Bytes += uint64(r.Size)
	s.cfg.Metrics.objects.Inc()
	s.cfg.Metrics.bytes.Add(float64(r.Size))
	d := wire.DamageOf(instrument, r, cause, s.cfg.Pod, time.Now())
	if cause == "" {
		return s.findings.healed(ctx, d)
	}
	if s.findings.has(d) {
		s.cursor.Damaged++
		return nil
	}
	if err := s.checkDamage(ctx, d); err != nil {
		return err
	}
	if s.findings.has(d) {
		s.cursor.Damaged++
	}
	return nil
}

// check returns what is wrong with an object, or nothing.
func (s *Scrub) check(ctx context.Context, r wire.Record) (wire.DamageCause, error) {
	if err := s.pace.wait(ctx, requestCost); err != nil {
		return "", err
	}
	err := bucket.Verify(ctx, s.cfg.Store, r, s.pace.through(ctx))
	switch {
	case errors.Is(err, bucket.ErrMissing):
		return wire.DamageMissing, nil
	case errors.Is(err, objectpath.ErrDamaged):
		return wire.DamageDamaged, nil
	default:
		return "", err
	}
}

func (s *Scrub) save(ctx context.Context) error {
	if err := s.cfg.Lease.Check(); err != nil {
		return err
	}
	value, err := wire.Encode(s.cursor)
	if err != nil {
		return err
	}
	s.saved = time.Now()
	return s.cell.Store(ctx, value)
}

func (s *Scrub) saveAndReport(ctx context.Context) error {
	if err := s.save(ctx); err != nil {
		return err
	}
	return s.report(ctx)
}

// report says when the archive was last read, and how far the pass has come that is under
// way.
func (s *Scrub) report(ctx context.Context) error {
	if err := s.cfg.Lease.Check(); err != nil {
		return err
	}
	status := wire.ScrubStatus{ReportedAt: time.Now().UTC()}
	if status.LastPass, status.Pass = s.cursor.Passes(); status.LastPass != nil && status.LastPass.EndedAt != nil {
		s.cfg.Metrics.passed.Set(float64(status.LastPass.EndedAt.Unix()))
	}
	value, err := wire.Encode(status)
	if err != nil {
		return err
	}
	if _, err := s.findings.status.Put(ctx, wire.ScrubStatusKey, value); err != nil {
		return fmt.Errorf("write %s of %s: %w", wire.ScrubStatusKey, wire.StatusBucket(s.cfg.Site), err)
	}
	s.reported = time.Now()
	return nil
}
