// SPDX-License-Identifier: Apache-2.0

package scrub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/kvbucket"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// maxFindings of an instrument are kept by name; where a store lost everything, more
// would only fill JetStream. More are counted and logged.
const maxFindings = 1000

// ledgerIncarnation stands for all incarnations of the scrub: totals count what is known to be
// damaged, not a process.
const ledgerIncarnation = "scrub"

// findings are what is known to be damaged: entries of the status bucket.
type findings struct {
	cfg    *Config
	status jetstream.KeyValue
	ledger jetstream.KeyValue

	mu    sync.Mutex
	known map[string]wire.Damage // confirmed ones, by key
}

func openFindings(ctx context.Context, cfg *Config) (*findings, error) {
	f := &findings{cfg: cfg, known: map[string]wire.Damage{}}
	var err error
	if f.status, err = cfg.JetStream.KeyValue(ctx, wire.StatusBucket(cfg.Site)); err != nil {
		return nil, fmt.Errorf("bucket %s: %w", wire.StatusBucket(cfg.Site), err)
	}
	if f.ledger, err = cfg.JetStream.KeyValue(ctx, wire.LedgerBucket(cfg.Site)); err != nil {
		return nil, fmt.Errorf("bucket %s: %w", wire.LedgerBucket(cfg.Site), err)
	}
	err = stream.Entries(ctx, cfg.JetStream, f.status, wire.DamageKeys, func(e jetstream.KeyValueEntry) error {
		d, err := wire.Decode[wire.Damage](e.Value())
		if errors.Is(err, wire.ErrNewerFormat) {
			return fmt.Errorf("%s of bucket %s: %w", e.Key(), f.status.Bucket(), err)
		}
		if err == nil && d.Confirmed {
			f.known[e.Key()] = d
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	f.gauge()
	return f, nil
}

func (f *findings) all() []wire.Damage {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Values(f.known))
}

// has says whether the same is known already.
func (f *findings) has(d wire.Damage) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	was, known := f.known[wire.DamageKey(d.Instrument, d.ID)]
	return known && was.Key == d.Key && was.Cause == d.Cause
}

// confirm says that an object is damaged.
func (f *findings) confirm(ctx context.Context, d wire.Damage) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := wire.DamageKey(d.Instrument, d.ID)
	was, known := f.known[key]
	if known && was.Cause == d.Cause && was.Key == d.Key {
		return nil
	}
	if !known {
		f.cfg.Metrics.found.WithLabelValues(string(d.Cause)).Inc()
		f.cfg.Log.Error("an object in the store is not what was received", "instrument", d.Instrument, "object", d.ID, "key", d.Key,
			"day", d.Day, "size", d.Size, "cause", d.Cause, "foundBy", d.FoundBy)
	}
	if !known && f.count(d.Instrument) >= maxFindings {
		return f.remove(ctx, key)
	}
	value, err := wire.Encode(d)
	if err != nil {
		return err
	}
	if err := f.cfg.Lease.Check(); err != nil {
		return err
	}
	revision, err := f.status.Put(ctx, key, value)
	if err == nil { // the next pass comes in days
		err = stream.Sync(ctx, f.cfg.JetStream.Conn(), kvbucket.StreamName(f.status.Bucket()), revision)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	f.known[key] = d
	f.gauge()
	return f.writeLedger(ctx, d)
}

// healed is clear where the object was known to be damaged.
func (f *findings) healed(ctx context.Context, d wire.Damage) error {
	f.mu.Lock()
	_, known := f.known[wire.DamageKey(d.Instrument, d.ID)]
	f.mu.Unlock()
	if !known {
		return nil
	}
	return f.clear(ctx, d, "its bytes are whole")
}

// clear says that an object is not damaged, or not in the archive any more.
func (f *findings) clear(ctx context.Context, d wire.Damage, why string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := wire.DamageKey(d.Instrument, d.ID)
	if err := f.remove(ctx, key); err != nil {
		return err
	}
	if _, known := f.known[key]; !known {
		return nil
	}
	f.cfg.Log.Info("an object does not count as damaged any more", "instrument", d.Instrument, "object", d.ID, "why", why)
	delete(f.known, key)
	f.gauge()
	return f.writeLedger(ctx, d)
}

// remove takes an entry away, if there is one. The mutex is held.
func (f *findings) remove(ctx context.Context, key string) error {
	if err := f.cfg.Lease.Check(); err != nil {
		return err
	}
	if _, err := f.status.Get(ctx, key); errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil
	}
	return kvbucket.Forget(ctx, f.cfg.JetStream, f.status.Bucket(), key)
}

func (f *findings) count(instrument string) int {
	n := 0
	for _, d := range f.known {
		if d.Instrument == instrument {
			n++
		}
	}
	return n
}

// writeLedger writes the ledger's column of a day: absolute totals of what is known.
func (f *findings) writeLedger(ctx context.Context, of wire.Damage) error {
	var t wire.Totals
	for _, d := range f.known {
		if d.Instrument == of.Instrument && d.Day == of.Day && !isManifest(d) {
			t = t.Plus(wire.Totals{Objects: 1, ObjectBytes: uint64(d.Size), Digest: d.Digest})
		}
	}
	value, err := wire.Encode(wire.LedgerEntry{Incarnations: map[string]wire.Totals{ledgerIncarnation: t}})
	if err != nil {
		return err
	}
	if err := f.cfg.Lease.Check(); err != nil {
		return err
	}
	key := wire.LedgerKey(of.Instrument, of.Day, wire.StepDamaged, wire.ArchivistWriter)
	if _, err := f.ledger.Put(ctx, key, value); err != nil {
		return fmt.Errorf("write %s of the ledger: %w", key, err)
	}
	return nil
}

func (f *findings) gauge() { f.cfg.Metrics.known.Set(float64(len(f.known))) }
