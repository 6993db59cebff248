// SPDX-License-Identifier: Apache-2.0

// Package deletion is the one place in which the archivist deletes objects of the bucket. Compaction, retention, purges and the sweep say
// what they know of an object; decide, which is pure, says whether it may go, and keeps an object if its caller gives too little; each
// deletion is counted, logged, and written into a record beside the archive before the first byte is deleted. The record says what was to
// be deleted: what the store refuses to delete stays, and holds up nothing.
//
// Others delete only what no manifest can name, which TestOnePlaceDeletes lists, and which legal hold does not concern: gateways their own
// staging, whose bytes are under the object's key by then or were never receipted; and the pieces of uploads that ended in an object or
// that their sender gave up. Data from unknown senders is outside the archive: gateways delete it when its time is over, and `substorm
// adopt` when the archive has it. Aborting an upload in parts deletes no object: there is none yet.
package deletion

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// Batch is how many objects one record holds at most.
const Batch = 1000

// maxRefused objects are remembered that the store refuses to delete.
const maxRefused = 100_000

// Config says whose bucket it is.
type Config struct {
	holder.Base

	// Held says why nothing of an instrument may be lost, see Hold. Optional: then all may.
	Held func(instrument string) string
	// Spooled says why a spool may hold something that was received on a day, or before; empty if
	// none does. Optional: then none does.
	Spooled func(day wire.Day) string

	Metrics *Metrics
}

// Deleter deletes while one lease lasts. It may be used from many goroutines.
type Deleter struct {
	cfg     Config
	records atomic.Uint64

	// refused has the keys that the store refused to delete. Each is logged and recorded once: the
	// record also covers the later deletion, if it succeeds after all.
	mu      sync.Mutex
	refused map[manifest.IDHash]struct{}
}

// New returns one.
func New(cfg Config) *Deleter {
	if cfg.Held == nil {
		cfg.Held = func(string) string { return "" }
	}
	if cfg.Spooled == nil {
		cfg.Spooled = func(wire.Day) string { return "" }
	}
	return &Deleter{cfg: cfg, refused: map[manifest.IDHash]struct{}{}}
}

// Held says why nothing of an instrument may be lost; empty where it may.
func (d *Deleter) Held(instrument string) string { return d.cfg.Held(instrument) }

// One deletes an object. Errors: *Kept where it must stay, those of the store and the lease.
func (d *Deleter) One(ctx context.Context, now time.Time, o Object) error {
	kept, err := d.Delete(ctx, now, o)
	if err == nil && len(kept) > 0 {
		return kept[0]
	}
	return err
}

// Delete deletes the objects that may go, and returns those that must stay. After an error
// some may be deleted. Those that the store refuses to delete stay, and hold up no other.
// Errors: those of the lease, and of a store that does not answer or does not take the record.
func (d *Deleter) Delete(ctx context.Context, now time.Time, objects ...Object) (kept []*Kept, err error) {
	for len(objects) > Batch {
		some, err := d.delete(ctx, now, objects[:Batch])
		kept = append(kept, some...)
		if err != nil {
			return kept, err
		}
		objects = objects[Batch:]
	}
	some, err := d.delete(ctx, now, objects)
	return append(kept, some...), err
}

func (d *Deleter) delete(ctx context.Context, now time.Time, objects []Object) (kept []*Kept, err error) {
	world := world{held: d.cfg.Held, spooled: d.cfg.Spooled, now: now}
	stays := func(k *Kept) {
		kept = append(kept, k)
		d.cfg.Metrics.kept.WithLabelValues(k.Why).Inc()
		d.cfg.Log.Debug("keeping an object that was to be deleted", "object", k.Key, "why", k.Why, "detail", k.Detail)
	}
	var may []Object
	for _, o := range objects {
		if k := decide(o, world); k != nil {
			stays(k)
			continue
		}
		may = append(may, o)
	}
	if len(may) == 0 {
		return kept, nil
	}
	if err := d.record(ctx, may); err != nil {
		return kept, err
	}
	for _, o := range may {
		if k := decide(o, world); k != nil { // legal hold may have begun meanwhile
			stays(k)
			continue
		}
		if err := d.cfg.Lease.Check(); err != nil {
			return kept, err
		}
		if err := d.cfg.Store.Delete(ctx, o.Key); err != nil {
			if ctx.Err() != nil || errors.Is(err, objectstore.ErrUnavailable) || errors.Is(err, objectstore.ErrNoBucket) || d.cfg.Lease.Check() != nil {
				return kept, err
			}
			stays(d.noteRefused(o, err))
			continue
		}
		d.forget(o.Key)
		d.cfg.Metrics.deleted.WithLabelValues(string(o.Reason)).Inc()
		d.cfg.Log.Debug("deleted an object", "object", o.Key, "reason", o.Reason, "instrument", o.Instrument, "instead", o.Instead)
	}
	return kept, nil
}

// Refused says whether the store refused to delete an object when that was last tried.
func (d *Deleter) Refused(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, refused := d.refused[manifest.HashID(key)]
	return refused
}

// noteRefused remembers that the store refuses to delete an object, and logs it once.
func (d *Deleter) noteRefused(o Object, err error) *Kept {
	if !d.Refused(o.Key) {
		d.cfg.Log.Error("the store refuses to delete an object: it stays; retrying", "object", o.Key, "reason", o.Reason, "instrument", o.Instrument, "error", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.refused) < maxRefused {
		d.refused[manifest.HashID(o.Key)] = struct{}{}
	}
	return &Kept{o.Key, KeptRefused, err.Error()}
}

func (d *Deleter) forget(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.refused, manifest.HashID(key))
}

// recorded says whether the record names a deletion: not what never was part of the archive.
func recorded(reason wire.DeletionReason) bool {
	return reason != wire.DeletedStaging && reason != wire.DeletedUpload && reason != wire.DeletedRoot
}

// record writes down what is deleted next.
func (d *Deleter) record(ctx context.Context, objects []Object) error {
	r := wire.Deletions{Header: wire.DeletionHeader{Site: d.cfg.Site, At: time.Now().UTC().Truncate(time.Millisecond), Gateway: d.cfg.Pod, Incarnation: d.cfg.Incarnation}}
	reasons := map[wire.DeletionReason]int{}
	for _, o := range objects {
		if recorded(o.Reason) && !d.Refused(o.Key) {
			r.Objects = append(r.Objects, wire.DeletedObject{Key: o.Key, Reason: o.Reason, Instrument: o.Instrument, Instead: o.Instead})
			reasons[o.Reason]++
		}
	}
	if len(r.Objects) == 0 {
		return nil
	}
	data, err := r.Encode()
	if err != nil {
		return err
	}
	if err := d.cfg.Lease.Check(); err != nil {
		return err
	}
	key := wire.DeletionKey(r.Header, d.records.Add(1))
	err = d.cfg.Store.Put(ctx, key, bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{ContentType: "application/zstd", CreateOnly: true})
	if err != nil {
		return fmt.Errorf("record the objects to delete: %w", err)
	}
	var counts []string
	for _, reason := range wire.DeletionReasons {
		if n := reasons[reason]; n > 0 {
			counts = append(counts, fmt.Sprintf("%s=%d", reason, n))
		}
	}
	d.cfg.Log.Info("objects are to be deleted", "reasons", strings.Join(counts, " "), "first", r.Objects[0].Key, "record", key)
	return nil
}
