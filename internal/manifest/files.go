// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// fetches is how many files of a day are fetched at once.
const fetches = 8

// keepBytes bounds the compressed files of a day that are kept between the look for
// duplicates and the reading; others are fetched again. A record takes some 100 bytes, so
// it holds a day of two objects a second. A variable for tests.
var keepBytes = 16 << 20

// Files are the manifest files of one instrument and day.
type Files struct {
	// InEffect are the keys of those to be read: the highest compacted day and
	// the parts that it does not name, in this order.
	InEffect []string
	// Sizes are those of the files in effect, in bytes.
	Sizes []int64
	// NextPart and NextVersion are the first free numbers.
	NextPart, NextVersion int
	// Replaced are the keys that the compacted day in effect names. CompactedAt is when it was stored, by the store's clock; zero without
	// a compacted day.
	Replaced    []string
	CompactedAt time.Time
	// Foreign are the keys under the day that are no files of a manifest. They are not read.
	Foreign []string
}

// partsOfVersion is more than the number of parts that a day gets between two versions, and maxVersion is the last version for which
// partAfter returns a number that a key can have.
const partsOfVersion, maxVersion = 1_000_000, 998

// partAfter returns a number for a part beside a version whose list of replaced parts cannot be read: a part with the number of a
// replaced one would not be read once the version is restored.
func partAfter(version int) int { return min(version, maxVersion)*partsOfVersion + 1 }

// List finds the manifest files of a day. A day without listed objects has no files. A compacted day whose header cannot be decoded is in
// effect beside all parts, so that a reader of the files encounters it. Errors: those of objectstore, wire.ErrNewerFormat.
func List(ctx context.Context, store objectstore.Store, site, instrument string, day wire.Day) (Files, error) {
	files := Files{NextPart: 1, NextVersion: 1}
	var parts []wire.ManifestFile
	sizes := map[string]int64{}
	for info, err := range store.List(ctx, wire.ManifestPrefix(site, instrument, day), "") {
		if err != nil {
			return Files{}, err
		}
		name, err := wire.ParseManifestKey(info.Key)
		if err != nil { // a foreign file must not hide the day
			files.Foreign = append(files.Foreign, info.Key)
			continue
		}
		sizes[info.Key] = info.Size
		if name.Compacted {
			if name.Number >= files.NextVersion {
				files.NextVersion, files.CompactedAt = name.Number+1, info.ModifiedAt
			}
			continue
		}
		files.NextPart = max(files.NextPart, name.Number+1)
		parts = append(parts, name)
	}
	replaced := make(map[string]bool)
	if files.NextVersion > 1 {
		key := wire.ManifestVersionKey(site, instrument, day, files.NextVersion-1)
		header, err := Header(ctx, store, key)
		switch {
		case errors.Is(err, wire.ErrMalformed):
			files.NextPart = max(files.NextPart, partAfter(files.NextVersion-1))
		case err != nil:
			return Files{}, err
		}
		files.Replaced, files.NextPart = header.Replaces, max(files.NextPart, header.NextPart)
		for _, part := range header.Replaces {
			replaced[part] = true
			if name, err := wire.ParseManifestKey(part); err == nil {
				files.NextPart = max(files.NextPart, name.Number+1)
			}
		}
		files.InEffect = append(files.InEffect, key)
	}
	slices.SortFunc(parts, func(a, b wire.ManifestFile) int { return cmp.Compare(a.Number, b.Number) })
	for _, p := range parts {
		key := wire.ManifestPartKey(site, instrument, day, p.Number)
		if !replaced[key] {
			files.InEffect = append(files.InEffect, key)
		}
	}
	for _, key := range files.InEffect {
		files.Sizes = append(files.Sizes, sizes[key])
	}
	return files, nil
}

// Header reads what a file says of itself. Errors: as Day.
func Header(ctx context.Context, store objectstore.Store, key string) (wire.ManifestHeader, error) {
	body, _, err := store.Get(ctx, key, objectstore.All)
	if err != nil {
		return wire.ManifestHeader{}, err
	}
	defer body.Close()
	m, err := openFile(key, body)
	if err != nil {
		return wire.ManifestHeader{}, err
	}
	defer m.Close()
	return m.Header, nil
}

