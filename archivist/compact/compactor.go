// SPDX-License-Identifier: Apache-2.0

// Package compact tidies closed days: small objects of an instrument move into packs of their own, the
// day's manifest becomes one file, and objects that no manifest names any more are removed after a while.
// It also rewrites a pack without one of its members.
//
// The order makes a kill harmless at any point: first new packs, which no manifest names yet; then a new
// version of each manifest, with the new places; then, after readers have had time to learn them, the old
// packs are removed. A step that one process does twice has the same result: a pack's key follows from its
// contents and its writer, and a version is stored once.
package compact

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/substorm/substorm/archivist/deletion"
	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/archivist/index"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// Defaults of Config.
const (
	// DefaultInterval is how often days are looked at.
	DefaultInterval = time.Hour
	// DefaultCloseAfter is when a day is closed, after its end.
	DefaultCloseAfter = 24 * time.Hour
	// DefaultGrace is how long what was replaced stays: a reader that holds a place
	// reads it within that.
	DefaultGrace = 24 * time.Hour
	// DefaultPackSize bounds a compacted pack, in bytes.
	DefaultPackSize = 64 << 20
	// again is for how many days back data that came late is still compacted.
	again = 8
)

// Config says whose days these are. Durations and sizes that are not set have
// the defaults.
type Config struct {
	holder.Base

	// PackBelow is the size, in bytes, of the objects of an instrument that are
	// packed.
	PackBelow func(instrument string) int64
	// Deleter deletes what nothing names any more.
	Deleter *deletion.Deleter
	// Scarce says whether the disk has too little space for a day to be compacted. Optional: it has.
	Scarce func() bool

	// Agree returns stream.ErrClock if a second clock does not agree with ours: then nothing is
	// compacted or deleted. Optional: by default the clock of the NATS server is asked.
	Agree func(ctx context.Context, ours time.Time) error
	// Interval, CloseAfter, Grace and PackSize are as their defaults say.
	Interval, CloseAfter, Grace time.Duration
	PackSize                    int64
	// ScratchDir holds a pack and a manifest while they are written.
	ScratchDir string
	// Index tells readers which version of a day is in effect. Optional.
	Index *index.Keeper

	Metrics *Metrics
}

// Compactor works while one lease lasts.
type Compactor struct {
	cfg Config
	// work is held by the goroutine that writes a new version of a manifest.
	work   sync.Mutex
	cell   *stream.Cell
	cursor wire.CompactCursor
	// collected says of days that are free of what was replaced when their newest
	// manifest was stored.
	collected map[wire.Day]time.Time
}

// New returns a compactor; Run runs it.
func New(cfg Config) *Compactor {
	for _, d := range []struct {
		value *time.Duration
		or    time.Duration
	}{{&cfg.Interval, DefaultInterval}, {&cfg.CloseAfter, DefaultCloseAfter}, {&cfg.Grace, DefaultGrace}} {
		if *d.value <= 0 {
			*d.value = d.or
		}
	}
	if cfg.Agree == nil {
		cfg.Agree = stream.ServerAgrees(cfg.JetStream, wire.CursorBucket(cfg.Site))
	}
	if cfg.PackSize <= 0 {
		cfg.PackSize = DefaultPackSize
	}
	return &Compactor{cfg: cfg, collected: map[wire.Day]time.Time{}}
}

// Run compacts closed days, at once and then each interval, until ctx ends. A day whose
// manifest cannot be decoded waits for a later pass, and all packs of it stay. Errors: wire.ErrNewerFormat, manifest.ErrFenced, stream.ErrLeaseLost, and what keeps
// JetStream or the store from answering.
func (c *Compactor) Run(ctx context.Context) error {
	if err := c.load(ctx); err != nil {
		return err
	}
	for {
		if err := c.pass(ctx, time.Now().UTC()); err != nil {
			return err
		}
		if !retry.Sleep(ctx, c.cfg.Interval) {
			return ctx.Err()
		}
	}
}

