// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// rootRereads is how often an instrument's entry is looked at again whose root is
	// gone: there is a newer one then, and its entry on the way.
	rootRereads = 20
	rootPause   = 100 * time.Millisecond
)

// snapshot is what is known of an instrument at one moment.
type snapshot struct {
	instrument string
	entry      wire.IndexEntry
	// root has the days of the root; those of the entry stand over it.
	root  root
	epoch string
	// fresh are the notices of each day that are in no closed part yet.
	fresh map[wire.Day][]*item
}

// Instruments returns the names of the instruments for which the archive holds anything.
func (c *Catalog) Instruments(ctx context.Context) ([]string, error) {
	if err := c.await(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return sortedKeys(c.index.entries, c.overlay.instruments()), nil
}

// InstrumentTags returns, by name, a tag of each instrument for which the archive holds anything. A tag changes with whatever the archive
// holds of the instrument: with the tag of any Day, and when days are summed up again in a root. Nothing is read for it. Errors: ctx's.
func (c *Catalog) InstrumentTags(ctx context.Context) (map[string]string, error) {
	names, err := c.Instruments(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	tags := make(map[string]string, len(names))
	for _, name := range names {
		tags[name] = c.instrumentTag(name)
	}
	return tags, nil
}

// instrumentTag names the root by its number and its writer, which together name one content. The mutex is held.
func (c *Catalog) instrumentTag(name string) string {
	entry, fresh := c.index.entries[name], c.overlay.of(name)
	h := sha256.New()
	_, _ = fmt.Fprintln(h, entry.Root, entry.RootIncarnation)
	for _, d := range entry.Open {
		_, _ = fmt.Fprintln(h, tagOf(d, c.overlay.epoch, fresh[d.Day]))
	}
	for _, day := range slices.Sorted(maps.Keys(fresh)) {
		_, _ = fmt.Fprintln(h, tagOf(wire.RootDay{Day: day}, c.overlay.epoch, fresh[day]))
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// readSnapshot returns what is known of an instrument.
func (c *Catalog) readSnapshot(ctx context.Context, instrument string) (snapshot, error) {
	if err := c.await(ctx); err != nil {
		return snapshot{}, err
	}
	for try := 0; ; try++ {
		c.mu.Lock()
		s := snapshot{instrument: instrument, entry: c.index.entries[instrument], epoch: c.overlay.epoch, fresh: c.overlay.of(instrument)}
		c.mu.Unlock()
		if s.entry.Root == 0 {
			return s, nil
		}
		var err error
		s.root, err = c.root(ctx, instrument, s.entry)
		if errors.Is(err, objectstore.ErrNotFound) && try == rootRereads {
			err = fmt.Errorf("%v: %w", err, manifest.ErrMissing)
		}
		if !errors.Is(err, objectstore.ErrNotFound) {
			return s, err
		}
		if !retry.Sleep(ctx, rootPause) {
			return snapshot{}, ctx.Err()
		}
	}
}

// root are the days of a root, ascending, and also by their paths: most instruments
// publish each day under paths of its own, and few of ten years of days may hold one.
type root struct {
	days []wire.RootDay
	// byFirst are the days by FirstPath, and last the greatest LastPath up to each.
	byFirst []int
	last    []string
}

func newRoot(days []wire.RootDay) root {
	r := root{days: days}
	for i, d := range days {
		if d.Entries > 0 {
			r.byFirst = append(r.byFirst, i)
		}
	}
	slices.SortFunc(r.byFirst, func(a, b int) int { return strings.Compare(days[a].FirstPath, days[b].FirstPath) })
	greatest := ""
	for _, i := range r.byFirst {
		greatest = max(greatest, days[i].LastPath)
		r.last = append(r.last, greatest)
	}
	return r
}

// holding returns the days that may hold a path.
func (r root) holding(path string) []wire.RootDay {
	var all []wire.RootDay
	behind := sort.Search(len(r.byFirst), func(i int) bool { return r.days[r.byFirst[i]].FirstPath > path })
	for i := behind - 1; i >= 0 && r.last[i] >= path; i-- {
		if d := r.days[r.byFirst[i]]; manifest.MayHoldPath(d, path) {
			all = append(all, d)
		}
	}
	return all
}

func (c *Catalog) root(ctx context.Context, instrument string, entry wire.IndexEntry) (root, error) {
	v, err := c.load(ctx, "root/"+instrument+"/"+strconv.Itoa(entry.Root)+"/"+entry.RootIncarnation, 0, func(ctx context.Context) (any, int64, error) {
		r, err := manifest.ReadRoot(ctx, c.cfg.Store, c.cfg.Site, instrument, entry.Root)
		return newRoot(r.Days), costOf(r.Days), err
	})
	if err != nil {
		return root{}, err
	}
	return v.(root), nil
}

// Days returns the days for which the archive holds anything of an instrument, ascending, including days that were only announced. An
// instrument that the archive does not know has none. Errors: those of the store and of roots.
func (c *Catalog) Days(ctx context.Context, instrument string) ([]wire.RootDay, error) {
	s, err := c.readSnapshot(ctx, instrument)
	if err != nil {
		return nil, err
	}
	var fresh []wire.RootDay
	for day, items := range s.fresh {
		sum := manifest.NewSummary(s.find(day))
		for _, i := range items {
			sum.Add(i.record)
		}
		fresh = append(fresh, sum.Day())
	}
	return manifest.MergeDays(s.root.days, slices.Concat(s.entry.Open, fresh)), nil
}

// find returns what the index says of a day; an empty summary if it does not list the day.
func (s snapshot) find(day wire.Day) wire.RootDay {
	for _, days := range [][]wire.RootDay{s.entry.Open, s.root.days} {
		if at, found := manifest.FindDay(days, day); found {
			return days[at]
		}
	}
	return wire.RootDay{Day: day}
}

// candidates returns the days that may hold something, the newest first; those with
// fresh notices may hold anything.
func (s snapshot) candidates(may func(wire.RootDay) bool) []wire.RootDay {
	var all []wire.RootDay
	for _, d := range s.root.days {
		if may(d) {
			all = append(all, d)
		}
	}
	return s.changed(all, may, func(*item) bool { return true })
}

// holding returns the days that may hold a path, the newest first.
func (s snapshot) holding(path string) []wire.RootDay {
	return s.changed(s.root.holding(path), func(d wire.RootDay) bool { return manifest.MayHoldPath(d, path) },
		func(i *item) bool { return i.path == path })
}

// changed lays what changed since the root over days of it. A day may hold something
// as its summary says, or as one of its fresh notices does.
func (s snapshot) changed(days []wire.RootDay, may func(wire.RootDay) bool, holds func(*item) bool) []wire.RootDay {
	all := slices.DeleteFunc(days, func(d wire.RootDay) bool {
		_, changed := manifest.FindDay(s.entry.Open, d.Day)
		return changed || len(s.fresh[d.Day]) > 0
	})
	for _, d := range s.entry.Open {
		if len(s.fresh[d.Day]) == 0 && may(d) {
			all = append(all, d)
		}
	}
	for day, items := range s.fresh {
		if d := s.find(day); may(d) || slices.ContainsFunc(items, holds) {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b wire.RootDay) int { return strings.Compare(string(b.Day), string(a.Day)) })
	return all
}
