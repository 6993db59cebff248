// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// Summary sums up the files of a day, line by line.
type Summary struct {
	day  wire.RootDay
	dirs dirs
}

// NewSummary continues a summary; an empty one of a day is the beginning.
func NewSummary(of wire.RootDay) *Summary {
	of.Parts = slices.Clone(of.Parts)
	return &Summary{day: of, dirs: newDirs(of.Dirs, of.Deeper)}
}

// Part says that the lines of a part were added, which lies under a key and has a size.
func (s *Summary) Part(number int, key string, size int64) {
	if s.day.Files != nil || s.day.Version == 0 && len(s.day.Parts) == 0 { // otherwise the files before it are unknown
		s.day.AddFile(key, size)
	}
	s.day.Parts = s.day.Parts.Add(number)
}

// Add adds a line of a part.
func (s *Summary) Add(r wire.Record) {
	switch {
	case r.State == wire.StatePurged: // its bytes go, and a retention need not count them
		s.day.Bytes = max(0, s.day.Bytes-r.Size)
	case !r.Changes(): // else the line counts that it replaces
		s.add(r)
	}
}

func (s *Summary) add(r wire.Record) {
	if r.State == wire.StateDuplicate {
		s.day.Duplicates++
		return
	}
	s.day.Entries++
	if r.State != wire.StatePurged {
		s.day.Bytes += r.Size
		if !wire.IsOurs(r.Key) {
			s.day.ForeignBytes += r.Size
		}
	}
	if from, to, told := r.ObservedSpan(); told {
		s.day.ObservedFrom = least(s.day.ObservedFrom, &from)
		s.day.ObservedTo = greatest(s.day.ObservedTo, &to)
	}
	path := r.Published()
	s.dirs.add(Dir(path))
	if s.day.Entries == 1 || path < s.day.FirstPath {
		s.day.FirstPath = path
	}
	s.day.LastPath = max(s.day.LastPath, path)
}

// Day returns the sum.
func (s *Summary) Day() wire.RootDay {
	d := s.day
	d.Dirs, d.Deeper = s.dirs.list()
	return d
}

func least(a, b *time.Time) *time.Time {
	if a == nil || b != nil && b.Before(*a) {
		return b
	}
	return a
}

func greatest(a, b *time.Time) *time.Time {
	if a == nil || b != nil && b.After(*a) {
		return b
	}
	return a
}

// Dir returns the folder of a published path; "" is the uppermost.
func Dir(path string) string {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i]
	}
	return ""
}

// dirs is a bounded set of folders, see wire.RootDay.
type dirs struct {
	set   map[string]struct{}
	bytes int
	// depth to which all are cut; negative where they are whole.
	depth int
}

func newDirs(list []string, deeper bool) dirs {
	d := dirs{set: make(map[string]struct{}, len(list)), depth: -1}
	deepest := 0
	for _, dir := range list {
		d.set[dir] = struct{}{}
		d.bytes += len(dir)
		deepest = max(deepest, depthOf(dir))
	}
	if deeper {
		d.depth = deepest
	}
	return d
}

func depthOf(dir string) int {
	if dir == "" {
		return 0
	}
	return 1 + strings.Count(dir, "/")
}

// CutDir returns the first parts of a folder's path, up to a depth.
func CutDir(dir string, depth int) string {
	if depth <= 0 {
		return ""
	}
	end := 0
	for range depth {
		i := strings.IndexByte(dir[end:], '/')
		if i < 0 {
			return dir
		}
		end += i + 1
	}
	return dir[:end-1]
}

func (d *dirs) add(dir string) {
	if d.depth >= 0 {
		dir = CutDir(dir, d.depth)
	}
	if _, known := d.set[dir]; known {
		return
	}
	d.set[dir] = struct{}{}
	d.bytes += len(dir)
	for len(d.set) > wire.MaxDirs || d.bytes > wire.MaxDirBytes {
		d.cut()
	}
}

// cut takes the last part of the deepest.
func (d *dirs) cut() {
	deepest := 0
	for dir := range d.set {
		deepest = max(deepest, depthOf(dir))
	}
	d.depth = deepest - 1
	shorter := make(map[string]struct{}, len(d.set))
	d.bytes = 0
	for dir := range d.set {
		short := CutDir(dir, d.depth)
		if _, known := shorter[short]; !known {
			shorter[short] = struct{}{}
			d.bytes += len(short)
		}
	}
	d.set = shorter
}

func (d *dirs) list() ([]string, bool) { return slices.Sorted(maps.Keys(d.set)), d.depth >= 0 }

// MayHold says whether a day may hold something in a folder: not below it.
func MayHold(d wire.RootDay, dir string) bool {
	if d.Entries == 0 {
		return false
	}
	if d.Deeper {
		dir = CutDir(dir, deepest(d))
	}
	_, found := slices.BinarySearch(d.Dirs, dir)
	return found
}

// MayHoldPath says whether a day may hold an object that is published under a path.
func MayHoldPath(d wire.RootDay, path string) bool {
	return d.FirstPath <= path && path <= d.LastPath && MayHold(d, Dir(path))
}

func deepest(d wire.RootDay) int {
	depth := 0
	for _, dir := range d.Dirs {
		depth = max(depth, depthOf(dir))
	}
	return depth
}

// Summarize reads the files of a day and sums them up. Errors: as Day.
func Summarize(ctx context.Context, store objectstore.Store, site, instrument string, day wire.Day) (wire.RootDay, error) {
	d, err := summarize(ctx, store, site, instrument, day)
	for try := 1; errors.Is(err, objectstore.ErrNotFound) && try < rereads; try++ {
		d, err = summarize(ctx, store, site, instrument, day)
	}
	return d, err
}

