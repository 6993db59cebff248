// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

// MaxListing is how many objects Children returns at most.
const MaxListing = 100_000

// Listing is what one folder of an instrument's published paths holds.
type Listing struct {
	// Dirs are the folders in it, by name.
	Dirs []Dir
	// Records are the objects in it that are current, in the order of their paths,
	// and Paths these. More: there are others behind them.
	Records []*wire.Record
	Paths   []string
	More    bool
	// Changed is when the newest of the records was received; of a folder without
	// any, when the last day begins that has something below.
	Changed time.Time
	// Tag identifies exactly what the listing holds, as the Tag of a Day does.
	Tag string
}

// Dir is a folder in another.
type Dir struct {
	// Name is the last part of its path.
	Name string
	// Entries is how many objects it holds, with those in folders of its own; -1 if counting would require reading all of them.
	Entries int
	// LastDay is the last of receipt of what lies in it.
	LastDay wire.Day
}

// Children returns what a folder holds: "" is the uppermost. If it holds nothing, the
// listing is empty. Errors: those of the store and of manifests.
func (c *Catalog) Children(ctx context.Context, instrument, dir string) (Listing, error) {
	return c.ChildrenAfter(ctx, instrument, dir, "", MaxListing)
}

// ChildrenAfter is Children with at most limit records, beginning after a path; all folders are in each page.
func (c *Catalog) ChildrenAfter(ctx context.Context, instrument, dir, after string, limit int) (Listing, error) {
	s, err := c.readSnapshot(ctx, instrument)
	if err != nil {
		return Listing{}, err
	}
	prefix := ""
	if dir != "" {
		prefix = dir + "/"
	}
	page := &page{dir: dir, prefix: prefix, after: after, limit: limit, tag: sha256.New(), dirs: map[string]*Dir{}}
	holding := s.candidates(func(d wire.RootDay) bool { return page.concerns(d) })
	// A page in the order of paths is complete when the next day's begin behind it.
	slices.SortStableFunc(holding, func(a, b wire.RootDay) int { return strings.Compare(a.FirstPath, b.FirstPath) })
	for _, sum := range holding {
		fresh := s.fresh[sum.Day]
		page.note(tagOf(sum, s.epoch, fresh))
		if len(fresh) == 0 && !page.needsRecords(sum) {
			page.addSummary(sum)
			continue
		}
		d, err := c.day(ctx, s, sum)
		if err != nil {
			return Listing{}, err
		}
		page.read(d)
	}
	return page.listing(), nil
}

// page gathers a listing.
type page struct {
	dir, prefix, after string
	limit              int
	tag                hash.Hash

	dirs    map[string]*Dir
	records []*wire.Record
	paths   []string
	more    bool
	last    wire.Day
}

func (p *page) note(tag string) { _, _ = p.tag.Write([]byte(tag)) }

// concerns says whether a day may hold something in the folder, or below it.
func (p *page) concerns(d wire.RootDay) bool {
	if manifest.MayHold(d, p.dir) {
		return true
	}
	at, _ := slices.BinarySearch(d.Dirs, p.prefix)
	return at < len(d.Dirs) && strings.HasPrefix(d.Dirs[at], p.prefix)
}

// needsRecords says whether the records of a day must be read: it may hold some of the page
// itself, or folders that it does not name.
func (p *page) needsRecords(d wire.RootDay) bool {
	if !manifest.MayHold(d, p.dir) {
		return false
	}
	full := len(p.paths) == p.limit && p.limit > 0 && d.FirstPath > p.paths[len(p.paths)-1]
	if full || d.LastPath <= p.after && !d.Deeper {
		p.more = p.more || full
		return d.Deeper
	}
	return true
}

// addSummary takes what the summary of a day says about folders.
func (p *page) addSummary(d wire.RootDay) {
	var names []string
	outside := false
	for _, dir := range d.Dirs {
		rest, below := strings.CutPrefix(dir, p.prefix)
		if !below || rest == "" {
			outside = true
			continue
		}
		name, _, _ := strings.Cut(rest, "/")
		if len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if len(names) == 1 && !outside {
			p.holds(name, d.Day, d.Entries)
		} else {
			p.holds(name, d.Day, -1)
		}
	}
}

// holds notes that a folder holds so many more.
func (p *page) holds(name string, day wire.Day, entries int) {
	d := p.dirs[name]
	if d == nil {
		d = &Dir{Name: name}
		p.dirs[name] = d
	}
	if d.Entries < 0 || entries < 0 {
		d.Entries = -1
	} else {
		d.Entries += entries
	}
	d.LastDay, p.last = max(d.LastDay, day), max(p.last, day)
}

// read takes the records of a day.
func (p *page) read(d *Day) {
	records, paths := d.below(p.prefix)
	before := len(p.paths)
	for i, path := range paths {
		if records[i].State != wire.StateCurrent {
			continue
		}
		if name, _, deeper := strings.Cut(path[len(p.prefix):], "/"); deeper {
			p.holds(name, d.Day, 1)
			continue
		}
		p.last = max(p.last, d.Day)
		if path > p.after {
			p.records, p.paths = append(p.records, records[i]), append(p.paths, path)
		}
	}
	if before > 0 && len(p.paths) > before || p.limit > 0 && len(p.paths) > p.limit {
		p.sort()
	}
}

// sort puts the page in order, keeps of each path the newest, and cuts what is too much.
func (p *page) sort() {
	order := make([]int, len(p.paths))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if c := strings.Compare(p.paths[a], p.paths[b]); c != 0 {
			return c
		}
		return older(p.records[a], p.records[b])
	})
	var records []*wire.Record
	var paths []string
	for _, i := range order {
		if n := len(paths); n > 0 && paths[n-1] == p.paths[i] {
			records[n-1] = p.records[i]
			continue
		}
		records, paths = append(records, p.records[i]), append(paths, p.paths[i])
	}
	if p.limit > 0 && len(paths) > p.limit {
		records, paths, p.more = records[:p.limit:p.limit], paths[:p.limit:p.limit], true
	}
	p.records, p.paths = records, paths
}

func (p *page) listing() Listing {
	p.sort()
	l := Listing{Records: p.records, Paths: p.paths, More: p.more}
	for _, name := range slices.Sorted(maps.Keys(p.dirs)) {
		l.Dirs = append(l.Dirs, *p.dirs[name])
	}
	for _, r := range l.Records {
		if r.ReceivedAt.After(l.Changed) {
			l.Changed = r.ReceivedAt
		}
	}
	if len(l.Records) == 0 {
		l.Changed, _ = p.last.Start()
	}
	l.Tag = hex.EncodeToString(p.tag.Sum(nil)[:12])
	return l
}
