// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/highwater"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// changesAtOnce lines of an expired day are held in memory.
const changesAtOnce = 4096

// findDue writes a removal for each day that is due to expire, and reports what keeps
// days from that. Looked is false while that cannot be said of all: then it is asked
// again soon.
func (r *Collector) findDue(ctx context.Context, now time.Time) (looked bool, err error) {
	if r.cfg.Declared == nil {
		return true, nil
	}
	looked, err = r.lookForDue(ctx, now)
	if err == nil {
		r.report(ctx, now)
	}
	return looked, err
}

func (r *Collector) lookForDue(ctx context.Context, now time.Time) (looked bool, err error) {
	if agree, err := r.clocksAgree(ctx, now); err != nil || !agree {
		return false, err
	}
	closedTo := r.cfg.ClosedTo()
	entries, known := r.cfg.Declared()
	if !known || closedTo == "" {
		return false, nil
	}
	begun, err := r.wholeDays(ctx)
	if err != nil {
		return false, err
	}
	looked = true
	before := r.stopped
	r.stopped = map[string]wire.StoppedExpiry{}
	for i := range entries {
		e := &entries[i]
		if e.Retention == nil || r.cfg.Deleter.Held(e.Instrument) != "" {
			continue
		}
		days, err := r.days(ctx, e.Instrument)
		if errors.Is(err, objectstore.ErrNotFound) || errors.Is(err, wire.ErrMalformed) {
			r.cfg.Log.Warn("the days of an instrument cannot be read, and nothing of it expires for now", "instrument", e.Instrument, "error", err)
			continue
		}
		if err != nil && waitsFor(ctx, err) != nil { // the store does not answer: other instruments continue
			r.cfg.Log.Warn("the days of an instrument cannot be read now", "instrument", e.Instrument, "error", err)
			looked = false
			if s, stopped := before[e.Instrument]; stopped {
				r.stopped[e.Instrument] = s
			}
			continue
		}
		if err != nil {
			return false, fmt.Errorf("days of instrument %s: %w", e.Instrument, err)
		}
		// A day whose removal is waiting already is neither due again nor counted.
		days = slices.DeleteFunc(days, func(d wire.RootDay) bool { return begun[wire.Removal{Instrument: e.Instrument, Day: d.Day}.Key()] })
		due := Due(days, *e.Retention, highwater.Limit(now), func(day wire.Day) bool { return day <= closedTo })
		if s, too := tooMuch(e, days, due); too {
			if _, told := before[e.Instrument]; !told {
				r.tellStopped(s)
			}
			r.stopped[e.Instrument] = s
			continue
		}
		for _, d := range due {
			if err := r.expireLater(ctx, e.Instrument, d, now); err != nil {
				return false, err
			}
		}
	}
	r.cfg.Metrics.stopped.Set(float64(len(r.stopped)))
	return looked, nil
}

// wholeDays returns the keys of the removals of whole days that are there.
func (r *Collector) wholeDays(ctx context.Context) (map[string]bool, error) {
	all, err := r.batches(ctx)
	if err != nil {
		return nil, err
	}
	keys := map[string]bool{}
	for _, b := range all {
		if b.whole != nil {
			keys[b.whole.Key()] = true
		}
	}
	return keys, nil
}

// tooMuch says whether more of an instrument is due than may expire at once.
func tooMuch(e *wire.InstrumentEntry, days []wire.RootDay, due []DueDay) (wire.StoppedExpiry, bool) {
	share, too := TooMuch(days, due, *e.Retention)
	return wire.StoppedExpiry{Instrument: e.Instrument, Days: len(due), SharePercent: math.Round(share*10) / 10,
		MaxShare: cmp.Or(e.Retention.MaxShare, DefaultMaxShare)}, too
}

func (r *Collector) tellStopped(s wire.StoppedExpiry) {
	r.cfg.Log.Error("nothing of an instrument expires for now: more is due at once than spec.archive.expiry.maxShare allows. "+
		"Look whether retention and maxSize, and the clocks, are right; then raise maxShare, up to 100, until it has expired",
		"instrument", s.Instrument, "days", s.Days, "sharePercent", s.SharePercent, "maxShare", s.MaxShare)
}