func summarize(ctx context.Context, store objectstore.Store, site, instrument string, day wire.Day) (wire.RootDay, error) {
	files, err := List(ctx, store, site, instrument, day)
	if err != nil {
		return wire.RootDay{}, err
	}
	s := NewSummary(wire.RootDay{Day: day})
	for _, key := range files.InEffect {
		if err := s.file(ctx, store, key); err != nil {
			return wire.RootDay{}, err
		}
	}
	return s.Day(), nil
}

// file adds a file. It keeps the digest of a compacted day.
func (s *Summary) file(ctx context.Context, store objectstore.Store, key string) error {
	name, err := wire.ParseManifestKey(key)
	if err != nil {
		return err
	}
	body, info, err := store.Get(ctx, key, objectstore.All)
	if err != nil {
		return err
	}
	defer body.Close()
	var digest hash.Hash
	source := io.Reader(body)
	if name.Compacted {
		digest = sha256.New()
		source = io.TeeReader(body, digest)
	}
	for r, err := range eachRecord(key, source) {
		if err != nil {
			return err
		}
		if name.Compacted {
			s.add(r) // it stands alone
		} else {
			s.Add(r)
		}
	}
	if !name.Compacted {
		s.Part(name.Number, key, info.Size)
		return nil
	}
	if _, err := io.Copy(io.Discard, source); err != nil {
		return fmt.Errorf("read %s: %w: %w", key, objectstore.ErrUnavailable, err)
	}
	sum := wire.Digest(digest.Sum(nil))
	s.day.Version, s.day.Digest = name.Number, &sum
	s.day.AddFile(key, info.Size)
	return nil
}

// Known returns the summary of a day's files that says only which they are: it can
// be compared with another.
func (f Files) Known(day wire.Day) wire.RootDay {
	d := wire.RootDay{Day: day}
	for i, key := range f.InEffect {
		name, err := wire.ParseManifestKey(key)
		switch {
		case err != nil:
			continue
		case name.Compacted:
			d.Version = name.Number
		default:
			d.Parts = d.Parts.Add(name.Number)
		}
		if i < len(f.Sizes) {
			d.AddFile(key, f.Sizes[i])
		}
	}
	return d
}

// Lacking returns the files of a day that an index names, and that the bucket does not have although no newer version
// replaced them.
func (f Files) Lacking(site, instrument string, known wire.RootDay) []string {
	there := map[string]bool{}
	for _, keys := range [][]string{f.InEffect, f.Replaced} {
		for _, key := range keys {
			there[key] = true
		}
	}
	version := f.Known(known.Day).Version
	var lacks []string
	for _, key := range known.Keys(site, instrument) {
		if name, err := wire.ParseManifestKey(key); err == nil && !there[key] && (!name.Compacted || name.Number > version) {
			lacks = append(lacks, key)
		}
	}
	return lacks
}

// Replaces says whether all files of a day that an index names are in effect, but at least one has another size: the bucket is from a
// different moment, and has another file under a number.
func (f Files) Replaces(site, instrument string, known wire.RootDay) bool {
	sizes := make(map[string]int64, len(f.Sizes))
	for i, size := range f.Sizes {
		sizes[f.InEffect[i]] = size
	}
	var there wire.RootDay
	for _, key := range known.Keys(site, instrument) {
		size, found := sizes[key]
		if !found {
			return false
		}
		there.AddFile(key, size)
	}
	return known.Files != nil && there.Files != nil && *there.Files != *known.Files
}

// ReadRoot reads a root. Errors: those of objectstore, wire.ErrMalformed and
// wire.ErrNewerFormat.
func ReadRoot(ctx context.Context, store objectstore.Store, site, instrument string, number int) (wire.Root, error) {
	key := wire.RootKey(site, instrument, number)
	body, _, err := store.Get(ctx, key, objectstore.All)
	if err != nil {
		return wire.Root{}, err
	}
	defer body.Close()
	root, err := wire.DecodeRoot(body)
	if err != nil {
		return wire.Root{}, fmt.Errorf("%s: %w", key, err)
	}
	if h := root.Header; h.Site != site || h.Instrument != instrument || h.Number != number {
		return wire.Root{}, fmt.Errorf("%s: its header names root %d of instrument %s of site %s: %w", key, h.Number, h.Instrument, h.Site, wire.ErrMalformed)
	}
	return root, nil
}

// Indexed returns the days of an instrument as its entry of the index tells of them, in
// order. Errors: as ReadRoot.
func Indexed(ctx context.Context, store objectstore.Store, site, instrument string, entry wire.IndexEntry) ([]wire.RootDay, error) {
	if entry.Root == 0 {
		return entry.Open, nil
	}
	root, err := ReadRoot(ctx, store, site, instrument, entry.Root)
	if err != nil {
		return nil, err
	}
	return MergeDays(root.Days, entry.Open), nil
}

// FindDay returns where a day is among days in order, or where it would be.
func FindDay(days []wire.RootDay, day wire.Day) (int, bool) {
	return slices.BinarySearchFunc(days, day, func(d wire.RootDay, day wire.Day) int { return strings.Compare(string(d.Day), string(day)) })
}

// MergeDays returns the days of a root with those that changed since.
func MergeDays(root, changed []wire.RootDay) []wire.RootDay {
	by := make(map[wire.Day]wire.RootDay, len(root)+len(changed))
	for _, d := range root {
		by[d.Day] = d
	}
	for _, d := range changed {
		by[d.Day] = d
	}
	all := make([]wire.RootDay, 0, len(by))
	for _, day := range slices.Sorted(maps.Keys(by)) {
		all = append(all, by[day])
	}
	return all
}
