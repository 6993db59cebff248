// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/substorm/substorm/ingest-gateway/archive/pack"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// ErrUnlisted: a member is in no manifest yet. The sweep announces it; then its
// pack can be rewritten.
var ErrUnlisted = errors.New("a member is not listed")

// Rewrite takes the bytes of one member out of its pack: the others move to a new
// pack, the member's line stays in the manifest with the state Purged, and the
// old pack is removed at once. What a kill leaves half done, the same call
// finishes; a pack that is gone is no error. Errors: ErrUnlisted, ErrFenced,
// pack.ErrDamaged, those of the store and the lease.
func (c *Compactor) Rewrite(ctx context.Context, key, without string) error {
	file, err := wire.ParsePackKey(key)
	if err != nil {
		return err
	}
	info, err := c.cfg.Store.Head(ctx, key)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	members := map[string][]wire.Record{} // by instrument, as they lie
	for n, err := range pack.Members(ctx, c.cfg.Store, key, info.Size) {
		if err != nil {
			return err
		}
		members[n.Instrument] = append(members[n.Instrument], n.Record)
	}
	for instrument, in := range members {
		if err := c.moveOut(ctx, instrument, file.Day, key, without, in); err != nil {
			return fmt.Errorf("rewrite %s: instrument %s: %w", key, instrument, err)
		}
	}
	if err := c.cfg.Lease.Check(); err != nil {
		return err
	}
	if err := c.cfg.Store.Delete(ctx, key); err != nil {
		return err
	}
	c.cfg.Metrics.removed.Inc()
	return nil
}

// moveOut gives an instrument's members of a pack new places, all but one.
func (c *Compactor) moveOut(ctx context.Context, instrument string, day wire.Day, key, without string, members []wire.Record) error {
	unlisted := map[string]bool{}
	for _, r := range members {
		unlisted[r.ID] = true
	}
	var stay []wire.Record
	change := false
	for r, err := range manifest.Records(ctx, c.cfg.Store, c.cfg.Site, instrument, day) {
		if err != nil {
			return err
		}
		delete(unlisted, r.ID)
		if r.Key != key || !holds(r) {
			continue
		}
		change = true
		if r.ID != without {
			stay = append(stay, r)
		}
	}
	for id := range unlisted {
		return fmt.Errorf("%s: %w", id, ErrUnlisted)
	}
	if !change {
		return nil // all of them have other places already
	}
	moved, err := c.moveStaying(ctx, instrument, stay)
	if err != nil {
		return err
	}
	return c.relist(ctx, instrument, day, func(r wire.Record) wire.Record {
		if n, ok := moved[r.ID]; ok && holds(r) {
			r.Key, r.Offset, r.Length = n.Key, n.Offset, n.Length
		} else if r.ID == without && holds(r) {
			r.State = wire.StatePurged
		}
		return r
	})
}

// moveStaying stores the pack of those that stay. All must be readable.
func (c *Compactor) moveStaying(ctx context.Context, instrument string, stay []wire.Record) (map[string]wire.Record, error) {
	if len(stay) == 0 {
		return nil, nil
	}
	slices.SortFunc(stay, func(a, b wire.Record) int { return cmp.Compare(a.Offset, b.Offset) })
	moved, err := c.repack(ctx, instrument, stay)
	if err == nil && len(moved) < len(stay) || errors.Is(err, errNothing) {
		err = fmt.Errorf("%d of %d members cannot be read: %w", len(stay)-len(moved), len(stay), pack.ErrDamaged)
	}
	return moved, err
}

// relist writes a new version of a day with changed records.
func (c *Compactor) relist(ctx context.Context, instrument string, day wire.Day, change func(wire.Record) wire.Record) error {
	files, err := manifest.List(ctx, c.cfg.Store, c.cfg.Site, instrument, day)
	if err != nil {
		return err
	}
	v, err := c.newVersion(files, instrument, day)
	if err != nil {
		return err
	}
	defer v.discard()
	for r, err := range manifest.Records(ctx, c.cfg.Store, c.cfg.Site, instrument, day) {
		if err == nil {
			err = v.add(change(r))
		}
		if err != nil {
			return err
		}
	}
	if err := v.store(ctx); err != nil {
		return err
	}
	c.cfg.Index.Compacted(ctx, instrument, day)
	return nil
}