func (c *Compactor) load(ctx context.Context) error {
	cursors, err := c.cfg.JetStream.KeyValue(ctx, wire.CursorBucket(c.cfg.Site))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", wire.CursorBucket(c.cfg.Site), err)
	}
	c.cell = stream.NewCell(c.cfg.JetStream, cursors, wire.CompactCursorKey)
	data, err := c.cell.Load(ctx)
	if err != nil || data == nil {
		return err
	}
	if c.cursor, err = wire.Decode[wire.CompactCursor](data); err != nil {
		return fmt.Errorf("cursor %s: %w", wire.CompactCursorKey, err)
	}
	return nil
}

// pass looks at all days that may need work, the oldest first.
func (c *Compactor) pass(ctx context.Context, now time.Time) error {
	err := c.cfg.Agree(ctx, now)
	if errors.Is(err, stream.ErrClock) {
		c.cfg.Log.Error("no day is compacted for now", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	days, err := c.days(ctx, now)
	if err != nil {
		return err
	}
	through := true // all before are done
	for _, d := range days {
		done, err := c.day(ctx, d.day, d.instruments, now)
		if err != nil {
			return fmt.Errorf("compact %s: %w", d.day, err)
		}
		through = through && done
		if !through || d.day <= c.cursor.Through {
			continue
		}
		c.cursor.Through = d.day
		value, err := wire.Encode(c.cursor)
		if err != nil {
			return err
		}
		if err := c.cell.Store(ctx, value); err != nil {
			return err
		}
		if start, err := d.day.Start(); err == nil {
			c.cfg.Metrics.through.Set(float64(start.AddDate(0, 0, 1).Unix()))
		}
	}
	return nil
}

// openDay is a day with the instruments that have something listed.
type openDay struct {
	day         wire.Day
	instruments []string
}

// days returns the closed days that may need work, in order.
func (c *Compactor) days(ctx context.Context, now time.Time) ([]openDay, error) {
	from := min(c.cursor.Through, wire.DayOf(now.AddDate(0, 0, -again)))
	last := wire.DayOf(now.Add(-c.cfg.CloseAfter - 24*time.Hour))
	found := map[wire.Day][]string{}
	for instrument, err := range manifest.Instruments(ctx, c.cfg.Store, c.cfg.Site) {
		if err != nil {
			return nil, err
		}
		for day, err := range manifest.Days(ctx, c.cfg.Store, c.cfg.Site, instrument) {
			if err != nil {
				return nil, err
			}
			if day >= from && day <= last {
				found[day] = append(found[day], instrument)
			}
		}
	}
	return inOrder(found), nil
}

// day does what is to be done for one day, and says whether all is done.
func (c *Compactor) day(ctx context.Context, day wire.Day, instruments []string, now time.Time) (bool, error) {
	c.work.Lock()
	defer c.work.Unlock()
	var newest time.Time
	readable, scarce := true, false
	for _, instrument := range instruments {
		at, err := c.compact(ctx, instrument, day)
		if errors.Is(err, wire.ErrMalformed) {
			c.skip(day, instrument, err)
			readable = false
			continue
		}
		if errors.Is(err, errScarce) {
			scarce = true
			continue
		}
		if err != nil {
			return false, fmt.Errorf("instrument %s: %w", instrument, err)
		}
		if at.After(newest) {
			newest = at
		}
	}
	switch {
	case !readable: // what cannot be read may name any pack of the day
		return false, nil
	case scarce:
		c.cfg.Log.Warn("a day is not compacted while the disk budget is nearly used up", "day", day)
		return false, nil
	case c.collected[day].Equal(newest):
		return true, nil
	case now.Sub(newest) < c.cfg.Grace:
		return false, nil
	}
	done, err := c.collect(ctx, day, instruments, now)
	if errors.Is(err, wire.ErrMalformed) { // of the day of an original, say
		c.skip(day, "", err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if done {
		c.collected[day] = newest
	}
	return done, nil
}

// errScarce: the disk has too little space to compact a day.
var errScarce = errors.New("the disk budget is nearly used up")

// skip says that a day waits for a later pass: other days continue.
func (c *Compactor) skip(day wire.Day, instrument string, err error) {
	c.cfg.Log.Error("cannot compact a day, as a manifest cannot be read: run substorm archive rebuild",
		"day", day, "instrument", instrument, "error", err)
}
