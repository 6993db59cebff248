// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

// plan is where the bytes of what is to be removed may be: where the manifest says, and where they
// were before a compaction moved them.
type plan struct {
	// own are objects of their own, with the digest of the bytes that are to go; held are
	// keys of objects that an object needs that stays.
	own   map[string]wire.Digest
	held  map[string]bool
	packs map[string]bool
	// moved are those that a compaction took out of a pack that nothing names any more.
	moved map[manifest.IDHash]bool
	count int
	bytes int64
}

func newPlan() *plan {
	return &plan{own: map[string]wire.Digest{}, held: map[string]bool{}, packs: map[string]bool{}, moved: map[manifest.IDHash]bool{}}
}

// objects are the keys that may be deleted.
func (p *plan) objects() []string {
	var keys []string
	for key := range p.own {
		if !p.held[key] && wire.IsOurs(key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// removeObjects removes the bytes of objects that requests purged, and returns which those are.
func (r *Collector) removeObjects(ctx context.Context, b *batch, now time.Time) (*plan, error) {
	p, err := r.find(ctx, b)
	if err != nil {
		return p, err
	}
	d := r.remover(b, now)
	if err := d.remove(ctx, p); err != nil {
		return p, err
	}
	if err := d.end(ctx); err != nil {
		return p, err
	}
	return p, r.emptyPacks(ctx, slices.Sorted(maps.Keys(p.packs)), now)
}

// find reads where the bytes of purged objects may be.
func (r *Collector) find(ctx context.Context, b *batch) (*plan, error) {
	p := newPlan()
	for rec, err := range manifest.Records(ctx, r.cfg.Store, r.cfg.Site, b.instrument, b.day) {
		if err != nil {
			return nil, err
		}
		if mustRemove(b, &rec) {
			p.add(r.cfg.Site, b, &rec)
		}
	}
	// An object that stays may have a key that was guessed.
	for rec, err := range manifest.Records(ctx, r.cfg.Store, r.cfg.Site, b.instrument, b.day) {
		if err != nil {
			return nil, err
		}
		if _, goes := p.own[rec.Key]; goes && bucket.Holds(rec) {
			p.held[rec.Key] = true
		}
	}
	if len(p.moved) == 0 {
		return p, nil
	}
	for key, err := range r.cfg.Compactor.Leftovers(ctx, b.instrument, b.day, func(rec *wire.Record) bool { return p.moved[manifest.HashID(rec.ID)] }) {
		if err != nil {
			return nil, fmt.Errorf("look for older packs: %w", err)
		}
		p.packs[key] = true
	}
	return p, nil
}

// mustRemove says whether the bytes of a record are to be removed. Only what is listed as
// purged, or as a duplicate, may be.
func mustRemove(b *batch, rec *wire.Record) bool {
	if bucket.Holds(*rec) {
		return false
	}
	_, asked := b.objects[rec.ID]
	return asked || b.whole != nil && rec.State == wire.StatePurged
}

func (p *plan) add(site string, b *batch, rec *wire.Record) {
	p.count++
	p.bytes += rec.Size
	if rec.InPack() {
		p.packs[rec.Key] = true
	} else {
		p.own[rec.Key] = rec.Digest
	}
	if found := b.objects[rec.ID].Found; found != "" {
		if _, err := wire.ParsePackKey(found); err == nil {
			p.packs[found] = true
		} else {
			p.own[found] = rec.Digest
		}
	}
	first, packed := wire.KeyOfID(rec.ID)
	switch {
	case packed:
		p.packs[first] = true
	case !rec.InPack():
	case b.whole == nil:
		p.own[first] = rec.Digest // it was stored by itself first, or waited in a spool
		p.own[wire.RawKey(site, b.instrument, rec.ReceivedAt, rec.Digest)] = rec.Digest
	}
	if pack, err := wire.ParsePackKey(rec.Key); err == nil && pack.Compacted() && !packed {
		p.moved[manifest.HashID(rec.ID)] = true
	}
}
