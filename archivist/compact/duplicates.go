// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/archivist/damage"
	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/nameclaims"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// maxHops bounds how far a duplicate of a duplicate is followed.
const maxHops = 4

// duplicate is a member of a pack that is listed as a duplicate.
type duplicate struct {
	instrument, id string
	// of is the ID of the original, and own the ID under which the member is listed, or is
	// to be announced, where the original is gone. Both have size and digest.
	of, own string
	size    int64
	digest  wire.Digest
}

func duplicateOf(site, instrument string, r wire.Record) duplicate {
	return duplicate{instrument, r.ID, r.DuplicateOf, wire.OrphanID(wire.Notice{Site: site, Instrument: instrument, Record: r}), r.Size, r.Digest}
}

// errNames: it is unknown when the object with a name was received.
var errNames = errors.New("the claims of names are being rebuilt")

// namedDay returns the day on which an object with a name was received, as its claim says;
// empty where it never had the name. Error: errNames.
func (g *collector) namedDay(ctx context.Context, instrument, id string) (wire.Day, error) {
	name, version, ok := wire.NameOfID(id)
	if !ok {
		return "", nil
	}
	bucket := wire.NamesBucket(g.cfg.Site)
	kv, err := g.cfg.JetStream.KeyValue(ctx, bucket)
	if err != nil {
		return "", fmt.Errorf("bucket %s: %w", bucket, err)
	}
	e, err := kv.Get(ctx, wire.NameKey(instrument, name))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		whole, err := nameclaims.IsWhole(ctx, kv)
		if err == nil && !whole {
			err = fmt.Errorf("object %s: %w", id, errNames)
		}
		return "", err
	}
	if err != nil {
		return "", fmt.Errorf("bucket %s: %w", bucket, err)
	}
	claim, err := wire.Decode[wire.NameClaim](e.Value())
	if err != nil {
		return "", fmt.Errorf("bucket %s: %w", bucket, err)
	}
	if version > len(claim.Versions) || claim.Versions[version-1].ReceivedAt.IsZero() {
		return "", nil
	}
	return wire.DayOf(claim.Versions[version-1].ReceivedAt), nil
}

