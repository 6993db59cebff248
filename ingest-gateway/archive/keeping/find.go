// SPDX-License-Identifier: Apache-2.0

package keeping

import (
	"context"
	"fmt"

	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

// plan is where the bytes of what is to be removed may lie: where the manifest says,
// and where they lay before a compaction moved them.
type plan struct {
	// own are objects of their own, with the digest of the bytes that are to go; held
	// those of them that an object needs that stays.
	own   map[string]wire.Digest
	held  map[string]bool
	packs map[string]bool
	// ids are the objects; moved those that a compaction took out of a pack that
	// nothing names any more.
	ids   map[manifest.IDHash]wire.Digest
	moved map[manifest.IDHash]bool
	count int
	bytes int64
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

// find reads where the bytes of a batch may lie.
func (r *Room) find(ctx context.Context, b *batch) (*plan, error) {
	p := &plan{own: map[string]wire.Digest{}, held: map[string]bool{}, packs: map[string]bool{},
		ids: map[manifest.IDHash]wire.Digest{}, moved: map[manifest.IDHash]bool{}}
	for rec, err := range manifest.Records(ctx, r.cfg.Store, r.cfg.Site, b.instrument, b.day) {
		if err != nil {
			return nil, err
		}
		if goes(b, &rec) {
			p.add(r.cfg.Site, b, &rec)
		}
	}
	if b.whole != nil {
		if err := r.findRaw(ctx, b, p); err != nil {
			return nil, err
		}
	}
	// What stays may have a key that was guessed.
	for rec, err := range manifest.Records(ctx, r.cfg.Store, r.cfg.Site, b.instrument, b.day) {
		if err != nil {
			return nil, err
		}
		if _, goes := p.own[rec.Key]; goes && bucket.Holds(rec) {
			p.held[rec.Key] = true
		}
	}
	if len(p.moved) > 0 {
		left, err := r.cfg.Compactor.Leftovers(ctx, b.day, p.moved)
		if err != nil {
			return nil, fmt.Errorf("look for older packs: %w", err)
		}
		for _, key := range left {
			p.packs[key] = true
		}
	}
	return p, nil
}

// goes says whether the bytes of a record are to be removed. Only what is listed as
// purged, or as a repeat, may be.
func goes(b *batch, rec *wire.Record) bool {
	if bucket.Holds(*rec) {
		return false
	}
	_, asked := b.objects[rec.ID]
	return asked || b.whole != nil && rec.State == wire.StatePurged
}

func (p *plan) add(site string, b *batch, rec *wire.Record) {
	p.count++
	p.bytes += rec.Size
	p.ids[manifest.HashID(rec.ID)] = rec.Digest
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

// findRaw finds those of a whole day that a compaction moved and left where they were:
// it asks the store once, rather than for each.
func (r *Room) findRaw(ctx context.Context, b *batch, p *plan) error {
	for info, err := range r.cfg.Store.List(ctx, wire.RawPrefix(r.cfg.Site, b.instrument, b.day), "") {
		if err != nil {
			return err
		}
		if digest, asked := p.ids[manifest.HashID(info.Key)]; asked {
			p.own[info.Key] = digest
		}
	}
	return nil
}