// clocksAgree compares our clock with a second one. A clock that jumps must not make an
// archive old.
func (r *Collector) clocksAgree(ctx context.Context, now time.Time) (bool, error) {
	before := r.clock
	err := r.cfg.Agree(ctx, now)
	if err != nil && !errors.Is(err, stream.ErrClock) {
		return false, err
	}
	r.clock = err
	switch {
	case r.clock != nil && before == nil:
		r.cfg.Metrics.clock.Set(1)
		r.cfg.Log.Error("nothing expires for now", "error", r.clock)
	case r.clock == nil && before != nil:
		r.cfg.Metrics.clock.Set(0)
		r.cfg.Log.Info("the clocks agree again: what is due expires")
	}
	return r.clock == nil, nil
}

// expireLater writes the removal of a day, unless it is there.
func (r *Collector) expireLater(ctx context.Context, instrument string, due DueDay, now time.Time) error {
	removal := wire.Removal{Instrument: instrument, Day: due.Day, Reason: due.Reason, By: wire.ByRetention, At: now, ForSpace: due.ForSpace}
	value, err := wire.Encode(removal)
	if err != nil {
		return err
	}
	if err := r.cfg.Lease.Check(); err != nil {
		return err
	}
	_, err = r.kv.Create(ctx, removal.Key(), value)
	if err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
		return fmt.Errorf("write %s of %s: %w", removal.Key(), r.kv.Bucket(), err)
	}
	return nil
}

// days returns what the index says of an instrument's days. If there is no index, nothing expires.
func (r *Collector) days(ctx context.Context, instrument string) ([]wire.RootDay, error) {
	kv, err := r.cfg.JetStream.KeyValue(ctx, wire.IndexBucket(r.cfg.Site))
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entry, revision, err := stream.Record[wire.IndexEntry](ctx, kv, instrument)
	if err != nil || revision == 0 {
		return nil, err
	}
	return manifest.Indexed(ctx, r.cfg.Store, r.cfg.Site, instrument, entry)
}

// expire lists all of a day as purged. Stays says that the Instrument keeps the day by now, or that it was found
// expired: then its removal is dropped. An expiry that was begun is carried through: it says in changes/ that
// objects were purged, which nothing undoes.
func (r *Collector) expire(ctx context.Context, b *batch, now time.Time) (stays bool, err error) {
	key := b.whole.Key()
	if o := r.owing[key]; o != nil && now.Before(o.until) {
		return false, o.err
	}
	delete(r.owing, key)
	keep, err := r.retention(b.instrument)
	if err != nil {
		return false, err
	}
	begun, left, err := r.expiryProgress(ctx, b)
	if err != nil {
		return false, err
	}
	if !begun {
		if agree, err := r.clocksAgree(ctx, now.Add(time.Since(r.began))); err != nil {
			return false, err
		} else if !agree {
			return false, &waits{waitClock, r.clock}
		}
		if stays, err := r.spared(ctx, b, left, keep, now); err != nil || stays {
			return stays, err
		}
	}
	if left == 0 {
		r.cfg.Expired(b.instrument, b.day)
		return false, nil
	}
	if !begun {
		o, err := r.owed(ctx, b, time.Duration(keep.HoldMillis)*time.Millisecond, now)
		if err != nil {
			return false, err
		}
		if o != nil {
			r.owing[key] = o
			return false, o.err
		}
	}
	mark := func(files manifest.Files) error { return r.markPurged(ctx, b, files) }
	err = r.cfg.Compactor.Relist(ctx, b.instrument, b.day, mark, func(rec wire.Record) wire.Record {
		if expires(&rec) {
			rec.Expire(b.whole.Reason, b.whole.At)
		}
		return rec
	})
	if err == nil {
		r.cfg.Expired(b.instrument, b.day)
	}
	return false, err
}

// spared drops the removal of a day if it purged nothing and has nothing to purge: the day is
// empty, or the Instrument keeps it by now.
func (r *Collector) spared(ctx context.Context, b *batch, left int, keep wire.RetentionEntry, now time.Time) (bool, error) {
	if left > 0 {
		days, err := r.days(ctx, b.instrument)
		if err != nil {
			return false, fmt.Errorf("days of instrument %s: %w", b.instrument, err)
		}
		goes := stillDue(b.day, days, keep, highwater.Limit(now))
		if !goes && b.whole.ForSpace {
			if goes, err = r.spaceLacks(ctx, b, keep, now); err != nil {
				return false, err
			}
		}
		if goes {
			return false, nil
		}
	}
	// The index may not know yet that the day has nothing to expire.
	if _, err := r.cfg.Compactor.Tell(ctx, b.instrument, b.day); err != nil {
		return false, err
	}
	_, err := r.deleteEntry(ctx, b, b.whole.Key())
	return true, err
}

