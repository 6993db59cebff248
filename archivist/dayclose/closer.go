// SPDX-License-Identifier: Apache-2.0

// Package dayclose writes days that are over into the bucket: of the ledger, and of the
// gaps of instruments, whose open days live in key-value buckets alone.
//
// A day is closed when nothing of it can come from a spool any more. Data that comes nevertheless opens it
// again, and it is closed as a new version: versions are created and never replaced, so that two that
// close at one time, or a kill, harm nothing.
package dayclose

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// Defaults of Config.
const (
	// DefaultInterval is how often is looked what may be closed.
	DefaultInterval = 10 * time.Minute
	// DefaultAfter is when a day may be closed, after its end.
	DefaultAfter = 24 * time.Hour
	// DefaultSettle is how long nothing may have come of a day that was closed before.
	DefaultSettle = time.Hour
	// insist is how long after its last version a day is closed again even if entries for it keep
	// coming.
	insist = 24 * time.Hour
)

// Config says whose days these are. Durations that are not set have the defaults.
type Config struct {
	holder.Base

	// Agree returns stream.ErrClock if a second clock does not agree with ours: then no day is
	// closed. Optional: by default the clock of the NATS server is asked.
	Agree func(ctx context.Context, ours time.Time) error

	Interval, After, Settle time.Duration

	Metrics *Metrics
}

// Closer works while one lease lasts.
type Closer struct {
	cfg    Config
	kinds  []*kind
	status jetstream.KeyValue
	closed atomic.Pointer[wire.Day]
	spools atomic.Pointer[spools]
}

// New returns a closer; Run runs it.
func New(cfg Config) *Closer {
	for _, d := range []struct {
		value *time.Duration
		or    time.Duration
	}{{&cfg.Interval, DefaultInterval}, {&cfg.After, DefaultAfter}, {&cfg.Settle, DefaultSettle}} {
		if *d.value <= 0 {
			*d.value = d.or
		}
	}
	if cfg.Agree == nil {
		cfg.Agree = stream.ServerAgrees(cfg.JetStream, wire.StatusBucket(cfg.Site))
	}
	return &Closer{cfg: cfg, kinds: []*kind{{cfg: cfg, kind: wire.KindLedger}, {cfg: cfg, kind: wire.KindGaps}}}
}

// ClosedTo returns the last day of the ledger that is closed with all before it; empty
// while none is known to be. It may be asked from any goroutine.
func (c *Closer) ClosedTo() wire.Day {
	if day := c.closed.Load(); day != nil {
		return *day
	}
	return ""
}

// Run closes days, at once and then each interval, until ctx ends. Errors:
// wire.ErrNewerFormat, stream.ErrLeaseLost, stream.ErrConflict, and what keeps
// JetStream or the store from answering.
func (c *Closer) Run(ctx context.Context) error {
	for {
		if err := c.pass(ctx, time.Now().UTC()); err != nil {
			return fmt.Errorf("close days: %w", err)
		}
		if !retry.Sleep(ctx, c.cfg.Interval) {
			return ctx.Err()
		}
	}
}

func (c *Closer) pass(ctx context.Context, now time.Time) error {
	settled, waits, err := c.horizon(ctx, now)
	if err != nil {
		return err
	}
	err = c.cfg.Agree(ctx, now)
	if err != nil && !errors.Is(err, stream.ErrClock) {
		return err
	}
	if err != nil {
		c.cfg.Log.Error("no day is closed for now", "error", err)
		settled, waits = time.Time{}, err.Error()
	}
	for _, k := range c.kinds {
		err := k.pass(ctx, now, settled)
		if k.kind == wire.KindGaps && errors.Is(err, jetstream.ErrBucketNotFound) {
			continue // an older operator made the Site
		}
		if err != nil {
			return err
		}
	}
	return c.report(ctx, now, settled, waits)
}

// report says how far the ledger is closed.
func (c *Closer) report(ctx context.Context, now, settled time.Time, waits string) error {
	ledger := c.kinds[0]
	status := wire.LedgerStatus{ReportedAt: now, ClosedTo: ledger.closedTo(settled), WaitsFor: waits, Reopened: ledger.reopened()}
	c.cfg.Metrics.reopened.Set(float64(len(status.Reopened)))
	status.Reopened = status.Reopened[:min(len(status.Reopened), wire.MaxReopened)]
	if start, err := status.ClosedTo.Start(); err == nil {
		c.cfg.Metrics.closed.Set(float64(start.AddDate(0, 0, 1).Unix()))
	}
	c.closed.Store(&status.ClosedTo)
	value, err := wire.Encode(status)
	if err != nil {
		return err
	}
	if c.status == nil {
		if c.status, err = c.cfg.JetStream.KeyValue(ctx, wire.StatusBucket(c.cfg.Site)); err != nil {
			return err
		}
	}
	_, err = c.status.Put(ctx, wire.LedgerStatusKey, value)
	return err
}

