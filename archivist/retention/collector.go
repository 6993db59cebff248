// SPDX-License-Identifier: Apache-2.0

// Package retention removes bytes from the archive: those of objects that were purged, and of days
// that are older, or more, than their Instrument keeps. Objects are listed as purged before the first
// byte of them is touched, and the line stays.
//
// Each removal is a wire.Removal, an entry in the bucket of cursors, which is deleted last: the holder
// of the lease carries it out from the beginning, however often a kill interrupts it. Legal hold is
// checked again before anything is touched.
package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/archivist/compact"
	"github.com/substorm/substorm/archivist/deletion"
	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/archivist/index"
	"github.com/substorm/substorm/internal/diskbudget"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/pack"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// Defaults of Config.
const (
	// DefaultInterval is how often removals are looked for, DefaultExpireInterval how
	// often days are that are due to expire.
	DefaultInterval       = 10 * time.Second
	DefaultExpireInterval = time.Hour
	// DefaultGrace is how long readers of objects that share a pack with a purged one have to learn
	// their new places: the index reports them within a minute.
	DefaultGrace = 90 * time.Second
)

// Config says whose archive it is. Durations that are not set have the defaults.
type Config struct {
	holder.Base

	// Compactor rewrites packs and manifests.
	Compactor *compact.Compactor

	// Deleter deletes, and says why nothing of an instrument may be lost.
	Deleter *deletion.Deleter
	// Declared returns the entries of all instruments of the registry, and false before
	// there is one. Without it nothing expires.
	Declared func() ([]wire.InstrumentEntry, bool)
	// ClosedTo is the last day up to which the ledger is closed: later days do not expire. Empty:
	// it is not known yet.
	ClosedTo func() wire.Day

	// Partners returns the partners that are declared, by the names that they have in the ledger, and false while they are unknown. A
	// day that is due waits for those that lack some of it, and purges are asked of them. Optional: by default every partner counts that
	// has something of the day in the ledger, for as long as the Instrument says.
	Partners func() (map[string]Partner, bool)

	// Expired is called once a day that expires is listed as purged. Optional.
	Expired func(instrument string, day wire.Day)

	// Agree returns stream.ErrClock if a second clock does not agree with ours: then nothing
	// expires. Optional: by default the clock of the NATS server is asked.
	Agree func(ctx context.Context, ours time.Time) error

	// Budget of the disk, if this process has one: when it is nearly used up, objects expire that can be made again, or that partners have.
	Budget *diskbudget.Budget

	// Interval, ExpireInterval and Grace are as their defaults say.
	Interval, ExpireInterval, Grace time.Duration

	Metrics *Metrics
}

// Collector works while one lease lasts.
type Collector struct {
	cfg Config
	kv  jetstream.KeyValue
	// vacated says since when readers know that nothing is left in a pack.
	vacated map[string]time.Time
	// told has the removals that wait, with the reason that was last logged.
	told map[string]string
	// clock is why the clocks did not agree when they were last asked.
	clock error
	// began is when the pass began, by a clock that does not jump.
	began time.Time
	// stopped are the instruments that have more due than may expire at once.
	stopped map[string]wire.StoppedExpiry
	// searched is when the days were last looked for that may go for space.
	searched time.Time
	// owing has the days that wait for partners, by the keys of their removals.
	owing map[string]*owing
	// lacking says until when days are not looked at again that partners lack some of, and that would go for space else; by the same keys.
	lacking map[string]time.Time
	// reported is what was last reported of clock and stopped.
	reported []byte
	// foreign are the keys that were logged: of changes that cannot be read, and of bytes that are
	// not those to be removed.
	foreign map[string]bool
}

// New returns a collector; Run works.
func New(cfg Config) *Collector {
	for _, d := range []struct {
		value *time.Duration
		or    time.Duration
	}{{&cfg.Interval, DefaultInterval}, {&cfg.ExpireInterval, DefaultExpireInterval}, {&cfg.Grace, DefaultGrace}} {
		if *d.value <= 0 {
			*d.value = d.or
		}
	}
	if cfg.Expired == nil {
		cfg.Expired = func(string, wire.Day) {}
	}
	if cfg.Agree == nil {
		cfg.Agree = stream.ServerAgrees(cfg.JetStream, wire.CursorBucket(cfg.Site))
	}
	return &Collector{cfg: cfg, vacated: map[string]time.Time{}, told: map[string]string{}, foreign: map[string]bool{}, stopped: map[string]wire.StoppedExpiry{},
		owing: map[string]*owing{}, lacking: map[string]time.Time{}}
}

// Run carries out removals until ctx ends. Deletions that the store does not do wait, and are retried. Errors:
// wire.ErrNewerFormat, manifest.ErrFenced, stream.ErrLeaseLost, and what keeps JetStream from answering.
func (r *Collector) Run(ctx context.Context) error {
	name := wire.CursorBucket(r.cfg.Site)
	kv, err := r.cfg.JetStream.KeyValue(ctx, name)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", name, err)
	}
	r.kv = kv
	if err := r.forgetLeft(ctx); err != nil {
		return err
	}
	var expired time.Time
	for {
		if now := time.Now().UTC(); now.Sub(expired) >= r.cfg.ExpireInterval {
			looked, err := r.findDue(ctx, now)
			if err != nil {
				return err
			}
			if looked {
				expired = now
			}
		}
		if err := r.findForSpace(ctx, time.Now().UTC()); err != nil {
			return err
		}
		if err := r.pass(ctx, time.Now().UTC()); err != nil {
			return err
		}
		if !retry.Sleep(ctx, r.cfg.Interval) {
			return ctx.Err()
		}
	}
}

