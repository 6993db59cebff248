// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// mostDays bounds the days in which is looked for what a previous incarnation wrote.
const mostDays = 400

// withWritten completes the final totals of a previous incarnation by what it wrote itself: a power cut may have left
// less in its counters.
func (l *Ledger) withWritten(ctx context.Context, p *previous, final map[stepKey]wire.Totals) error {
	for k, t := range final {
		e, err := l.entry(ctx, k.key(l.cfg.Gateway))
		if err != nil {
			return err
		}
		if k.step == wire.StepReceived {
			final[k] = atLeastWritten(t, e.Incarnations[p.incarnation])
		}
	}
	now := time.Now()
	since := p.countedAt.Add(-24 * time.Hour)
	if oldest := now.AddDate(0, 0, -mostDays); since.Before(oldest) {
		since = oldest
	}
	for at := since; !at.After(now.Add(24 * time.Hour)); at = at.Add(24 * time.Hour) {
		if err := l.unannounced(ctx, p, wire.DayOf(at), final); err != nil {
			return err
		}
	}
	return nil
}

// atLeastWritten returns totals of StepReceived whose counts that only grow are no less than was written.
func atLeastWritten(t, written wire.Totals) wire.Totals {
	t.Acknowledged = max(t.Acknowledged, written.Acknowledged)
	t.UnfinishedBytes = max(t.UnfinishedBytes, written.UnfinishedBytes)
	t.Unfinished, t.Dropped = most(t.Unfinished, written.Unfinished), most(t.Dropped, written.Dropped)
	return t
}

// most leaves out CauseKilled: that is found anew in each pass.
func most(a, b map[wire.Cause]uint64) map[wire.Cause]uint64 {
	out := maps.Clone(a)
	for cause, n := range b {
		if cause != wire.CauseKilled && n > out[cause] {
			if out == nil {
				out = map[wire.Cause]uint64{}
			}
			out[cause] = n
		}
	}
	return out
}

// unannounced finds what of a day an incarnation wrote to have received, and never announced, and of which its counters
// know nothing: it waits in the spool, where the next one counts it, or is lost. A day that was dropped from memory is
// not among that: all of it was announced before.
func (l *Ledger) unannounced(ctx context.Context, p *previous, day wire.Day, final map[stepKey]wire.Totals) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	watcher, err := l.writer.kv.Watch(ctx, wire.LedgerKey("*", day, wire.StepReceived, l.cfg.Gateway), jetstream.IgnoreDeletes(), jetstream.MetaOnly())
	if err != nil {
		return fmt.Errorf("ledger of %s: %w", day, err)
	}
	defer func() { _ = watcher.Stop() }()
	for {
		var value jetstream.KeyValueEntry
		select {
		case value = <-watcher.Updates():
		case <-ctx.Done():
			return fmt.Errorf("ledger of %s: %w", day, context.Cause(ctx))
		}
		if value == nil { // these are all, or the connection ended and the puts will fail
			return nil
		}
		instrument, _, _, _, err := wire.ParseLedgerKey(value.Key())
		if err != nil {
			continue // nothing of ours
		}
		if err := l.takeBack(ctx, p, dayKey{instrument, day}, final); err != nil {
			return err
		}
	}
}

func (l *Ledger) takeBack(ctx context.Context, p *previous, k dayKey, final map[stepKey]wire.Totals) error {
	written := map[wire.Step]wire.Totals{}
	for _, step := range ledgerSteps {
		if _, known := final[stepKey{k, step}]; known {
			return nil
		}
		e, err := l.entry(ctx, wire.LedgerKey(k.instrument, k.day, step, l.cfg.Gateway))
		if err != nil {
			return err
		}
		written[step] = e.Incarnations[p.incarnation]
	}
	if written[wire.StepReceived].Objects == 0 || written[wire.StepAnnounced].Objects > 0 || written[wire.StepAnnounced].Datagrams > 0 {
		return nil
	}
	final[stepKey{k, wire.StepReceived}] = atLeastWritten(wire.Totals{}, written[wire.StepReceived])
	final[stepKey{k, wire.StepStored}] = wire.Totals{}
	return nil
}

// countedAt is when an incarnation still counted: then, or later, its last counts were written.
func countedAt(path string) (time.Time, error) {
	info, err := os.Stat(path + countersExtension)
	if err != nil {
		info, err = os.Stat(path + checkpointExtension)
	}
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}