// kind closes the days of one bucket.
type kind struct {
	cfg    Config
	kind   wire.DayKind
	kv     jetstream.KeyValue
	cell   *stream.Cell
	cursor wire.ClosingCursor
	// epoch of the bucket that was opened.
	epoch string
	// versions are the newest of those days that were looked at.
	versions map[wire.Day]int
	// changed says when a day last changed, of those that are open.
	changed map[wire.Day]time.Time
}

func (k *kind) bucket() string {
	if k.kind == wire.KindGaps {
		return wire.GapsBucket(k.cfg.Site)
	}
	return wire.LedgerBucket(k.cfg.Site)
}

func (k *kind) pass(ctx context.Context, now, settled time.Time) error {
	if err := k.load(ctx); err != nil {
		return err
	}
	before, err := wire.Encode(k.cursor)
	if err != nil {
		return err
	}
	if err := k.follow(ctx); err != nil {
		return err
	}
	var open []wire.Day
	for _, day := range k.cursor.Open {
		done, err := k.close(ctx, day, now, settled)
		if err != nil {
			return fmt.Errorf("%s of %s: %w", k.kind, day, err)
		}
		if !done {
			open = append(open, day)
		}
	}
	k.cursor.Open = open
	after, err := wire.Encode(k.cursor)
	if err != nil || bytes.Equal(before, after) {
		return err
	}
	return k.cell.Store(ctx, after)
}

// load opens the bucket and reads how far it was followed. A bucket that was recreated gets back
// what is known of it, and is followed from its beginning.
func (k *kind) load(ctx context.Context) error {
	kv, err := k.cfg.JetStream.KeyValue(ctx, k.bucket())
	if err != nil {
		return fmt.Errorf("bucket %s: %w", k.bucket(), err)
	}
	epoch, _, err := stream.Epoch(ctx, k.cfg.JetStream, "KV_"+k.bucket())
	if err != nil {
		return err
	}
	if k.cell != nil && k.epoch == epoch {
		return nil
	}
	cursors, err := k.cfg.JetStream.KeyValue(ctx, wire.CursorBucket(k.cfg.Site))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", wire.CursorBucket(k.cfg.Site), err)
	}
	cell := stream.NewCell(k.cfg.JetStream, cursors, wire.ClosingCursorKey(k.kind))
	data, err := cell.Load(ctx)
	if err != nil {
		return err
	}
	var cursor wire.ClosingCursor
	if data != nil {
		if cursor, err = wire.Decode[wire.ClosingCursor](data); err != nil {
			return fmt.Errorf("cursor %s: %w", wire.ClosingCursorKey(k.kind), err)
		}
	}
	if cursor.Epoch != epoch {
		if err := k.restore(ctx, kv); err != nil {
			return err
		}
		cursor.Epoch, cursor.Revision = epoch, 0
	}
	k.kv, k.cell, k.cursor, k.epoch = kv, cell, cursor, epoch
	k.versions, k.changed = map[wire.Day]int{}, map[wire.Day]time.Time{}
	return nil
}

// follow opens the days that changed since the last pass.
func (k *kind) follow(ctx context.Context) error {
	return stream.EntriesSince(ctx, k.kv, ">", k.cursor.Revision, func(e jetstream.KeyValueEntry) error {
		k.cursor.Revision = max(k.cursor.Revision, e.Revision())
		day, err := k.kind.DayOfEntry(e.Key())
		if err != nil {
			k.cfg.Log.Warn("ignoring an entry that belongs to no day", "bucket", k.bucket(), "entry", e.Key(), "error", err)
			return nil
		}
		if at, open := slices.BinarySearch(k.cursor.Open, day); !open {
			k.cursor.Open = slices.Insert(k.cursor.Open, at, day)
		}
		if e.Created().After(k.changed[day]) {
			k.changed[day] = e.Created()
		}
		return nil
	})
}

// closedTo returns the last day that is closed with all days before it; nothing that
// was received before settled is on its way.
func (k *kind) closedTo(settled time.Time) wire.Day {
	if settled.IsZero() {
		return ""
	}
	last := wire.DayOf(settled.Add(-24 * time.Hour))
	if len(k.cursor.Open) == 0 || k.cursor.Open[0] > last {
		return last
	}
	start, err := k.cursor.Open[0].Start()
	if err != nil {
		return ""
	}
	return wire.DayOf(start.Add(-time.Hour))
}

// reopened returns the days that have a version and changed since.
func (k *kind) reopened() []wire.Day {
	var days []wire.Day
	for _, day := range k.cursor.Open {
		if k.versions[day] > 0 {
			days = append(days, day)
		}
	}
	return days
}
