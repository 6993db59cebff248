// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/substorm/substorm/archivist/deletion"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

// maxKeys bounds the memory held for a day that expires, however many objects it has: its lines are read again for each
// maxKeys keys that they are compared with.
const maxKeys = 40_000

// removeDay removes the bytes of all that is listed as purged of a day, and returns how
// much that is.
func (r *Collector) removeDay(ctx context.Context, b *batch, now time.Time) (*plan, error) {
	p := newPlan()
	var err error
	if p.held, err = r.stayingKeys(ctx, b); err != nil {
		return p, err
	}
	d := r.remover(b, now)
	packs, moved, err := r.removeListed(ctx, b, p, d)
	if err != nil {
		return p, err
	}
	if err := r.removeMoved(ctx, b, p, d); err != nil {
		return p, err
	}
	if err := d.end(ctx); err != nil {
		return p, err
	}
	return p, r.emptyDay(ctx, b, packs, moved, now)
}

// stayingKeys returns the keys of objects of their own that are listed since the day was listed as
// purged: what goes may have their keys. Errors: waits, if they are too many.
func (r *Collector) stayingKeys(ctx context.Context, b *batch) (map[string]bool, error) {
	held := map[string]bool{}
	for rec, err := range manifest.Records(ctx, r.cfg.Store, r.cfg.Site, b.instrument, b.day) {
		if err != nil {
			return nil, err
		}
		if !expires(&rec) || rec.InPack() {
			continue
		}
		if held[rec.Key] = true; len(held) > maxKeys {
			return nil, &waits{waitKept, fmt.Errorf("more than %d objects were listed since the day was listed as purged: they expire first", maxKeys)}
		}
	}
	return held, nil
}

// removeListed removes what is where the manifest says, or was found, and returns the
// first packs that hold some; moved says whether a compaction moved some.
func (r *Collector) removeListed(ctx context.Context, b *batch, p *plan, d *remover) (packs *window, moved bool, err error) {
	packs = &window{}
	for rec, err := range manifest.Records(ctx, r.cfg.Store, r.cfg.Site, b.instrument, b.day) {
		if err != nil {
			return nil, false, err
		}
		if !mustRemove(b, &rec) {
			continue
		}
		p.add(r.cfg.Site, b, &rec)
		for key := range p.packs {
			packs.add(key)
		}
		moved = moved || len(p.moved) > 0
		clear(p.packs)
		clear(p.moved)
		if len(p.own) < deletion.Batch {
			continue
		}
		if err := d.remove(ctx, p); err != nil {
			return nil, false, err
		}
		clear(p.own)
	}
	err = d.remove(ctx, p)
	clear(p.own)
	return packs, moved, err
}

// removeMoved removes what a compaction moved and left in its old place: it asks the store once,
// rather than for each.
func (r *Collector) removeMoved(ctx context.Context, b *batch, p *plan, d *remover) error {
	left := map[string]bool{}
	remove := func() error {
		if len(left) == 0 {
			return nil
		}
		for rec, err := range manifest.Records(ctx, r.cfg.Store, r.cfg.Site, b.instrument, b.day) {
			if err != nil {
				return err
			}
			if left[rec.ID] && mustRemove(b, &rec) {
				p.own[rec.ID] = rec.Digest
			}
		}
		err := d.remove(ctx, p)
		clear(p.own)
		clear(left)
		return err
	}
	if err := d.flush(ctx); err != nil { // what is removed already is not found again
		return err
	}
	for info, err := range r.cfg.Store.List(ctx, wire.RawPrefix(r.cfg.Site, b.instrument, b.day), "") {
		if err != nil {
			return err
		}
		if left[info.Key] = true; len(left) == maxKeys {
			if err := remove(); err != nil {
				return err
			}
		}
	}
	return remove()
}

// emptyDay takes what is to be removed out of the packs that the manifest names, and of
// those that it named before a compaction.
func (r *Collector) emptyDay(ctx context.Context, b *batch, packs *window, moved bool, now time.Time) error {
	var wait error
	empty := func(keys []string) error {
		err := r.emptyPacks(ctx, keys, now)
		if err != nil && waitsFor(ctx, err) != nil {
			wait, err = err, nil
		}
		return err
	}
	for {
		if err := empty(packs.list()); err != nil {
			return err
		}
		if !packs.more {
			break
		}
		packs = packs.next()
		for rec, err := range manifest.Records(ctx, r.cfg.Store, r.cfg.Site, b.instrument, b.day) {
			if err != nil {
				return err
			}
			if !mustRemove(b, &rec) {
				continue
			}
			p := newPlan()
			p.add(r.cfg.Site, b, &rec)
			for key := range p.packs {
				packs.add(key)
			}
		}
	}
	if !moved {
		return wait
	}
	var left []string
	for key, err := range r.cfg.Compactor.Leftovers(ctx, b.instrument, b.day, func(rec *wire.Record) bool { return mustRemove(b, rec) }) {
		if err != nil {
			return fmt.Errorf("look for older packs: %w", err)
		}
		if left = append(left, key); len(left) < maxKeys {
			continue
		}
		if err := empty(left); err != nil {
			return err
		}
		left = left[:0]
	}
	if err := empty(left); err != nil {
		return err
	}
	return wait
}

// window holds the least of many keys that are greater than one, maxKeys at most. More
// says that there are others behind.
type window struct {
	after string
	more  bool
	keys  map[string]bool
}

func (w *window) add(key string) {
	if key <= w.after {
		return
	}
	if w.keys == nil {
		w.keys = map[string]bool{}
	}
	if w.keys[key] = true; len(w.keys) < 2*maxKeys {
		return
	}
	w.cut()
}

// cut drops all but the least.
func (w *window) cut() {
	keys := w.sorted()
	for _, key := range keys[min(maxKeys, len(keys)):] {
		delete(w.keys, key)
		w.more = true
	}
}

func (w *window) sorted() []string { return slices.Sorted(maps.Keys(w.keys)) }

// list returns the keys, in order.
func (w *window) list() []string {
	w.cut()
	return w.sorted()
}

// next returns the window behind this one.
func (w *window) next() *window { return &window{after: slices.Max(w.sorted())} }
