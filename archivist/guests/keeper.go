// SPDX-License-Identifier: Apache-2.0

// Package guests keeps a copy of each guest's entry of the registry in the object store, and restores entries that the
// registry has lost. Nothing deletes these entries: one that is missing was lost, and without it readers see nothing of what
// was pulled of the guest.
package guests

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// DefaultInterval is how often the keeper asks whether entries have changed.
	DefaultInterval = 10 * time.Second
	// fullInterval is how often all entries are read where none seems to have changed: a purge of some leaves the newest as it was.
	fullInterval = time.Hour
	// maxPause bounds the growing pause after failures.
	maxPause = time.Minute
)

// Config says whose guests these are. An Interval that is not set has the default.
type Config struct {
	holder.Base

	Interval time.Duration
	Metrics  *Metrics
}

// Metrics outlive the keepers of one process.
type Metrics struct {
	copied, restored, failures prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	return &Metrics{
		copied:   metric.Counter(registry, "substorm_guests_copied_total", "Registry entries of guests that this archivist copied into the bucket."),
		restored: metric.Counter(registry, "substorm_guests_restored_total", "Registry entries of guests that were lost, and that this archivist restored from the bucket."),
		failures: metric.Counter(registry, "substorm_guests_failures_total", "How often a guest's registry entry could not be read, copied or restored."),
	}
}

// Keeper works while one lease lasts.
type Keeper struct {
	cfg Config
	// newest is the last copy of each guest; nil: the bucket is to be listed.
	newest map[string]guestCopy
	// done is the state of the registry that was last worked off, at doneAt.
	done   state
	doneAt time.Time
}

// guestCopy is one copy of a guest's entry.
type guestCopy struct {
	key string
	at  time.Time
}

// state tells whether guests' entries have changed: the registry is another bucket, or its newest entry of a guest is.
type state struct {
	epoch string
	last  uint64
}

// New returns a keeper; Run runs it.
func New(cfg Config) *Keeper {
	if cfg.Interval <= 0 {
		cfg.Interval = DefaultInterval
	}
	return &Keeper{cfg: cfg}
}

// Run copies and restores until ctx ends. A failure is logged, counted and tried again. Errors: only ctx's and the lease's.
func (k *Keeper) Run(ctx context.Context) error {
	pause, said := k.cfg.Interval, ""
	for {
		err := k.pass(ctx, time.Now().UTC())
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, stream.ErrLeaseLost):
			return err
		case err != nil:
			pause = min(2*pause, max(maxPause, k.cfg.Interval))
			if err.Error() != said {
				said = err.Error()
				k.cfg.Log.Warn("the registry's entries of guests cannot be copied or restored now", "error", err)
			}
		default:
			pause, said = k.cfg.Interval, ""
		}
		if !retry.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// pass brings copies and registry together, where the registry has changed.
func (k *Keeper) pass(ctx context.Context, now time.Time) error {
	current, err := k.readState(ctx)
	if err == nil {
		if k.newest != nil && current == k.done && now.Sub(k.doneAt) < fullInterval {
			return nil
		}
		err = k.compare(ctx, now)
	}
	if err != nil {
		k.newest = nil // a copy whose answer was lost is found by the next list
		if ctx.Err() == nil && !errors.Is(err, stream.ErrLeaseLost) {
			k.cfg.Metrics.failures.Inc()
		}
		return err
	}
	k.done, k.doneAt = current, now
	return nil
}

// readState asks what state the guests' entries are in. The next pass sees changes after it.
func (k *Keeper) readState(ctx context.Context) (current state, err error) {
	bucket := wire.RegistryBucket(k.cfg.Site)
	if current.epoch, _, err = stream.Epoch(ctx, k.cfg.JetStream, "KV_"+bucket); err != nil {
		return current, err
	}
	current.last, err = stream.LastOf(ctx, k.cfg.JetStream, "KV_"+bucket, "$KV."+bucket+"."+everyGuest)
	return current, err
}

var everyGuest = wire.RegistryGuestKey("*", "*")

// compare restores what the registry lacks, and copies what it says that the copies do not. The one is done where the other
// fails: a store that takes no objects still has the copies.
func (k *Keeper) compare(ctx context.Context, now time.Time) error {
	if err := k.listCopies(ctx); err != nil {
		return err
	}
	name := wire.RegistryBucket(k.cfg.Site)
	kv, err := k.cfg.JetStream.KeyValue(ctx, name)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", name, err)
	}
	entries := map[string]jetstream.KeyValueEntry{}
	err = stream.Entries(ctx, k.cfg.JetStream, kv, everyGuest, func(e jetstream.KeyValueEntry) error {
		if guest, is := wire.ParseRegistryGuestKey(e.Key()); is {
			entries[guest] = e
		}
		return nil
	})
	if err != nil {
		return err
	}
	return errors.Join(k.restoreMissing(ctx, kv, entries), k.copyChanged(ctx, entries, now))
}

// warnUnread: an entry or a copy that cannot be read is left as it is.
func (k *Keeper) warnUnread(key string, err error) {
	k.cfg.Metrics.failures.Inc()
	k.cfg.Log.Warn("a guest's entry cannot be read, and is left as it is", "entry", key, "error", err)
}
