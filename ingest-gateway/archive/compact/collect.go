// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"context"
	"errors"
	"fmt"

	"github.com/substorm/substorm/ingest-gateway/archive/pack"
	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// maxDoomed identities are looked for in the manifests at once.
const maxDoomed = 100_000

// collector removes what a day's manifests do not name any more, once it is sure
// that the bytes lie elsewhere.
type collector struct {
	*Compactor
	day         wire.Day
	instruments []string
	// there says of packs whether they are in the store.
	there map[string]bool
	// left: something must be looked at again.
	left bool
}

// collect says whether all is done.
func (c *Compactor) collect(ctx context.Context, day wire.Day, instruments []string) (bool, error) {
	g := &collector{Compactor: c, day: day, instruments: instruments, there: map[string]bool{}}
	doomed, err := g.unnamed(ctx)
	if err != nil {
		return false, err
	}
	if err := g.removePacks(ctx, doomed); err != nil {
		return false, err
	}
	for _, instrument := range instruments {
		if err := g.removeRaw(ctx, instrument); err != nil {
			return false, err
		}
	}
	return !g.left, nil
}

// each yields all that the manifests list of the day.
func (g *collector) each(ctx context.Context, f func(instrument string, r wire.Record) error) error {
	for _, instrument := range g.instruments {
		for r, err := range manifest.Records(ctx, g.cfg.Store, g.cfg.Site, instrument, g.day) {
			if err == nil {
				err = f(instrument, r)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// mustStay says whether legal hold came before the bytes of a purged object went.
func (c *Compactor) mustStay(instrument string, r wire.Record) bool {
	return r.State == wire.StatePurged && c.cfg.Held != nil && c.cfg.Held(instrument) != ""
}

// unnamed returns the packs of the day whose bytes no record holds, with their sizes.
func (g *collector) unnamed(ctx context.Context) (map[string]int64, error) {
	packs := map[string]int64{}
	for info, err := range g.cfg.Store.List(ctx, wire.PackPrefix(g.cfg.Site, g.day), "") {
		if err != nil {
			return nil, err
		}
		if _, err := wire.ParsePackKey(info.Key); err == nil {
			packs[info.Key] = info.Size
			g.there[info.Key] = true
		}
	}
	if len(packs) == 0 {
		return nil, nil
	}
	err := g.each(ctx, func(_ string, r wire.Record) error {
		if bucket.Holds(r) {
			delete(packs, r.Key)
		}
		return nil
	})
	return packs, err
}

// removePacks removes packs all of whose members the manifests list elsewhere.
func (g *collector) removePacks(ctx context.Context, doomed map[string]int64) error {
	batch := &doom{members: map[manifest.IDHash]string{}, packs: map[string]bool{}}
	for key, size := range doomed {
		if err := g.condemn(ctx, batch, key, size); err != nil {
			return err
		}
		if len(batch.members) >= maxDoomed {
			if err := g.execute(ctx, batch); err != nil {
				return err
			}
		}
	}
	return g.execute(ctx, batch)
}

// doom are packs to be removed, and their members that were not found yet.
type doom struct {
	members map[manifest.IDHash]string // pack
	packs   map[string]bool
}

func (g *collector) condemn(ctx context.Context, d *doom, key string, size int64) error {
	ids := map[manifest.IDHash]string{}
	for n, err := range pack.Members(ctx, g.cfg.Store, key, size) {
		switch {
		case errors.Is(err, wire.ErrMalformed), errors.Is(err, wire.ErrNewerFormat):
			g.cfg.Log.Warn("a pack that no manifest names cannot be read, and is left alone", "object", key, "error", err)
			return nil
		case errors.Is(err, objectstore.ErrNotFound):
			return nil
		case err != nil:
			return err
		}
		ids[manifest.HashID(n.ID)] = key
	}
	d.packs[key] = true
	for id, key := range ids {
		d.members[id] = key
	}
	return nil
}

// execute removes those packs of which nothing is missing elsewhere.
func (g *collector) execute(ctx context.Context, d *doom) error {
	err := g.each(ctx, func(instrument string, r wire.Record) error {
		id := manifest.HashID(r.ID)
		if _, asked := d.members[id]; !asked {
			return nil
		}
		safe := !bucket.Holds(r) && !g.mustStay(instrument, r)
		if bucket.Holds(r) {
			var err error
			if safe, err = g.isThere(ctx, r.Key); err != nil {
				return err
			}
		}
		if safe {
			delete(d.members, id)
		}
		return nil
	})
	if err != nil {
		return err
	}
	spared := map[string]bool{}
	for _, key := range d.members {
		spared[key] = true
	}
	for key := range d.packs {
		if spared[key] {
			err = g.announce(ctx, key, d.members)
		} else {
			err = g.remove(ctx, key)
		}
		if err != nil {
			return err
		}
	}
	clear(d.members)
	clear(d.packs)
	return nil
}

// isThere asks the store for a key, once.
func (g *collector) isThere(ctx context.Context, key string) (bool, error) {
	if there, asked := g.there[key]; asked {
		return there, nil
	}
	_, err := g.cfg.Store.Head(ctx, key)
	if err != nil && !errors.Is(err, objectstore.ErrNotFound) {
		return false, err
	}
	g.there[key] = err == nil
	return err == nil, nil
}

func (c *Compactor) remove(ctx context.Context, key string) error {
	if err := c.cfg.Lease.Check(); err != nil {
		return err
	}
	if err := c.cfg.Store.Delete(ctx, key); err != nil {
		return err
	}
	c.cfg.Metrics.removed.Inc()
	return nil
}

// announce publishes the notices of members that no manifest lists: the sweep
// should have found them.
func (g *collector) announce(ctx context.Context, key string, missing map[manifest.IDHash]string) error {
	g.left = true
	info, err := g.cfg.Store.Head(ctx, key)
	if err != nil {
		return err
	}
	for n, err := range pack.Members(ctx, g.cfg.Store, key, info.Size) {
		if err != nil {
			return err
		}
		if _, is := missing[manifest.HashID(n.ID)]; !is {
			continue
		}
		if err := g.cfg.Lease.Check(); err != nil {
			return err
		}
		m, err := stream.NoticeMessage(n, g.cfg.Gateway)
		if err != nil {
			return err
		}
		if _, err := g.cfg.JetStream.PublishMsg(ctx, m); err != nil {
			return fmt.Errorf("publish the notice %s: %w", n.MessageID(), err)
		}
		g.cfg.Log.Warn("announced a member of an old pack that no manifest lists", "instrument", n.Instrument, "object", n.ID)
	}
	return nil
}

// removeRaw removes objects of their own that are in packs by now.
func (g *collector) removeRaw(ctx context.Context, instrument string) error {
	batch := map[manifest.IDHash]string{}
	for info, err := range g.cfg.Store.List(ctx, wire.RawPrefix(g.cfg.Site, instrument, g.day), "") {
		if err != nil {
			return err
		}
		if info.Size > maxMember {
			continue
		}
		batch[manifest.HashID(info.Key)] = info.Key
		if len(batch) >= maxDoomed {
			if err := g.removeMoved(ctx, instrument, batch); err != nil {
				return err
			}
		}
	}
	return g.removeMoved(ctx, instrument, batch)
}

func (g *collector) removeMoved(ctx context.Context, instrument string, batch map[manifest.IDHash]string) error {
	defer clear(batch)
	if len(batch) == 0 {
		return nil
	}
	for r, err := range manifest.Records(ctx, g.cfg.Store, g.cfg.Site, instrument, g.day) {
		if err != nil {
			return err
		}
		key, asked := batch[manifest.HashID(r.ID)]
		if !asked || !r.InPack() || !bucket.Holds(r) || r.ID != key {
			continue
		}
		there, err := g.isThere(ctx, r.Key)
		if err == nil && there {
			err = g.remove(ctx, key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
