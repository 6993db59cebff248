// SPDX-License-Identifier: Apache-2.0

package gaps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// DefaultInterval is how often days are compared with the archive.
	DefaultInterval = 5 * time.Minute
	// unready is how often it is asked at the start whether the registry and the index are known.
	unready = time.Second
	// lookback is how many days back late data still fills gaps, and begin how many days back an
	// instrument is examined that has no gap report yet.
	lookback, begin = 90, 7
	// listing is how long it takes until what is archived is listed, at the latest.
	listing = 2 * time.Minute
	// writeEvery is how often a day is written if only its Until changed.
	writeEvery = 10 * time.Minute
)

// Config says whose instruments these are.
type Config struct {
	holder.Base

	// Declared returns the entries of all instruments of the registry, and false
	// before there is one.
	Declared func() ([]wire.InstrumentEntry, bool)
	// Complete says whether the index knows all that is listed: until then it is unknown what is
	// missing.
	Complete func() bool
	// Interval is as its default says.
	Interval time.Duration

	Metrics *Metrics
}

// Keeper works while one lease lasts.
type Keeper struct {
	cfg         Config
	kv          jetstream.KeyValue
	index       jetstream.KeyValue
	status      jetstream.KeyValue
	ledger      jetstream.KeyValue
	instruments map[string]*instrument
}

// instrument is what is remembered between two passes.
type instrument struct {
	name string
	// next is the first day that was not looked at when all of it was due.
	next wire.Day
	// again are earlier days that have gaps.
	again map[wire.Day]bool
	// marks are the days of receipt, as the index's entry of a revision has them; since
	// is when the instrument first observed. At first it is fresh.
	marks    []mark
	revision uint64
	since    time.Time
	first    first
	fresh    bool
	// read is what was read of the last days.
	read map[wire.Day]reading
}

// New returns a keeper; Run runs it.
func New(cfg Config) *Keeper {
	if cfg.Interval <= 0 {
		cfg.Interval = DefaultInterval
	}
	return &Keeper{cfg: cfg, instruments: map[string]*instrument{}}
}

// Run looks for gaps until ctx ends. Failures are logged, counted and retried: nothing of the archive waits
// for it. Errors: only ctx's and the lease's.
func (k *Keeper) Run(ctx context.Context) error {
	said := ""
	for {
		looked, err := k.pass(ctx, time.Now().UTC())
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, stream.ErrLeaseLost):
			return err
		case err != nil && err.Error() != said:
			said = err.Error()
			k.cfg.Log.Warn("cannot look for gaps now", "error", err)
		case err == nil:
			said = ""
		}
		wait := k.cfg.Interval
		if !looked {
			wait = min(wait, unready)
		}
		if !retry.Sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}

func (k *Keeper) open(ctx context.Context) error {
	if k.kv != nil {
		return nil
	}
	buckets := map[string]*jetstream.KeyValue{
		wire.IndexBucket(k.cfg.Site): &k.index, wire.StatusBucket(k.cfg.Site): &k.status, wire.LedgerBucket(k.cfg.Site): &k.ledger,
	}
	for name, kv := range buckets {
		var err error
		if *kv, err = k.cfg.JetStream.KeyValue(ctx, name); err != nil {
			return fmt.Errorf("bucket %s: %w", name, err)
		}
	}
	kv, err := k.cfg.JetStream.KeyValue(ctx, wire.GapsBucket(k.cfg.Site))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", wire.GapsBucket(k.cfg.Site), err)
	}
	k.kv = kv
	return nil
}

// pass looks at all instruments, and says whether it could: not before the registry and the index are known. If some of the
// instruments fail, it returns the first error.
func (k *Keeper) pass(ctx context.Context, now time.Time) (bool, error) {
	declared, known := k.cfg.Declared()
	if !known || !k.cfg.Complete() {
		return false, nil
	}
	if err := k.open(ctx); err != nil {
		return true, err
	}
	settled, err := k.settled(ctx, now)
	if err != nil {
		return true, err
	}
	var first error
	names := map[string]bool{}
	for _, entries := range byStation(declared) {
		st := &station{keeper: k, now: now, settled: settled}
		for _, e := range entries {
			names[e.Instrument] = true
			st.members = append(st.members, &member{entry: e})
		}
		err := st.compareDays(ctx)
		if ctx.Err() != nil || errors.Is(err, stream.ErrLeaseLost) {
			return true, err
		}
		if first == nil {
			first = err
		}
	}
	maps.DeleteFunc(k.instruments, func(name string, _ *instrument) bool { return !names[name] })
	return true, first
}

