// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/pack"
	"github.com/substorm/substorm/internal/wire"
)

// Leftovers yields the packs of a day that no manifest names any more, and that hold a
// member of an instrument whose line goes. A compaction leaves them to readers for a
// while. Errors: those of the store and of manifests.
func (c *Compactor) Leftovers(ctx context.Context, instrument string, day wire.Day, goes func(*wire.Record) bool) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		g := &collector{Compactor: c, day: day, now: time.Now(), there: map[string]bool{}}
		for instrument, err := range manifest.Instruments(ctx, c.cfg.Store, c.cfg.Site) {
			if err != nil {
				yield("", err)
				return
			}
			g.instruments = append(g.instruments, instrument)
		}
		for packs, err := range g.unnamed(ctx) {
			if err != nil {
				yield("", err)
				return
			}
			for key, err := range g.packsHolding(ctx, instrument, packs, goes) {
				if !yield(key, err) || err != nil {
					return
				}
			}
		}
	}
}

// packsHolding yields those of some packs that hold a member whose line goes. It looks for
// maxDoomed members at once, and a pack's more.
func (g *collector) packsHolding(ctx context.Context, instrument string, packs map[string]listedPack, goes func(*wire.Record) bool) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		members := map[manifest.IDHash][]string{} // the packs that hold them
		find := func() bool {
			found, err := g.lines(ctx, instrument, members, goes)
			clear(members)
			if err != nil {
				yield("", err)
				return false
			}
			for _, key := range slices.Sorted(maps.Keys(found)) {
				if !yield(key, nil) {
					return false
				}
			}
			return true
		}
		for _, key := range slices.Sorted(maps.Keys(packs)) {
			for n, err := range pack.Members(ctx, g.cfg.Store, key, packs[key].size) {
				if errors.Is(err, objectstore.ErrNotFound) || errors.Is(err, wire.ErrMalformed) || errors.Is(err, wire.ErrNewerFormat) {
					break // it is gone, or no pack that we can read
				}
				if err != nil {
					yield("", err)
					return
				}
				if id := manifest.HashID(n.ID); n.Instrument == instrument {
					members[id] = append(members[id], key)
				}
			}
			if len(members) >= maxDoomed && !find() {
				return
			}
		}
		find()
	}
}

// lines returns the packs that hold a member whose line goes.
func (g *collector) lines(ctx context.Context, instrument string, members map[manifest.IDHash][]string, goes func(*wire.Record) bool) (map[string]bool, error) {
	found := map[string]bool{}
	if len(members) == 0 {
		return found, nil
	}
	for r, err := range manifest.Records(ctx, g.cfg.Store, g.cfg.Site, instrument, g.day) {
		if err != nil {
			return nil, err
		}
		if in := members[manifest.HashID(r.ID)]; in != nil && goes(&r) {
			for _, key := range in {
				found[key] = true
			}
		}
	}
	return found, nil
}
