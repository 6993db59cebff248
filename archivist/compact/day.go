// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// maxGroup members go into one pack, and their records into memory, at most.
	maxGroup = 16384
	// overhead is what a member takes in a pack beside its bytes, about.
	overhead = 2048
)

func inOrder(found map[wire.Day][]string) []openDay {
	var days []openDay
	for _, day := range slices.Sorted(maps.Keys(found)) {
		days = append(days, openDay{day, found[day]})
	}
	return days
}

// mustMove says whether a record's bytes belong into a compacted pack and are elsewhere. Objects with
// a name stay under its key.
func mustMove(r wire.Record, packBelow int64) bool {
	if r.State != wire.StateCurrent || r.Segment != nil || r.Name != "" || r.DigestSource != "" || r.Size <= 0 || r.Size > maxMember {
		return false
	}
	if r.InPack() {
		pack, err := wire.ParsePackKey(r.Key)
		return err == nil && !pack.Compacted()
	}
	_, raw := wire.ReceivedAtOfKey(r.Key)
	return raw && r.Size <= packBelow
}

// compact writes a new version of an instrument's day if there is anything new in it, and returns
// when the version in effect was stored.
func (c *Compactor) compact(ctx context.Context, instrument string, day wire.Day) (time.Time, error) {
	files, err := manifest.List(ctx, c.cfg.Store, c.cfg.Site, instrument, day)
	if err != nil {
		return time.Time{}, err
	}
	if len(files.InEffect) == 1 && !files.CompactedAt.IsZero() {
		if late, err := c.cfg.Index.Tell(ctx, instrument, day, files); late || err != nil {
			return time.Now(), nil // readers learn of it now: what was replaced stays for this pass
		}
		return files.CompactedAt, nil
	}
	if c.cfg.Scarce != nil && c.cfg.Scarce() {
		return time.Time{}, errScarce
	}
	v, err := c.newVersion(files, instrument, day)
	if err != nil {
		return time.Time{}, err
	}
	defer v.Discard()
	group := &group{compactor: c, instrument: instrument, day: day, add: v.Add}
	packBelow := c.cfg.PackBelow(instrument)
	// Only the files that the new version replaces are read: a part that came since stays in effect.
	for r, err := range manifest.RecordsOf(ctx, c.cfg.Store, files.InEffect) {
		if err == nil && mustMove(r, packBelow) {
			err = group.take(ctx, r)
		} else if err == nil {
			err = v.Add(r)
		}
		if err != nil {
			return time.Time{}, err
		}
	}
	if err := group.write(ctx); err != nil {
		return time.Time{}, err
	}
	if err := v.Store(ctx, c.cfg.Store, c.cfg.Lease.Check); err != nil {
		return time.Time{}, err
	}
	_ = c.cfg.Index.Compacted(ctx, instrument, day) // before anything is removed, it is reported again
	c.cfg.Log.Info("compacted a day", "instrument", instrument, "day", day, "files", len(files.InEffect),
		"objects", v.Count(), "packs", group.packs, "members", group.members)
	return time.Now(), nil
}

// group gathers the records of one pack.
type group struct {
	compactor  *Compactor
	instrument string
	day        wire.Day
	add        func(wire.Record) error

	records        []wire.Record
	size           int64
	packs, members int
}

// take adds a record, and writes the pack that is full.
func (g *group) take(ctx context.Context, r wire.Record) error {
	size := r.Size + overhead
	if len(g.records) == maxGroup || len(g.records) > 0 && g.size+size > g.compactor.cfg.PackSize {
		if err := g.write(ctx); err != nil {
			return err
		}
	}
	g.records = append(g.records, r)
	g.size += size
	return nil
}

// write stores the pack and lists its members with their new places.
func (g *group) write(ctx context.Context) error {
	if len(g.records) == 0 {
		return nil
	}
	// In their order in the packs: a source is read once, from its front.
	slices.SortStableFunc(g.records, func(a, b wire.Record) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Offset, b.Offset))
	})
	moved, err := g.compactor.repack(ctx, g.instrument, g.records)
	if err != nil && !errors.Is(err, errNothing) {
		return err
	}
	for i := range g.records {
		r := g.records[i]
		if n, ok := moved[r.ID]; ok {
			r = n
			g.members++
		}
		if err := g.add(r); err != nil {
			return err
		}
	}
	if len(moved) > 0 {
		g.packs++
	}
	g.records, g.size = g.records[:0], 0
	return nil
}