// begin reads what was said of an instrument.
func (k *Keeper) begin(ctx context.Context, name string, now time.Time) (*instrument, error) {
	i := &instrument{name: name, next: wire.DayOf(now.AddDate(0, 0, -begin)), again: map[wire.Day]bool{}, read: map[wire.Day]reading{}, fresh: true}
	oldest := wire.DayOf(now.AddDate(0, 0, -lookback))
	err := stream.Entries(ctx, k.cfg.JetStream, k.kv, wire.GapsKey(name, "*"), func(entry jetstream.KeyValueEntry) error {
		_, day, err := wire.ParseGapsKey(entry.Key())
		if err != nil || day < oldest {
			return nil
		}
		stored, err := wire.Decode[wire.DayGaps](entry.Value())
		if err != nil {
			return fmt.Errorf("entry %s of %s: %w", entry.Key(), k.kv.Bucket(), err)
		}
		if slices.ContainsFunc(stored.Gaps, func(g wire.MissingGap) bool { return g.ClosedAt == nil }) {
			i.again[day] = true
		}
		if start, err := day.Start(); err == nil && !stored.Until.Before(start.AddDate(0, 0, 1)) {
			i.next = max(i.next, wire.DayOf(start.AddDate(0, 0, 1)))
		}
		return nil
	})
	return i, err
}

// due returns the days to look at, ascending: what is new, what changed, and at first
// what has gaps.
func (i *instrument) due(changed []wire.Day, now time.Time) []wire.Day {
	days := map[wire.Day]bool{}
	today := wire.DayOf(now)
	for at := now; wire.DayOf(at) >= i.next; at = at.AddDate(0, 0, -1) {
		days[wire.DayOf(at)] = true
	}
	for _, day := range changed {
		if day <= today {
			days[day] = true
		}
	}
	if i.fresh {
		maps.Copy(days, i.again)
		i.fresh = false
	}
	return slices.Sorted(maps.Keys(days))
}

// forget lets go of what was read of days that are done with.
func (i *instrument) forget(now time.Time) {
	keep := wire.DayOf(now.AddDate(0, 0, -1))
	maps.DeleteFunc(i.read, func(day wire.Day, _ reading) bool { return day < keep })
}

func (k *Keeper) readGaps(ctx context.Context, name string, day wire.Day) (*wire.DayGaps, error) {
	stored, revision, err := stream.Record[wire.DayGaps](ctx, k.kv, wire.GapsKey(name, day))
	if err != nil || revision == 0 {
		return nil, err
	}
	return &stored, nil
}

// worthWriting: that time passed alone is not, but now and then.
func worthWriting(before, after *wire.DayGaps) bool {
	if before == nil {
		return after.Due > 0 || len(after.Gaps) > 0 || len(after.Excused) > 0
	}
	end := func(d *wire.DayGaps) bool { return d.Until.Equal(d.Until.Truncate(24 * time.Hour)) }
	return after.Until.Sub(before.Until) >= writeEvery || end(after) && !after.Until.Equal(before.Until) ||
		!slices.Equal(before.Excused, after.Excused) || !slices.EqualFunc(before.Gaps, after.Gaps, sameGap)
}

// sameGap: one that is open grows by itself.
func sameGap(a, b wire.MissingGap) bool {
	same := func(a, b *time.Time) bool { return (a == nil) == (b == nil) && (a == nil || a.Equal(*b)) }
	return a.Channel == b.Channel && a.From.Equal(b.From) && same(a.To, b.To) && same(a.ClosedAt, b.ClosedAt) && a.Cause == b.Cause
}

// count counts and logs what is new.
func (k *Keeper) count(name string, before, after *wire.DayGaps) {
	known := map[time.Time]bool{}
	if before != nil {
		for _, g := range before.Gaps {
			known[g.FoundAt] = true
			if g.ClosedAt != nil {
				known[*g.ClosedAt] = true
			}
		}
	}
	for _, g := range after.Gaps {
		if g.ClosedAt == nil && !known[g.FoundAt] {
			k.cfg.Metrics.found.WithLabelValues(string(g.Cause)).Inc()
			k.cfg.Log.Info("found a gap", "instrument", name, "channel", g.Channel, "from", g.From, "cause", g.Cause)
		}
		if g.ClosedAt != nil && !known[*g.ClosedAt] {
			k.cfg.Metrics.closed.WithLabelValues(string(g.Cause)).Inc()
			k.cfg.Log.Info("a gap is filled", "instrument", name, "channel", g.Channel, "from", g.From)
		}
	}
}
