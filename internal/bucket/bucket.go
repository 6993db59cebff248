// SPDX-License-Identifier: Apache-2.0

// Package bucket reads what a Site's bucket says by itself, without its manifests:
// the metadata of objects, the members of packs, and the changes that manifests
// wrote down beside them. From that it makes the lines that manifests have.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// heads is how many objects are asked for their metadata at once.
const heads = 24

// Config says what is read.
type Config struct {
	Store objectstore.Store
	Site  string
	// Instrument and Day choose what is wanted; nil: all. The named objects of a day are
	// only known when all named objects have been asked.
	Instrument func(string) bool
	Day        func(wire.Day) bool
	// Failed are the keys of packs that gateways report as failed (wire.FailedPacks), which are passed over. No sender has a receipt for what
	// only they hold, and compaction removes them.
	Failed map[string]bool
	// ScratchDir holds what was found, uncompressed: about 1 KB an object.
	ScratchDir string
	// Foreign hears of what lies under keys of ours and cannot be read as ours. It
	// may be called by several goroutines at once.
	Foreign func(key string, err error)
	// Progress hears now and then how many keys were looked at. Optional.
	Progress func(objects, packs int64)
}

// Scan reads the bucket. The caller closes what it returns. Errors: those of
// objectstore, wire.ErrNewerFormat, and of the scratch folder.
func Scan(ctx context.Context, cfg Config) (*Found, error) {
	f, err := newFound(cfg)
	if err != nil {
		return nil, err
	}
	s := &scan{Config: cfg, found: f}
	if err := s.run(ctx); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

type scan struct {
	Config
	found *Found

	mu             sync.Mutex
	objects, packs int64
}

func (s *scan) run(ctx context.Context) error {
	for instrument, err := range s.Store.Folders(ctx, wire.SitePrefix(s.Site)) {
		if err != nil {
			return err
		}
		if s.wants(instrument) {
			if err := s.instrument(ctx, instrument); err != nil {
				return fmt.Errorf("instrument %s: %w", instrument, err)
			}
		}
	}
	for prefix, err := range s.days(ctx, wire.PacksPrefix(s.Site)) {
		if err == nil {
			err = s.packsOf(ctx, prefix)
		}
		if err != nil {
			return err
		}
	}
	for instrument, err := range s.Store.Folders(ctx, wire.ChangesSitePrefix(s.Site)) {
		if err != nil {
			return err
		}
		if !s.wants(instrument) {
			continue
		}
		for day, err := range manifest.ChangedDays(ctx, s.Store, s.Site, instrument) {
			if err != nil {
				return err
			}
			if _, err := wire.ParseDay(string(day)); err != nil {
				if err := s.reportForeign(wire.ChangesPrefix(s.Site, instrument, day), err); err != nil {
					return err
				}
				continue
			}
			if s.wantsDay(day) {
				s.found.day(instrument, day)
			}
		}
	}
	return s.found.flush()
}

func (s *scan) wants(instrument string) bool { return s.Instrument == nil || s.Instrument(instrument) }
func (s *scan) wantsDay(day wire.Day) bool   { return s.Day == nil || s.Day(day) }

// instrument reads the objects of an instrument: those whose keys say their day by
// day, and all that have names.
func (s *scan) instrument(ctx context.Context, instrument string) error {
	prefix := wire.InstrumentPrefix(s.Site, instrument)
	byDay := []string{prefix + "r/"}
	for channel, err := range s.Store.Folders(ctx, prefix+"s/") {
		if err != nil {
			return err
		}
		byDay = append(byDay, prefix+"s/"+channel+"/")
	}
	for _, folder := range byDay {
		for day, err := range s.days(ctx, folder) {
			if err == nil {
				err = s.objectsOf(ctx, day)
			}
			if err != nil {
				return err
			}
		}
	}
	for _, folder := range []string{"n/", "v/"} {
		if err := s.objectsOf(ctx, prefix+folder); err != nil {
			return err
		}
	}
	return nil
}

// days yields the prefixes of the days that are wanted below one whose folders are
// yyyy/mm/dd.
func (s *scan) days(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for year, err := range s.Store.Folders(ctx, prefix) {
			if err != nil {
				yield("", err)
				return
			}
			for month, err := range s.Store.Folders(ctx, prefix+year+"/") {
				if err != nil {
					yield("", err)
					return
				}
				for day, err := range s.Store.Folders(ctx, prefix+year+"/"+month+"/") {
					parsed, bad := wire.ParseDay(strings.Join([]string{year, month, day}, "-"))
					if err == nil && (bad != nil || !s.wantsDay(parsed)) {
						continue
					}
					if !yield(prefix+year+"/"+month+"/"+day+"/", err) || err != nil {
						return
					}
				}
			}
		}
	}
}

