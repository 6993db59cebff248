// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/wire"
)

// Manifests is the Catalog that a Site's manifests make.
type Manifests struct {
	*catalog.Catalog
	// Names finds the object that has a name; nil: objects with a naming template are not found by
	// their names alone.
	Names objectpath.Names
}

var _ Catalog = Manifests{}

// explain puts this package's error before the catalog's.
func explain(err error) error {
	if errors.Is(err, catalog.ErrNotFound) {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}

// Find implements Catalog.
func (m Manifests) Find(ctx context.Context, instrument, path string) (wire.Record, error) {
	r, err := m.Catalog.Find(ctx, instrument, path)
	return r, explain(err)
}

// Versions implements Catalog.
func (m Manifests) Versions(ctx context.Context, instrument, path string) ([]wire.Record, error) {
	all, err := m.Catalog.Versions(ctx, instrument, path)
	return all, explain(err)
}

// Children implements Catalog.
func (m Manifests) Children(ctx context.Context, instrument, dir string) (Listing, error) {
	first, err := m.Catalog.Children(ctx, instrument, dir)
	if err != nil {
		return Listing{}, explain(err)
	}
	if len(first.Dirs) == 0 && len(first.Records) == 0 {
		return Listing{}, fmt.Errorf("%s/%s: %w", instrument, dir, ErrNotFound)
	}
	l := Listing{Tag: first.Tag}
	for _, d := range first.Dirs {
		l.Folders = append(l.Folders, Folder{Name: d.Name, Objects: int64(d.Entries)})
	}
	l.Objects = func(yield func(Object, error) bool) {
		for page := first; ; {
			for i, r := range page.Records {
				if !yield(Object{Name: page.Paths[i][strings.LastIndexByte(page.Paths[i], '/')+1:], Record: r}, nil) {
					return
				}
			}
			if !page.More || len(page.Paths) == 0 {
				return
			}
			var err error
			if page, err = m.Catalog.ChildrenAfter(ctx, instrument, dir, page.Paths[len(page.Paths)-1], catalog.MaxListing); err != nil {
				yield(Object{}, err)
				return
			}
		}
	}
	return l, nil
}

// Oldest implements Catalog. It reads the days that may hold it, the likeliest first:
// one as a rule.
func (m Manifests) Oldest(ctx context.Context, instrument, dir string) (oldest time.Time, err error) {
	days, err := m.Catalog.Days(ctx, instrument)
	if err != nil {
		return oldest, explain(err)
	}
	bounds := map[wire.Day]time.Time{}
	for _, d := range days {
		if !mayHold(d, dir) {
			continue
		}
		from, _, err := d.Observed()
		if err != nil {
			return oldest, err
		}
		bounds[d.Day] = from
	}
	likeliest := slices.SortedFunc(maps.Keys(bounds), func(a, b wire.Day) int { return bounds[a].Compare(bounds[b]) })
	for _, day := range likeliest {
		if !oldest.IsZero() && !bounds[day].Before(oldest) {
			break
		}
		d, err := m.Catalog.Day(ctx, instrument, day)
		if err != nil {
			return oldest, explain(err)
		}
		for i, r := range d.Records {
			if strings.HasPrefix(d.Path(i), dir+"/") && (oldest.IsZero() || r.ObservedEnd().Before(oldest)) {
				oldest = r.ObservedEnd()
			}
		}
	}
	return oldest, nil
}

// mayHold reports whether a day may hold anything beneath a directory.
func mayHold(d wire.RootDay, dir string) bool {
	return slices.ContainsFunc(d.Dirs, func(is string) bool {
		return is == dir || strings.HasPrefix(is, dir+"/") || d.Deeper && (is == "" || strings.HasPrefix(dir, is+"/"))
	})
}

// Named implements Catalog.
func (m Manifests) Named(ctx context.Context, instrument, name string) (wire.Record, error) {
	path := strings.TrimPrefix(wire.NamedKey("", instrument, name, 1), wire.InstrumentPrefix("", instrument))
	r, err := m.Find(ctx, instrument, path)
	if !errors.Is(err, ErrNotFound) || m.Names == nil {
		return r, err
	}
	claim, known, err := m.Names(ctx, instrument, name)
	if err != nil {
		return wire.Record{}, err
	}
	latest, has := claim.Latest()
	if !known || !has {
		return wire.Record{}, fmt.Errorf("name %q: %w", name, ErrNotFound)
	}
	day, err := m.Day(ctx, instrument, wire.DayOf(latest.ReceivedAt))
	if err != nil {
		return wire.Record{}, err
	}
	for r := range day.Records {
		if r.Name == name && r.Digest == latest.Digest {
			return *r, nil
		}
	}
	return wire.Record{}, fmt.Errorf("name %q is not listed yet: %w", name, ErrNotFound)
}

// Day implements Catalog.
func (m Manifests) Day(ctx context.Context, instrument string, day wire.Day) (Day, error) {
	d, err := m.Catalog.Day(ctx, instrument, day)
	if err != nil {
		return Day{}, err
	}
	return Day{Tag: d.Tag, Records: slices.Values(d.Records)}, nil
}

// Directories implements Catalog.
func (m Manifests) Directories(ctx context.Context, instrument string) iter.Seq2[Directory, error] {
	return func(yield func(Directory, error) bool) {
		days, err := m.Catalog.Days(ctx, instrument)
		if err != nil {
			yield(Directory{}, explain(err))
			return
		}
		last := map[string]wire.Day{}
		for _, d := range days {
			for _, dir := range d.Dirs {
				for ; dir != ""; dir = manifest.Dir(dir) {
					if last[dir] == d.Day {
						break // and all above it
					}
					last[dir] = d.Day
				}
			}
		}
		for _, dir := range slices.Sorted(maps.Keys(last)) {
			changed, err := last[dir].Start()
			if !yield(Directory{dir, changed}, err) || err != nil {
				return
			}
		}
	}
}