// Why removals wait.
const (
	waitHold     = "LegalHold" // the instrument is under legal hold, or it is unknown whether it is
	waitClock    = "Clock"     // this archivist's clock and the NATS server's do not agree
	waitMirrors  = "Mirrors"   // partners have not got what is due to expire, or not confirmed a purge
	waitReaders  = "Readers"   // readers learn the new places of the pack's other members
	waitUnlisted = "Unlisted"  // a pack holds what no manifest lists yet
	waitDamage   = "Damaged"   // other members of a pack cannot be read, or are not where they should be
	waitIndex    = "Index"     // the index is not kept now, and readers cannot be notified
	waitKept     = "Kept"      // something else in the archive still needs the object
	waitFailed   = "Failed"    // the store, or JetStream, does not do what is asked
)

var waitReasons = []string{waitHold, waitClock, waitMirrors, waitReaders, waitUnlisted, waitDamage, waitIndex, waitKept, waitFailed}

// waits says why a removal cannot be finished now.
type waits struct {
	reason string
	err    error
}

func (w *waits) Error() string { return w.reason + ": " + w.err.Error() }

// batch are the removals of one instrument's day.
type batch struct {
	instrument string
	day        wire.Day
	// whole is set where the whole day is due to expire.
	whole   *wire.Removal
	objects map[string]wire.Removal // by ID
	// revisions of the entries, by key.
	revisions map[string]uint64
}

// keys are the keys of its entries.
func (b *batch) keys() []string {
	var keys []string
	if b.whole != nil {
		keys = append(keys, b.whole.Key())
	}
	for _, o := range b.objects {
		keys = append(keys, o.Key())
	}
	return keys
}

// pass works on all removals once.
func (r *Collector) pass(ctx context.Context, now time.Time) error {
	r.began = time.Now()
	all, err := r.batches(ctx)
	if err != nil {
		return err
	}
	waiting := map[string]int{}
	for _, b := range all {
		keys := len(b.keys())
		err := r.remove(ctx, b, now)
		if err == nil {
			continue
		}
		w := waitsFor(ctx, err)
		if w == nil {
			return fmt.Errorf("remove from instrument %s, %s: %w", b.instrument, b.day, err)
		}
		waiting[w.reason] += keys
		r.logWait(b, w)
	}
	for _, reason := range waitReasons {
		r.cfg.Metrics.waiting.WithLabelValues(reason).Set(float64(waiting[reason]))
	}
	r.report(ctx, now)
	return nil
}

// logWait logs why a batch waits, once.
func (r *Collector) logWait(b *batch, w *waits) {
	key := b.instrument + "." + string(b.day)
	if r.told[key] == w.Error() || w.reason == waitReaders {
		return
	}
	r.told[key] = w.Error()
	r.cfg.Log.Warn("bytes that are to be removed stay for now", "instrument", b.instrument, "day", b.day, "reason", w.reason, "error", w.err)
}

