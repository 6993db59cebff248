// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/substorm/substorm/archivist/deletion"
	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/pack"
	"github.com/substorm/substorm/internal/wire"
)

var (
	// ErrUnlisted: a member is in no manifest yet. The sweep announces it; then its
	// pack can be rewritten.
	ErrUnlisted = errors.New("a member is not listed")
	// ErrElsewhere: a member is listed in another place that has nothing, so that the pack has its
	// only copy.
	ErrElsewhere = errors.New("a member is not where the manifest says")
	// ErrHeld: a member is listed as purged, and its instrument is under legal hold.
	ErrHeld = errors.New("a member is under legal hold")
)

// Vacate gives new places to those members of a pack that the manifests say must stay, and returns how many
// there are, including those that have other places already: it is unknown since when readers know these. Only
// readers of an older manifest need the pack after that: if no members stay, it is removed at once. When Vacate
// returns, the readers were notified. If a kill leaves it half done, the same call finishes it; a pack that is
// gone is no error. Errors: ErrUnlisted, ErrElsewhere, ErrHeld, manifest.ErrFenced, pack.ErrDamaged,
// index.ErrIncomplete, those of the store and the lease.
func (c *Compactor) Vacate(ctx context.Context, key string) (moved int, err error) {
	c.work.Lock()
	defer c.work.Unlock()
	v, err := c.vacate(ctx, key, "")
	if err != nil || v.moved > 0 || v.gone {
		return v.moved, err
	}
	return 0, c.removeVacated(ctx, key, v)
}

// Rewrite takes the bytes of a member out of its pack, and of those whose lines say
// that they were purged or are duplicates: the others move to a new pack, the member's
// line stays in the manifest with the state Purged, and the old pack is removed at
// once. Without may be empty. Errors: as Vacate.
func (c *Compactor) Rewrite(ctx context.Context, key, without string) error {
	c.work.Lock()
	defer c.work.Unlock()
	v, err := c.vacate(ctx, key, without)
	if err != nil || v.gone {
		return err
	}
	return c.removeVacated(ctx, key, v)
}

// vacated is a pack that is no longer needed.
type vacated struct {
	// gone: there is none; moved is how many members have other places.
	gone  bool
	moved int
	// instruments are those that lose bytes with it.
	instruments []string
}

// removeVacated deletes a pack whose members that stay have other places.
func (c *Compactor) removeVacated(ctx context.Context, key string, v vacated) error {
	err := c.cfg.Deleter.One(ctx, time.Now(), deletion.Object{Key: key, Reason: wire.DeletedRewritten, Takes: v.instruments})
	if err == nil {
		c.cfg.Metrics.removed.Inc()
	}
	return err
}

func (c *Compactor) vacate(ctx context.Context, key, without string) (v vacated, err error) {
	file, err := wire.ParsePackKey(key)
	if err != nil {
		return v, err
	}
	info, err := c.cfg.Store.Head(ctx, key)
	if errors.Is(err, objectstore.ErrNotFound) {
		return vacated{gone: true}, nil
	}
	if err != nil {
		return v, err
	}
	members := map[string][]wire.Record{} // by instrument, in their order in the pack
	for n, err := range pack.Members(ctx, c.cfg.Store, key, info.Size) {
		if err != nil {
			return v, err
		}
		members[n.Instrument] = append(members[n.Instrument], n.Record)
	}
	for instrument, in := range members {
		stayed, takes, err := c.moveOut(ctx, instrument, file.Day, key, without, in)
		if err != nil {
			return v, fmt.Errorf("rewrite %s: instrument %s: %w", key, instrument, err)
		}
		v.moved += stayed
		if takes {
			v.instruments = append(v.instruments, instrument)
		}
	}
	return v, nil
}

// moveOut gives an instrument's members of a pack new places, all but one. Takes says
// whether bytes are lost with the pack.
func (c *Compactor) moveOut(ctx context.Context, instrument string, day wire.Day, key, without string, members []wire.Record) (stayed int, takes bool, err error) {
	found, err := c.sort(ctx, instrument, day, key, without, members)
	if err != nil {
		return 0, false, err
	}
	if err := c.checkPlaces(ctx, found.elsewhere); err != nil {
		return 0, false, err
	}
	if err := c.lastCopies(ctx, day, key, found.duplicates); err != nil {
		return 0, false, err
	}
	if !found.change {
		_, err := c.Tell(ctx, instrument, day)
		return found.moved, found.takes, err
	}
	moved, err := c.moveStaying(ctx, instrument, found.stay)
	if err != nil {
		return 0, false, err
	}
	return found.moved + len(found.stay), found.takes, c.relist(ctx, instrument, day, func(r wire.Record) wire.Record {
		if n, ok := moved[r.ID]; ok && bucket.Holds(r) {
			r.Key, r.Offset, r.Length = n.Key, n.Offset, n.Length
		} else if r.ID == without && bucket.Holds(r) {
			r.State = wire.StatePurged
		}
		return r
	})
}