// objectsOf asks the objects under a prefix for what they are.
func (s *scan) objectsOf(ctx context.Context, prefix string) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(heads)
	for info, err := range s.Store.List(groupCtx, prefix, "") {
		if err != nil {
			if failed := group.Wait(); failed != nil {
				return failed
			}
			return err
		}
		group.Go(func() error { return s.object(groupCtx, info.Key) })
	}
	return group.Wait()
}

func (s *scan) object(ctx context.Context, key string) error {
	info, err := s.Store.Head(ctx, key)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil // removed meanwhile
	}
	if err != nil {
		return err
	}
	s.count(1, 0)
	n, err := wire.NoticeFromMetadata(key, info.Metadata)
	if err == nil && n.Size != info.Size {
		err = fmt.Errorf("object %s has %d bytes, its metadata says %d: %w", key, info.Size, n.Size, wire.ErrMalformed)
	}
	if err != nil {
		return s.reportForeign(key, err)
	}
	return s.add(n, info.ModifiedAt, rankObject)
}

func (s *scan) packsOf(ctx context.Context, prefix string) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(heads / 3) // each reads up to ReadChunk
	for info, err := range s.Store.List(groupCtx, prefix, "") {
		if err != nil {
			if failed := group.Wait(); failed != nil {
				return failed
			}
			return err
		}
		group.Go(func() error { return s.pack(groupCtx, info) })
	}
	return group.Wait()
}

func (s *scan) pack(ctx context.Context, info objectstore.Info) error {
	name, err := wire.ParsePackKey(info.Key)
	if err != nil {
		return s.reportForeign(info.Key, err)
	}
	s.count(0, 1)
	if s.Failed[info.Key] {
		return nil
	}
	rank := rankPack
	if name.Compacted() {
		rank = rankCompacted
	}
	for n, err := range Members(ctx, s.Store, info.Key, info.Size) {
		switch {
		case errors.Is(err, objectstore.ErrNotFound):
			return nil // removed meanwhile
		case errors.Is(err, wire.ErrMalformed), errors.Is(err, wire.ErrNewerFormat):
			return s.reportForeign(info.Key, err)
		case err != nil:
			return err
		}
		if s.wants(n.Instrument) {
			if err := s.add(n, info.ModifiedAt, rank); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *scan) add(n wire.Notice, storedAt time.Time, rank int) error {
	if n.Site != s.Site {
		return s.reportForeign(n.Key, fmt.Errorf("it names site %s: %w", n.Site, wire.ErrMalformed))
	}
	return s.found.add(n.Instrument, line{Rank: rank, StoredAt: storedAt.UnixNano(), Record: n.Record}, s.wantsDay(wire.DayOf(n.ReceivedAt)))
}

// reportForeign reports an object or pack that cannot be read. One that a newer Substorm wrote
// ends the scan.
func (s *scan) reportForeign(key string, err error) error {
	if errors.Is(err, wire.ErrNewerFormat) {
		return err
	}
	if s.Foreign != nil {
		s.Foreign(key, err)
	}
	return nil
}

func (s *scan) count(objects, packs int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects += objects
	s.packs += packs
	if s.Progress != nil {
		s.Progress(s.objects, s.packs)
	}
}