// originals looks for the originals of duplicates. The bytes of a duplicate may go if the
// original's bytes are kept; if they were purged, which then also applies to equal bytes that wait
// in packs; or if they expired with the duplicate's own day or a later one. Otherwise they are the
// last copy. Error: errNames, if this cannot be determined now.
func (g *collector) originals(ctx context.Context, d *doom) error {
	s := &search{collector: g, doom: d, next: map[place]map[string][]manifest.IDHash{}}
	for id, r := range d.duplicates {
		for _, of := range []string{r.of, r.own} {
			if err := s.seekOriginal(ctx, r.instrument, of, id); err != nil {
				return err
			}
		}
	}
	for hop := 0; hop < maxHops && len(s.next) > 0; hop++ {
		wanted := s.next
		s.next = map[place]map[string][]manifest.IDHash{}
		for at, ids := range wanted {
			for r, err := range manifest.Records(ctx, g.cfg.Store, g.cfg.Site, at.instrument, at.day) {
				if err != nil {
					return err
				}
				if of, asked := ids[r.ID]; asked {
					if err := s.judgeOriginal(ctx, at, r, of); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// search looks for originals, hop by hop: an original may be a duplicate itself.
type search struct {
	*collector
	doom *doom
	// next are the duplicates by the ID of what they are equal to, to be looked for in a
	// day's manifest.
	next map[place]map[string][]manifest.IDHash
}

type place struct {
	instrument string
	day        wire.Day
}

// spareMembers says that the bytes of duplicates are not the last.
func (s *search) spareMembers(ids []manifest.IDHash) {
	for _, id := range ids {
		delete(s.doom.members, id)
	}
}

// seekOriginal looks for an original in the next hop.
func (s *search) seekOriginal(ctx context.Context, instrument, of string, ids ...manifest.IDHash) error {
	day, ok := wire.DayOfID(of)
	if !ok { // a name: its key says where it is
		is := s.doom.duplicates[ids[0]]
		stays, err := s.isSound(ctx, instrument, wire.Record{ID: of, Key: of, Size: is.size, Digest: is.digest})
		if err == nil && stays {
			s.spareMembers(ids)
		}
		if err != nil || stays {
			return err
		}
		if day, err = s.namedDay(ctx, instrument, of); err != nil || day == "" {
			return err
		}
	}
	at := place{instrument, day}
	if s.next[at] == nil {
		s.next[at] = map[string][]manifest.IDHash{}
	}
	s.next[at][of] = append(s.next[at][of], ids...)
	return nil
}

// judgeOriginal decides about the duplicates of a listed object.
func (s *search) judgeOriginal(ctx context.Context, at place, r wire.Record, ids []manifest.IDHash) error {
	switch {
	case r.State == wire.StateDuplicate:
		return s.followDuplicate(ctx, at, r, ids)
	case !bucket.Holds(r):
		if r.ChangedBy != wire.ByRetention || at.day >= s.day {
			s.spareMembers(ids) // what expired before the duplicate does not take it along
		}
		return nil
	}
	if s.doom.packs[r.Key] != nil {
		return nil
	}
	stays, err := s.isSound(ctx, at.instrument, r)
	if err == nil && stays {
		s.spareMembers(ids)
	}
	return err
}

// isSound says whether an original is in the store, and is whole if it was reported as damaged.
func (s *search) isSound(ctx context.Context, instrument string, r wire.Record) (bool, error) {
	if r.InPack() { // of others Sound asks the store
		if there, err := s.isThere(ctx, r.Key); err != nil || !there {
			return false, err
		}
	}
	return damage.Sound(ctx, s.cfg.JetStream, s.cfg.Store, s.cfg.Site, instrument, r)
}

// followDuplicate continues with the original of an original that is a duplicate itself.
func (s *search) followDuplicate(ctx context.Context, at place, r wire.Record, ids []manifest.IDHash) error {
	if err := s.seekOriginal(ctx, at.instrument, r.DuplicateOf, ids...); err != nil {
		return err
	}
	for _, id := range ids { // announced before, and a duplicate again: its ID is used up
		entry := s.doom.duplicates[id]
		if entry.own != r.ID {
			continue
		}
		entry.of, entry.own = r.DuplicateOf, wire.OrphanID(wire.Notice{Site: s.cfg.Site, Instrument: entry.instrument, Record: r})
		s.doom.duplicates[id] = entry
		if err := s.seekOriginal(ctx, entry.instrument, entry.own, id); err != nil {
			return err
		}
	}
	return nil
}

// lastCopies announces those duplicates of a pack as objects of their own whose bytes are nowhere
// else and that are not to be removed. Error: ErrUnlisted if there are any.
func (c *Compactor) lastCopies(ctx context.Context, day wire.Day, key string, duplicates map[manifest.IDHash]duplicate) error {
	if len(duplicates) == 0 {
		return nil
	}
	g := &collector{Compactor: c, day: day, there: map[string]bool{}}
	d := newDoom()
	d.duplicates = duplicates
	for id := range duplicates {
		d.members[id] = key
	}
	if err := g.originals(ctx, d); err != nil {
		return err
	}
	for id := range d.members {
		goes, err := c.isRemoved(ctx, day, duplicates[id])
		if err != nil {
			return err
		}
		if goes {
			delete(d.members, id)
		}
	}
	if len(d.members) == 0 {
		return nil
	}
	if err := g.announce(ctx, key, d); err != nil {
		return err
	}
	return fmt.Errorf("%d duplicates whose originals are gone: %w", len(d.members), ErrUnlisted)
}

// isRemoved says whether a duplicate, or all of its day, is to be removed.
func (c *Compactor) isRemoved(ctx context.Context, day wire.Day, r duplicate) (bool, error) {
	bucket := wire.CursorBucket(c.cfg.Site)
	for _, of := range []wire.Removal{{Instrument: r.instrument, Day: day}, {Instrument: r.instrument, Day: day, ID: r.id}} {
		_, _, err := stream.Newest(ctx, c.cfg.JetStream, bucket, of.Key())
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, jetstream.ErrKeyNotFound) {
			return false, fmt.Errorf("bucket %s: %w", bucket, err)
		}
	}
	return false, nil
}