// sorted is what the manifest says of an instrument's members of a pack.
type sorted struct {
	// stay are the members that are listed in the pack and are to have new places; change: some
	// member is listed there, to stay or not.
	stay   []wire.Record
	change bool
	// moved is how many are listed elsewhere; elsewhere has the ID of one of them by key.
	moved     int
	elsewhere map[string]string
	// duplicates are those that are listed as duplicates.
	duplicates map[manifest.IDHash]duplicate
	// takes: a member was purged, or is to be.
	takes bool
}

// sort sorts members of a pack by what the manifest says of them. Errors: ErrHeld, ErrUnlisted,
// those of the store and of manifests.
func (c *Compactor) sort(ctx context.Context, instrument string, day wire.Day, key, without string, members []wire.Record) (sorted, error) {
	unlisted := map[string]bool{}
	for _, r := range members {
		unlisted[r.ID] = true
	}
	found := sorted{elsewhere: map[string]string{}, duplicates: map[manifest.IDHash]duplicate{}}
	for r, err := range manifest.Records(ctx, c.cfg.Store, c.cfg.Site, instrument, day) {
		if err != nil {
			return found, err
		}
		switch {
		case !bucket.Holds(r):
			if unlisted[r.ID] && r.State == wire.StatePurged {
				found.takes = true
				if why := c.cfg.Deleter.Held(instrument); why != "" {
					return found, fmt.Errorf("%s: %w: %s", r.ID, ErrHeld, why)
				}
			}
			if unlisted[r.ID] && r.State == wire.StateDuplicate && r.DuplicateOf != "" {
				found.duplicates[manifest.HashID(r.ID)] = duplicateOf(c.cfg.Site, instrument, r)
			}
		case r.Key == key:
			found.change = true
			found.takes = found.takes || r.ID == without
			if r.ID != without {
				found.stay = append(found.stay, r)
			}
		case unlisted[r.ID]:
			found.elsewhere[r.Key] = r.ID
			found.moved++
		}
		delete(unlisted, r.ID)
	}
	for id := range unlisted {
		return found, fmt.Errorf("%s: %w", id, ErrUnlisted)
	}
	return found, nil
}

// checkPlaces asks for the places that members of a pack have by now.
func (c *Compactor) checkPlaces(ctx context.Context, places map[string]string) error {
	for key, id := range places {
		_, err := c.cfg.Store.Head(ctx, key)
		if errors.Is(err, objectstore.ErrNotFound) {
			return fmt.Errorf("%s in %s: %w", id, key, ErrElsewhere)
		}
		if err != nil {
			return err
		}
	}
	return nil
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

// Relist writes a new version of a day with changed records. Before is called with the
// files that it replaces, before it is stored: what comes since is not in them, and stays
// as it is. Errors: manifest.ErrFenced, before's, those of the store and the lease.
func (c *Compactor) Relist(ctx context.Context, instrument string, day wire.Day, before func(manifest.Files) error, change func(wire.Record) wire.Record) error {
	c.work.Lock()
	defer c.work.Unlock()
	files, err := manifest.List(ctx, c.cfg.Store, c.cfg.Site, instrument, day)
	if err == nil {
		err = before(files)
	}
	if err != nil {
		return err
	}
	return c.relistFiles(ctx, instrument, day, files, change)
}

func (c *Compactor) relist(ctx context.Context, instrument string, day wire.Day, change func(wire.Record) wire.Record) error {
	files, err := manifest.List(ctx, c.cfg.Store, c.cfg.Site, instrument, day)
	if err != nil {
		return err
	}
	return c.relistFiles(ctx, instrument, day, files, change)
}

func (c *Compactor) relistFiles(ctx context.Context, instrument string, day wire.Day, files manifest.Files, change func(wire.Record) wire.Record) error {
	v, err := c.newVersion(files, instrument, day)
	if err != nil {
		return err
	}
	defer v.Discard()
	// Only the files that the new version replaces are read: a part that came since stays in effect.
	for r, err := range manifest.RecordsOf(ctx, c.cfg.Store, files.InEffect) {
		if err == nil {
			err = v.Add(change(r))
		}
		if err != nil {
			return err
		}
	}
	if err := v.Store(ctx, c.cfg.Store, c.cfg.Lease.Check); err != nil {
		return err
	}
	return c.cfg.Index.Compacted(ctx, instrument, day)
}

// Tell makes sure that readers know which files of a day are in effect: the process that stored
// them may have died, or lost the lease, before it notified them. Late says that they learn it only
// now. Errors: index.ErrIncomplete, those of the store and of manifests.
func (c *Compactor) Tell(ctx context.Context, instrument string, day wire.Day) (late bool, err error) {
	files, err := manifest.List(ctx, c.cfg.Store, c.cfg.Site, instrument, day)
	if err != nil {
		return false, err
	}
	return c.cfg.Index.Tell(ctx, instrument, day, files)
}
