// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/substorm/substorm/archivist/damage"
	"github.com/substorm/substorm/archivist/deletion"
	"github.com/substorm/substorm/archivist/failedpacks"
	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/pack"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// The memory held for a day is bounded, however many packs and objects it has: they are compared with the manifests
// part by part, in the order of their keys.
const (
	// maxPacks are compared with the manifests at once.
	maxPacks = 40_000
	// maxDoomed identities are looked for in the manifests at once.
	maxDoomed = 40_000
)

// collector finds what a day's manifests do not name any more.
type collector struct {
	*Compactor
	day         wire.Day
	instruments []string
	now         time.Time
	// there says of packs whether they are in the store.
	there map[string]bool
	// failed are the packs that gateways could not store, as far as they know; nil before they are asked for.
	failed map[string]bool
	// left: something must be looked at again.
	left bool
}

// collect says whether all is done.
func (c *Compactor) collect(ctx context.Context, day wire.Day, instruments []string, now time.Time) (bool, error) {
	g := &collector{Compactor: c, day: day, instruments: instruments, now: now, there: map[string]bool{}}
	if err := g.removePacks(ctx); err != nil {
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

// listedPack is what the bucket says of a pack.
type listedPack struct {
	size     int64
	storedAt time.Time
}

// unnamed yields the packs of the day whose bytes no record holds, maxPacks at most at a
// time.
func (g *collector) unnamed(ctx context.Context) iter.Seq2[map[string]listedPack, error] {
	return func(yield func(map[string]listedPack, error) bool) {
		packs := map[string]listedPack{}
		compare := func() bool {
			if len(packs) == 0 {
				return true
			}
			err := g.each(ctx, func(_ string, r wire.Record) error {
				if bucket.Holds(r) {
					delete(packs, r.Key)
				}
				return nil
			})
			more := err != nil || len(packs) > 0
			more = !more || yield(packs, err)
			clear(packs)
			clear(g.there)
			return more && err == nil
		}
		for info, err := range g.cfg.Store.List(ctx, wire.PackPrefix(g.cfg.Site, g.day), "") {
			if err != nil {
				yield(nil, err)
				return
			}
			if _, err := wire.ParsePackKey(info.Key); err != nil {
				continue
			}
			packs[info.Key] = listedPack{info.Size, info.ModifiedAt}
			if len(packs) == maxPacks && !compare() {
				return
			}
		}
		compare()
	}
}

// removePacks removes packs all of whose members the manifests list elsewhere. They are
// gathered until maxDoomed members are worth another look at the manifests.
func (g *collector) removePacks(ctx context.Context) error {
	d := newDoom()
	for unnamed, err := range g.unnamed(ctx) {
		if err != nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(unnamed)) {
			if err := g.condemn(ctx, d, key, unnamed[key]); err != nil {
				return err
			}
			if len(d.members) >= maxDoomed || len(d.packs) >= maxPacks {
				if err := g.execute(ctx, d); err != nil {
					return err
				}
				d = newDoom()
			}
		}
	}
	return g.execute(ctx, d)
}

// doom are packs to be removed, and their members that were not found yet.
type doom struct {
	members map[manifest.IDHash]string // pack
	packs   map[string]*deletion.Object
	// duplicates are members that are listed as duplicates of others.
	duplicates map[manifest.IDHash]duplicate
}

func newDoom() *doom {
	return &doom{members: map[manifest.IDHash]string{}, packs: map[string]*deletion.Object{}, duplicates: map[manifest.IDHash]duplicate{}}
}

func (g *collector) condemn(ctx context.Context, d *doom, key string, listed listedPack) (err error) {
	var ids []manifest.IDHash
	for n, err := range pack.Members(ctx, g.cfg.Store, key, listed.size) {
		switch {
		case errors.Is(err, wire.ErrMalformed), errors.Is(err, wire.ErrNewerFormat):
			g.cfg.Log.Warn("a pack that no manifest names cannot be read, and is left alone", "object", key, "error", err)
			return nil
		case errors.Is(err, objectstore.ErrNotFound):
			return nil
		case err != nil:
			return err
		}
		ids = append(ids, manifest.HashID(n.ID))
	}
	if g.failed == nil {
		if g.failed, err = failedpacks.Read(ctx, g.cfg.JetStream, g.cfg.Site); err != nil {
			return err
		}
	}
	d.packs[key] = &deletion.Object{Key: key, Reason: wire.DeletedUnnamed, Day: g.day, KeptUntil: listed.storedAt.Add(g.cfg.Grace)}
	for _, id := range ids {
		if d.members[id] == "" || !g.failed[key] { // a failed pack answers for nothing that another one has, too
			d.members[id] = key
		}
	}
	return nil
}

// execute removes the packs that hold nothing that is missing elsewhere, and those that a gateway reported as failed. A pack that a
// manifest names by now stays: its own lines, and those of other packs, count on it.
func (g *collector) execute(ctx context.Context, d *doom) error {
	if len(d.packs) == 0 {
		return nil
	}
	reports, err := damage.ReadReports(ctx, g.cfg.JetStream, g.cfg.Site)
	if err != nil {
		return err
	}
	err = g.each(ctx, func(instrument string, r wire.Record) error {
		if named := d.packs[r.Key]; named != nil && bucket.Holds(r) {
			named.Named = r.ID // it was listed since the first look
		}
		id := manifest.HashID(r.ID)
		key, asked := d.members[id]
		if !asked {
			return nil
		}
		safe := false
		switch {
		case bucket.Holds(r) && reports.Concern(instrument, r.ID, r.Key):
			if of := d.packs[key]; of.Only == "" {
				of.Only = r.ID
				g.warnOldStays(instrument, key, r)
			}
			safe = true // it is listed: nothing is to be announced
		case bucket.Holds(r):
			var err error
			if safe, err = g.isThere(ctx, r.Key); err != nil {
				return err
			}
		case r.State == wire.StateDuplicate && r.DuplicateOf != "":
			d.duplicates[id] = duplicateOf(g.cfg.Site, instrument, r)
		default:
			safe = true
			if of := d.packs[key]; !slices.Contains(of.Takes, instrument) {
				of.Takes = append(of.Takes, instrument)
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
	maps.DeleteFunc(d.members, func(id manifest.IDHash, pack string) bool {
		_, listed := d.duplicates[id]
		return g.failed[pack] && !listed
	})
	err = g.originals(ctx, d)
	if errors.Is(err, errNames) {
		g.cfg.Log.Warn("packs that no manifest names stay for now", "day", g.day, "packs", len(d.packs), "error", err)
		g.left = true
		return nil
	}
	if err != nil {
		return err
	}
	for _, key := range d.members {
		d.packs[key].Only = "a member that no manifest lists elsewhere"
	}
	return g.removeDoomed(ctx, d)
}

// warnOldStays says why an old place stays.
func (g *collector) warnOldStays(instrument, old string, r wire.Record) {
	g.cfg.Log.Warn("damage is reported at the new place of a moved object: keeping its old place, which may have the last whole copy, until the scrub finds the new one whole",
		"instrument", instrument, "object", r.ID, "old", old, "new", r.Key)
}

// removeDoomed deletes what may go, and announces what nothing lists.
func (g *collector) removeDoomed(ctx context.Context, d *doom) error {
	var objects []deletion.Object
	for _, key := range slices.Sorted(maps.Keys(d.packs)) {
		objects = append(objects, *d.packs[key])
		g.there[key] = false
	}
	kept, err := g.cfg.Deleter.Delete(ctx, g.now, objects...)
	if err != nil {
		return err
	}
	g.cfg.Metrics.removed.Add(float64(len(objects) - len(kept)))
	for _, k := range kept {
		g.there[k.Key] = true
		switch k.Why {
		case deletion.KeptNamed:
			continue
		case deletion.KeptOnly:
			if err := g.announce(ctx, k.Key, d); err != nil {
				return err
			}
		}
		g.left = true
	}
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
	if len(g.there) >= maxPacks {
		clear(g.there)
	}
	g.there[key] = err == nil
	return err == nil, nil
}

// announce publishes the notices of members that no manifest lists: the sweep should have
// found them. A duplicate of something that is gone is announced as an object of its own.
func (g *collector) announce(ctx context.Context, key string, d *doom) error {
	info, err := g.cfg.Store.Head(ctx, key)
	if err != nil {
		return err
	}
	for n, err := range pack.Members(ctx, g.cfg.Store, key, info.Size) {
		if err != nil {
			return err
		}
		id := manifest.HashID(n.ID)
		if d.members[id] != key {
			continue
		}
		if r, orphan := d.duplicates[id]; orphan {
			n.ID = r.own
		}
		if err := g.cfg.Lease.Check(); err != nil {
			return err
		}
		m, err := stream.NoticeMessage(n, g.cfg.Pod)
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
	reports, err := damage.ReadReports(ctx, g.cfg.JetStream, g.cfg.Site)
	if err != nil {
		return err
	}
	var moved []deletion.Object
	named := map[string]bool{} // by another line that has one of the keys
	for r, err := range manifest.Records(ctx, g.cfg.Store, g.cfg.Site, instrument, g.day) {
		if err != nil {
			return err
		}
		if bucket.Holds(r) && !r.InPack() && batch[manifest.HashID(r.Key)] != "" {
			named[r.Key] = true
		}
		key, asked := batch[manifest.HashID(r.ID)]
		if !asked || !r.InPack() || !bucket.Holds(r) || r.ID != key {
			continue
		}
		there, err := g.isThere(ctx, r.Key)
		if err != nil {
			return err
		}
		if !there {
			continue
		}
		old := deletion.Object{Key: key, Reason: wire.DeletedMoved, Instrument: instrument, Instead: r.Key}
		if reports.Concern(instrument, r.ID, r.Key) {
			old.Only = r.ID
			g.warnOldStays(instrument, key, r)
		}
		moved = append(moved, old)
	}
	for i := range moved {
		if named[moved[i].Key] {
			moved[i].Named = moved[i].Key
		}
	}
	kept, err := g.cfg.Deleter.Delete(ctx, g.now, moved...)
	if err != nil {
		return err
	}
	g.cfg.Metrics.removed.Add(float64(len(moved) - len(kept)))
	for _, k := range kept {
		g.left = g.left || k.Why == deletion.KeptRefused || k.Why == deletion.KeptOnly
	}
	return nil
}
