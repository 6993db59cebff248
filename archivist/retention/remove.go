// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/substorm/substorm/archivist/deletion"
	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// remover deletes the objects of a batch, deletion.Batch at once. One that stays holds up no other;
// while the store does not answer it does not continue.
type remover struct {
	*Collector
	instrument string
	reason     wire.DeletionReason
	now        time.Time

	objects []deletion.Object
	wait    error
}

func (r *Collector) remover(b *batch, now time.Time) *remover {
	reason := wire.DeletedPurged
	if b.whole != nil {
		reason = wire.DeletedExpired
	}
	return &remover{Collector: r, instrument: b.instrument, reason: reason, now: now}
}

// remove deletes what a plan says. The last of it may wait for end.
func (d *remover) remove(ctx context.Context, p *plan) error {
	for _, key := range p.objects() {
		other, err := bucket.Other(ctx, d.cfg.Store, key, p.own[key])
		if err != nil {
			if err := d.later(ctx, fmt.Errorf("delete %s: %w", key, err)); err != nil {
				return err
			}
			continue
		}
		if other != (wire.Digest{}) { // other bytes under the key stay
			d.reportSpared(d.instrument, key, p.own[key], other)
			continue
		}
		o := deletion.Object{Key: key, Reason: d.reason, Instrument: d.instrument, Takes: []string{d.instrument}}
		if d.objects = append(d.objects, o); len(d.objects) == deletion.Batch {
			if err := d.flush(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// end deletes the rest, and returns for what the batch waits.
func (d *remover) end(ctx context.Context) error {
	if err := d.flush(ctx); err != nil {
		return err
	}
	return d.wait
}

func (d *remover) flush(ctx context.Context) error {
	kept, err := d.cfg.Deleter.Delete(ctx, d.now, d.objects...)
	d.objects = d.objects[:0]
	if err != nil {
		return d.later(ctx, err)
	}
	for _, k := range kept {
		if err := d.later(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// later returns nil if the others can continue.
func (d *remover) later(ctx context.Context, err error) error {
	if w := waitsFor(ctx, err); w == nil || w.reason != waitFailed || errors.Is(err, objectstore.ErrUnavailable) {
		return err
	}
	d.wait = cmp.Or(d.wait, err)
	return nil
}

// reportSpared logs, once, bytes that have taken the place of those to be removed.
func (r *Collector) reportSpared(instrument, key string, digest, other wire.Digest) {
	if r.foreign[key] {
		return
	}
	r.foreign[key] = true
	r.cfg.Metrics.spared.Inc()
	r.cfg.Log.Error("keeping other bytes under the key of an object that is to be removed: no manifest lists them",
		"instrument", instrument, "object", key, "removed", digest, "kept", other)
}