// batches returns what is to be removed, by instrument and day, as one replica has it: an
// entry that it does not have yet comes with the next pass.
func (r *Collector) batches(ctx context.Context) ([]*batch, error) {
	watch, err := r.kv.Watch(ctx, wire.RemovalKeys, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", r.kv.Bucket(), err)
	}
	defer func() { _ = watch.Stop() }()
	found := map[string]*batch{}
	for {
		var e jetstream.KeyValueEntry
		select {
		case e = <-watch.Updates():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if e == nil {
			break
		}
		removal, err := wire.Decode[wire.Removal](e.Value())
		if errors.Is(err, wire.ErrNewerFormat) {
			return nil, fmt.Errorf("%s: %w", e.Key(), err)
		}
		if err != nil || removal.Key() != e.Key() {
			r.cfg.Log.Error("cannot read an entry of objects to remove; leaving it alone", "entry", e.Key(), "error", err)
			continue
		}
		key := removal.Instrument + "." + string(removal.Day)
		b := found[key]
		if b == nil {
			b = &batch{instrument: removal.Instrument, day: removal.Day, objects: map[string]wire.Removal{}, revisions: map[string]uint64{}}
			found[key] = b
		}
		b.revisions[e.Key()] = e.Revision()
		if removal.ID == "" {
			b.whole = &removal
		} else {
			b.objects[removal.ID] = removal
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *batch) int {
		return cmp.Or(cmp.Compare(a.instrument, b.instrument), cmp.Compare(a.day, b.day))
	}), nil
}

// remove does all that can be done for a batch now, and deletes its entries when
// nothing is left to do.
func (r *Collector) remove(ctx context.Context, b *batch, now time.Time) error {
	if why := r.cfg.Deleter.Held(b.instrument); why != "" {
		return &waits{waitHold, errors.New(why)}
	}
	var dayWaits error
	if b.whole != nil {
		stays, err := r.expire(ctx, b, now)
		if err != nil && (len(b.objects) == 0 || waitsFor(ctx, err) == nil) {
			return err
		}
		if dayWaits = err; stays || err != nil {
			b.whole = nil // what a request purged goes, whatever the rest of its day waits for
		}
		if b.whole == nil && len(b.objects) == 0 {
			return nil
		}
	}
	if _, err := r.cfg.Compactor.Tell(ctx, b.instrument, b.day); err != nil {
		return err // nothing goes that readers take for current
	}
	does := r.removeObjects
	if b.whole != nil {
		does = r.removeDay
	}
	p, err := does(ctx, b, now)
	if err != nil {
		return err
	}
	if err := r.unconfirmed(ctx, b, now); err != nil {
		return err
	}
	if err := r.finish(ctx, b, p); err != nil {
		return err
	}
	return dayWaits
}

// finish deletes the entries of a batch that has nothing left to do.
func (r *Collector) finish(ctx context.Context, b *batch, p *plan) error {
	done := map[string]bool{}
	for _, key := range b.keys() {
		is, err := r.deleteEntry(ctx, b, key)
		if err != nil {
			return err
		}
		done[key] = is
	}
	if err := r.forgetConfirmed(ctx, b, done); err != nil {
		return err
	}
	delete(r.told, b.instrument+"."+string(b.day))
	by := byPurge
	if b.whole != nil {
		by = byExpiry
		if b.whole.ForSpace {
			by = bySpace
		}
	}
	r.cfg.Metrics.objects.WithLabelValues(by).Add(float64(p.count))
	r.cfg.Metrics.bytes.WithLabelValues(by).Add(float64(p.bytes))
	r.cfg.Log.Info("bytes are removed", "instrument", b.instrument, "day", b.day, "objects", p.count, "bytes", p.bytes, "by", by)
	return nil
}

// deleteEntry deletes an entry of a batch, and says whether it did. One to which something was added since stays: there
// is more to do.
func (r *Collector) deleteEntry(ctx context.Context, b *batch, key string) (bool, error) {
	if err := r.cfg.Lease.Check(); err != nil {
		return false, err
	}
	err := r.kv.Delete(ctx, key, jetstream.LastRevision(b.revisions[key]))
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("delete %s of %s: %w", key, r.kv.Bucket(), err)
	}
	return true, nil
}

// maxVacated packs wait for readers at once.
const maxVacated = 40_000

// emptyPacks takes what is to be removed out of its packs. Those that hold more than
// that go when readers had time to learn of the new places.
func (r *Collector) emptyPacks(ctx context.Context, packs []string, now time.Time) error {
	var wait error
	for _, key := range packs {
		if _, known := r.vacated[key]; !known {
			if len(r.vacated) >= maxVacated {
				return cmp.Or(wait, error(&waits{waitReaders, fmt.Errorf("%s waits for %d others", key, len(r.vacated))}))
			}
			stay, err := r.cfg.Compactor.Vacate(ctx, key)
			if err != nil {
				w := waitsFor(ctx, err)
				if w == nil {
					return err
				}
				wait = w
				continue
			}
			if stay == 0 {
				continue // it is gone
			}
			r.vacated[key] = now
		}
		if now.Sub(r.vacated[key]) < r.cfg.Grace {
			wait = cmp.Or(wait, error(&waits{waitReaders, fmt.Errorf("%s is removed at %s", key, wire.FormatTime(r.vacated[key].Add(r.cfg.Grace)))}))
			continue
		}
		if err := r.cfg.Compactor.Rewrite(ctx, key, ""); err != nil {
			w := waitsFor(ctx, err)
			if w == nil {
				return err
			}
			wait = w
			continue
		}
		delete(r.vacated, key)
	}
	return wait
}

// waitsFor explains an error for which a removal waits; nil for those that end the collector.
func waitsFor(ctx context.Context, err error) *waits {
	var w *waits
	var kept *deletion.Kept
	switch {
	case ctx.Err() != nil || errors.Is(err, stream.ErrLeaseLost) || errors.Is(err, wire.ErrNewerFormat) || errors.Is(err, manifest.ErrFenced):
		return nil
	case errors.As(err, &w):
		return w
	case errors.As(err, &kept) && kept.Why == deletion.KeptRefused:
		return &waits{waitFailed, err}
	case kept != nil && kept.Why != deletion.KeptHold:
		return &waits{waitKept, err}
	case kept != nil, errors.Is(err, compact.ErrHeld):
		return &waits{waitHold, err}
	case errors.Is(err, index.ErrIncomplete):
		return &waits{waitIndex, err}
	case errors.Is(err, compact.ErrUnlisted):
		return &waits{waitUnlisted, err}
	case errors.Is(err, pack.ErrDamaged), errors.Is(err, compact.ErrElsewhere), errors.Is(err, wire.ErrMalformed):
		return &waits{waitDamage, err}
	default:
		return &waits{waitFailed, err}
	}
}
