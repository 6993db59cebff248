// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"errors"
	"time"

	"github.com/substorm/substorm/archivist/failedpacks"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/pack"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// sweepMembers of packs are compared at once, and those of one pack more.
	sweepMembers = 10_000
	// clockSkew is how far the clocks of store and gateway may be apart.
	clockSkew = time.Minute
)

// packSweep compares the members of packs with the manifests.
type packSweep struct {
	*Sweeper
	members map[slotKey][]sighted
	count   int
	sizes   map[string]int64 // of the packs that hold them
}

// sighted is a member of a pack.
type sighted struct{ id, pack string }

// sweepPacks looks into the packs that became old enough since the last sweep that finished, and announces what of them
// was never announced, but for packs that their gateway reports as failed. A pack is never written again, so one look
// is enough. Packs that come out of a spool may have keys of any day: a sweep of the whole bucket looks at all of them.
func (s *Sweeper) sweepPacks(ctx context.Context, now time.Time, whole bool) error {
	last := s.cursor.Recent
	if whole {
		last = s.cursor.Whole
	}
	from := last.Add(-2*s.cfg.Age - clockSkew)
	prefixes := []string{wire.PacksPrefix(s.cfg.Site)}
	if !whole && !s.cursor.Recent.IsZero() {
		prefixes = nil
		last := wire.DayOf(now)
		for at := from.Add(-24 * time.Hour); wire.DayOf(at) <= last; at = at.Add(24 * time.Hour) {
			prefixes = append(prefixes, wire.PackPrefix(s.cfg.Site, wire.DayOf(at)))
		}
	}
	p := &packSweep{Sweeper: s, members: map[slotKey][]sighted{}, sizes: map[string]int64{}}
	for _, prefix := range prefixes {
		for info, err := range s.cfg.Store.List(ctx, prefix, "") {
			if err != nil {
				return err
			}
			if now.Sub(info.ModifiedAt) < s.cfg.Age || info.ModifiedAt.Before(from) {
				continue
			}
			if err := p.noteMembers(ctx, info); err != nil {
				return err
			}
		}
	}
	return p.compare(ctx)
}

// noteMembers notes the members of a pack.
func (p *packSweep) noteMembers(ctx context.Context, info objectstore.Info) error {
	file, err := wire.ParsePackKey(info.Key)
	if err == nil && file.Compacted() {
		return nil // what it holds was listed before
	}
	if err == nil {
		p.sizes[info.Key] = info.Size
		for n, memberErr := range pack.Members(ctx, p.cfg.Store, info.Key, info.Size) {
			if err = memberErr; err != nil {
				break
			}
			key := slotKey{dayKey{n.Instrument, wire.DayOf(n.ReceivedAt)}, slotOf(n.Record)}
			p.members[key] = append(p.members[key], sighted{n.ID, info.Key})
			p.count++
		}
	}
	switch {
	case errors.Is(err, wire.ErrMalformed), errors.Is(err, wire.ErrNewerFormat):
		p.cfg.Metrics.found.WithLabelValues(findingUnreadable).Inc()
		p.cfg.Log.Warn("a pack cannot be read to its end", "object", info.Key, "error", err)
	case errors.Is(err, objectstore.ErrNotFound): // it was discarded just now
	case err != nil:
		return err
	}
	if p.count >= sweepMembers {
		return p.compare(ctx)
	}
	return nil
}

// compare asks what is listed of the members noted, and announces the others.
func (p *packSweep) compare(ctx context.Context) error {
	missing := map[string]map[string]bool{} // IDs by pack
	for key, members := range p.members {
		ids := make([]string, len(members))
		for i, m := range members {
			ids[i] = m.id
		}
		found, err := p.ask(ctx, key, ids)
		if err != nil {
			return err
		}
		for i, l := range found {
			if l == purged {
				if err := p.removeAgain(ctx, key.dayKey, ids[i], members[i].pack); err != nil {
					return err
				}
			}
			if l != unlisted {
				continue
			}
			of := members[i].pack
			if missing[of] == nil {
				missing[of] = map[string]bool{}
			}
			missing[of][ids[i]] = true
		}
	}
	var failed map[string]bool
	if len(missing) > 0 {
		var err error
		if failed, err = failedpacks.Read(ctx, p.cfg.JetStream, p.cfg.Site); err != nil {
			return err
		}
	}
	for key, ids := range missing {
		if failed[key] {
			p.cfg.Metrics.found.WithLabelValues(findingFailedPack).Inc()
			continue // compaction removes it
		}
		for n, err := range pack.Members(ctx, p.cfg.Store, key, p.sizes[key]) {
			if errors.Is(err, objectstore.ErrNotFound) || errors.Is(err, wire.ErrMalformed) || errors.Is(err, wire.ErrNewerFormat) {
				break
			}
			if err != nil {
				return err
			}
			if !ids[n.ID] {
				continue
			}
			if err := p.announceNotice(ctx, n); err != nil {
				return err
			}
		}
	}
	clear(p.members)
	clear(p.sizes)
	p.count = 0
	return nil
}
