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

// followSchedule begins runs as the schedule says, if nothing starts Jobs. A run that was missed while the program did not run is made up for, and
// so is one whose time came during the previous run, unless it replaces that one: a CronJob does the same.
func (p *program) followSchedule(ctx context.Context) error {
	cursors, err := p.js.KeyValue(ctx, wire.CursorBucket(p.cfg.Site))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", wire.CursorBucket(p.cfg.Site), err)
	}
	lasting := &scheduledRun{}
	defer lasting.end()
	for {
		entry, err := p.entry(ctx)
		if err != nil {
			return err
		}
		if !lasting.lasts() || entry.Schedule != nil && entry.Schedule.Concurrency == wire.MirrorReplace {
			if err := p.beginIfDue(ctx, cursors, entry, lasting); err != nil && ctx.Err() == nil {
				p.log.Warn("no run can begin", "error", err)
			}
		}
		if !retry.Sleep(ctx, lookEvery) {
			return nil
		}
	}
}

// scheduledRun is the one that was begun last.
type scheduledRun struct {
	stop  context.CancelFunc
	ended chan struct{}
}

// lasts says whether it has not ended.
func (s *scheduledRun) lasts() bool {
	if s.ended == nil {
		return false
	}
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// end tells it to stop, and waits until it has.
func (s *scheduledRun) end() {
	if s.ended != nil {
		s.stop()
		<-s.ended
	}
}

// beginIfDue begins a run if one is due. One that lasts is stopped first.
func (p *program) beginIfDue(ctx context.Context, cursors jetstream.KeyValue, entry wire.MirrorEntry, lasting *scheduledRun) error {
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
	if lasting.lasts() {
		p.log.Info("a run is stopped: the next one takes its place", "due", at)
	}
	lasting.end()
	p.begin(ctx, entry, at, lasting)
	return nil
}

// begin begins the run that is due at a time.
func (p *program) begin(ctx context.Context, entry wire.MirrorEntry, at time.Time, run *scheduledRun) {
	name := fmt.Sprintf("%s-mirror-%d", p.cfg.Partner, at.Unix()/60) // as a CronJob names its Jobs
	p.log.Info("a run begins", "name", name, "due", at)
	p.report.setRun(name)
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	run.stop, run.ended = stop, ended
	go func() {
		defer close(ended)
		defer stop()
		if err := p.once(ctx, entry, false); err != nil && ctx.Err() == nil {
			p.log.Warn("a run failed", "error", err)
		}
	}()
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