// dayFiles are the files in effect of one day, and which duplicates and changes they list.
type dayFiles struct {
	store objectstore.Store
	keys  []string
	// lines are how many each file has, and noted whether it lists duplicates or changes.
	lines []int
	noted []bool
	// large is set if there are too many lines to hold the identities; then duplicates and changed are empty.
	large      *large
	duplicates map[IDHash]struct{}
	// changed has the line that holds of an object that was changed.
	changed map[IDHash]change

	mu   sync.Mutex
	kept map[string][]byte
	size int
}

func openDay(ctx context.Context, store objectstore.Store, site, instrument string, day wire.Day) (*dayFiles, error) {
	files, err := List(ctx, store, site, instrument, day)
	if err != nil {
		return nil, err
	}
	return openFiles(ctx, store, files.InEffect)
}

func openFiles(ctx context.Context, store objectstore.Store, keys []string) (*dayFiles, error) {
	d := &dayFiles{store: store, keys: keys, lines: make([]int, len(keys)), noted: make([]bool, len(keys)),
		duplicates: make(map[IDHash]struct{}), changed: make(map[IDHash]change), kept: make(map[string][]byte)}
	if err := d.eachFile(ctx, d.fetch); err != nil {
		return d, err
	}
	all := 0
	for _, lines := range d.lines {
		all += lines
	}
	if all > maxHeld {
		return d, d.compare(ctx)
	}
	return d, d.eachFile(ctx, d.noteChanges)
}

// eachFile does something with some files at once.
func (d *dayFiles) eachFile(ctx context.Context, do func(ctx context.Context, number int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fetches)
	for number := range d.keys {
		group.Go(func() error { return do(ctx, number) })
	}
	return group.Wait()
}

// change is a line that replaces others of its object. A final one, by which the
// object was purged, stands against all that come later.
type change struct {
	at    place
	final bool
}

func (c change) after(other change) bool {
	if c.final != other.final {
		return c.final
	}
	return c.at > other.at
}

// place is the position of a line among the files of a day: places compare as lines are ordered.
type place uint64

func placeOf(file, line int) place { return place(file)<<32 | place(line) }

func (d *dayFiles) close() { d.kept = nil }

// fetch reads what a file says of itself, and keeps the file if there is space.
func (d *dayFiles) fetch(ctx context.Context, number int) error {
	key := d.keys[number]
	body, info, err := d.store.Get(ctx, key, objectstore.All)
	if err != nil {
		return err
	}
	defer body.Close()
	var source io.Reader = body
	if d.reserve(int(info.Size)) {
		data, err := io.ReadAll(body)
		if err != nil {
			return fmt.Errorf("read %s: %w: %w", key, objectstore.ErrUnavailable, err)
		}
		d.keep(key, data)
		source = bytes.NewReader(data)
	}
	m, err := openFile(key, source)
	if err != nil {
		return err
	}
	defer m.Close()
	d.lines[number] = m.Header.Entries + m.Header.Duplicates
	d.noted[number] = m.Header.Duplicates > 0 || m.Header.Changes > 0
	return nil
}

// noteChanges notes which duplicates and changes a file lists.
func (d *dayFiles) noteChanges(ctx context.Context, number int) error {
	if !d.noted[number] {
		return nil
	}
	line := -1
	for r, err := range d.file(ctx, d.keys[number]) {
		if err != nil {
			return err
		}
		line++
		switch {
		case r.State == wire.StateDuplicate:
			d.markDuplicate(r.ID)
		case r.Changes():
			d.change(&r, placeOf(number, line))
		}
	}
	return nil
}

func (d *dayFiles) reserve(size int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.size+size > keepBytes {
		return false
	}
	d.size += size
	return true
}

func (d *dayFiles) keep(key string, data []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kept[key] = data
}

func (d *dayFiles) markDuplicate(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.duplicates[HashID(id)] = struct{}{}
}

func (d *dayFiles) change(r *wire.Record, at place) {
	d.mu.Lock()
	defer d.mu.Unlock()
	of, current := HashID(r.ID), change{at: at, final: r.State == wire.StatePurged}
	if before, known := d.changed[of]; !known || current.after(before) {
		d.changed[of] = current
	}
}

// file yields the records of a file that look has seen.
func (d *dayFiles) file(ctx context.Context, key string) iter.Seq2[wire.Record, error] {
	if data, ok := d.kept[key]; ok {
		return eachRecord(key, bytes.NewReader(data))
	}
	return func(yield func(wire.Record, error) bool) {
		body, _, err := d.store.Get(ctx, key, objectstore.All)
		if err != nil {
			yield(wire.Record{}, err)
			return
		}
		defer body.Close()
		eachRecord(key, body)(yield)
	}
}
