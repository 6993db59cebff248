// SPDX-License-Identifier: Apache-2.0

package mirrorjobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/schedule"
	"github.com/substorm/substorm/internal/wire"
)

// timetablePart is the part of a partner's cursors that says when its last scheduled run began.
const timetablePart = "timetable"

// began is what it holds.
type began struct {
	// At is the time of the schedule that the run was due at.
	At time.Time `json:"at"`
}

// keep begins runs as the schedule says, where nothing starts Jobs. One that was missed while
// the program did not run is made up for.
func (p *program) keep(ctx context.Context) error {
	cursors, err := p.js.KeyValue(ctx, wire.CursorBucket(p.cfg.Site))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", wire.CursorBucket(p.cfg.Site), err)
	}
	for {
		entry, err := p.entry(ctx)
		if err != nil {
			return err
		}
		if err := p.whenDue(ctx, cursors, entry); err != nil && ctx.Err() == nil {
			p.log.Warn("a run failed", "error", err)
		}
		if !retry.Sleep(ctx, lookEvery) {
			return nil
		}
	}
}

// whenDue makes a run if one is due.
func (p *program) whenDue(ctx context.Context, cursors jetstream.KeyValue, entry wire.MirrorEntry) error {
	if entry.Schedule == nil || entry.Suspended {
		return nil
	}
	times, err := schedule.Parse(entry.Schedule.Cron, entry.Schedule.TimeZone)
	if err != nil {
		return err
	}
	key := wire.MirrorCursorKey(p.cfg.Partner, timetablePart)
	last, err := lastBegan(ctx, cursors, key)
	if err != nil {
		return err
	}
	at, due, missed := times.Due(last.At, time.Now(), time.Duration(entry.Schedule.StartingDeadlineMillis)*time.Millisecond)
	if missed {
		p.log.Warn("a run was missed: it could not begin within spec.schedule.startingDeadline", "due", at)
	}
	if !due && !missed && !last.At.IsZero() {
		return nil
	}
	if last.At.IsZero() { // the schedule is in force from now on
		at, due = time.Now().UTC(), false
	}
	value, err := wire.Encode(began{at})
	if err == nil {
		_, err = cursors.Put(ctx, key, value)
	}
	if err != nil || !due {
		return err
	}
	run := fmt.Sprintf("%s-mirror-%d", p.cfg.Partner, at.Unix()/60) // as a CronJob names its Jobs
	p.log.Info("a run begins", "name", run, "due", at)
	p.report.about(run)
	return p.once(ctx, entry)
}

// lastBegan is when the last run was due that began; zero: none yet.
func lastBegan(ctx context.Context, cursors jetstream.KeyValue, key string) (began, error) {
	e, err := cursors.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return began{}, nil
	}
	if err != nil {
		return began{}, fmt.Errorf("cursor %s: %w", key, err)
	}
	return wire.Decode[began](e.Value())
}