// retention returns how long an instrument's data is kept now. Errors: waits.
func (r *Collector) retention(instrument string) (wire.RetentionEntry, error) {
	if r.cfg.Declared == nil {
		return wire.RetentionEntry{}, errUnknown
	}
	if _, known := r.cfg.Declared(); !known {
		return wire.RetentionEntry{}, errUnknown
	}
	e := r.entry(instrument)
	switch {
	case e == nil:
		return wire.RetentionEntry{}, &waits{waitHold, fmt.Errorf("instrument %s is not declared: apply its Instrument", instrument)}
	case e.Retention == nil:
		return wire.RetentionEntry{}, nil
	default:
		return *e.Retention, nil
	}
}

var errUnknown = &waits{waitHold, errors.New("the Site's registry is not known yet")}

// entry is the entry of an instrument of the Site; nil if it is not declared.
func (r *Collector) entry(instrument string) *wire.InstrumentEntry {
	if r.cfg.Declared == nil {
		return nil
	}
	entries, _ := r.cfg.Declared()
	for i := range entries {
		if entries[i].Instrument == instrument {
			return &entries[i]
		}
	}
	return nil
}

// expiryProgress says whether the expiry of a day was begun, and how many objects are left
// to be listed as purged. Changes are stored before the manifest.
func (r *Collector) expiryProgress(ctx context.Context, b *batch) (begun bool, left int, err error) {
	for rec, err := range manifest.Records(ctx, r.cfg.Store, r.cfg.Site, b.instrument, b.day) {
		switch {
		case err != nil:
			return false, 0, err
		case expires(&rec):
			left++
		case purgedBy(&rec, b.whole):
			begun = true
		}
	}
	if begun {
		return true, left, nil
	}
	changes, err := manifest.WalkChanges(ctx, r.cfg.Store, r.cfg.Site, b.instrument, b.day, func(rec wire.Record) {
		begun = begun || purgedBy(&rec, b.whole)
	})
	if err != nil {
		return false, 0, err
	}
	r.reportForeign(b, slices.Concat(changes.Foreign, changes.Unreadable))
	return begun, left, nil
}

// purgedBy says whether a line says that an object was purged by a removal.
func purgedBy(rec *wire.Record, by *wire.Removal) bool {
	return rec.State == wire.StatePurged && rec.PurgedAt != nil && rec.PurgedAt.Equal(by.At)
}

// reportForeign logs, once per key, files among changes that cannot be read as changes.
func (r *Collector) reportForeign(b *batch, keys []string) {
	for _, key := range keys {
		if r.foreign[key] {
			continue
		}
		r.foreign[key] = true
		r.cfg.Metrics.foreign.Inc()
		r.cfg.Log.Error("ignoring an unreadable object among the changes of a day: substorm archive verify says more",
			"instrument", b.instrument, "day", b.day, "object", key)
	}
}

// expires says whether an object is among those that expire with their day: what
// others keep is not ours to remove.
func expires(rec *wire.Record) bool { return bucket.Holds(*rec) && wire.IsOurs(rec.Key) }

// markPurged stores the changes of a day's files beside its data.
func (r *Collector) markPurged(ctx context.Context, b *batch, files manifest.Files) error {
	header := wire.ManifestHeader{Site: r.cfg.Site, Instrument: b.instrument, Day: b.day, Writer: r.cfg.Pod, Incarnation: r.cfg.Incarnation}
	var lines []wire.Record
	flush := func() error {
		defer func() { lines = lines[:0] }()
		if err := r.cfg.Lease.Check(); err != nil {
			return err
		}
		return manifest.PutChanges(ctx, r.cfg.Store, header, files.NextPart, lines)
	}
	for rec, err := range manifest.RecordsOf(ctx, r.cfg.Store, files.InEffect) {
		if err != nil {
			return err
		}
		if !expires(&rec) {
			continue
		}
		rec.Expire(b.whole.Reason, b.whole.At)
		if lines = append(lines, rec); len(lines) == changesAtOnce {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}
