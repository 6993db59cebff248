// SPDX-License-Identifier: Apache-2.0

// Package manifest reads what the archive holds: the lists, per instrument and
// day, that the manifest's single writer keeps in the bucket.
package manifest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// ErrMissing: the index of the archive names a file of a manifest that the bucket does not
// have. The objects that it listed may all be there: substorm archive rebuild lists them again.
var ErrMissing = errors.New("the manifest is missing in the object store (substorm archive rebuild makes it again)")

// rereads is how often a day is read again because a listed file is gone.
const rereads = 3

// Instruments yields the instruments for which a Site's archive lists anything, by name. Errors: those of objectstore.
func Instruments(ctx context.Context, store objectstore.Store, site string) iter.Seq2[string, error] {
	return store.Folders(ctx, wire.ManifestSitePrefix(site))
}

// Days yields the days for which the archive lists anything of an instrument, the oldest first. Errors: those of objectstore.
func Days(ctx context.Context, store objectstore.Store, site, instrument string) iter.Seq2[wire.Day, error] {
	return func(yield func(wire.Day, error) bool) {
		for name, err := range store.Folders(ctx, wire.ManifestInstrumentPrefix(site, instrument)) {
			if !yield(wire.Day(name), err) {
				return
			}
		}
	}
}

// Day yields the objects that the archive holds of an instrument and day, each
// once, about in the order in which they were announced, or in which something
// about them changed: also those that newer versions supersede, and those that were
// retracted, for their bytes are kept. Objects that were marked as a duplicate, or
// whose bytes were taken out, are left out. After an error it ends; then what it
// yielded is not the whole day. Errors: those of objectstore, wire.ErrMalformed and
// wire.ErrNewerFormat.
//
// Memory: the compressed files up to keepBytes, and some 100 bytes for each object, maxHeld
// at most; of a day with more, bits for each object, and the places of those that were
// changed while a compaction moved them. Such a day also takes entrySize bytes of the system's
// folder for temporary files for each line.
func Day(ctx context.Context, store objectstore.Store, site, instrument string, day wire.Day) iter.Seq2[wire.Record, error] {
	return func(yield func(wire.Record, error) bool) {
		for r, err := range Records(ctx, store, site, instrument, day) {
			if err == nil && (r.State == wire.StateDuplicate || r.State == wire.StatePurged) {
				continue
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// Records is Day with those that it leaves out: duplicates, whose state is
// wire.StateDuplicate, and wire.StatePurged. If the files list an object as a duplicate
// and as something else, it is a duplicate; else, if one says that it was purged, it is;
// else the last line that changes it holds, or the first one if none changes it. The
// first line says in any case where its bytes lie.
func Records(ctx context.Context, store objectstore.Store, site, instrument string, day wire.Day) iter.Seq2[wire.Record, error] {
	return func(yield func(wire.Record, error) bool) {
		files, err := openDay(ctx, store, site, instrument, day)
		for try := 1; errors.Is(err, objectstore.ErrNotFound) && try < rereads; try++ {
			files, err = openDay(ctx, store, site, instrument, day) // a compaction came between
		}
		if err != nil {
			yield(wire.Record{}, err)
			return
		}
		defer files.close()
		files.yield(ctx, yield)
	}
}

// RecordsOf is Records of files that are known, by their keys in the order in which
// they are read: the bucket is not listed. A file that is gone is
// objectstore.ErrNotFound.
func RecordsOf(ctx context.Context, store objectstore.Store, keys []string) iter.Seq2[wire.Record, error] {
	return func(yield func(wire.Record, error) bool) {
		files, err := openFiles(ctx, store, keys)
		if err != nil {
			yield(wire.Record{}, err)
			return
		}
		defer files.close()
		files.yield(ctx, yield)
	}
}

// IDHash stands for a record's ID in sets.
type IDHash [16]byte

// HashID returns the first half of the ID's SHA-256.
func HashID(id string) IDHash {
	sum := sha256.Sum256([]byte(id))
	return IDHash(sum[:16])
}

// lies is where an object's bytes are.
type lies struct {
	key            string
	offset, length int64
}

func (d *dayFiles) yield(ctx context.Context, yield func(wire.Record, error) bool) {
	if d.large != nil {
		d.large.records(ctx, d, yield)
		return
	}
	d.records(ctx, yield)
}

func (d *dayFiles) records(ctx context.Context, yield func(wire.Record, error) bool) {
	seen := make(map[IDHash]struct{})
	// The first line of an object says where it lies: a line that changes it may have
	// been written while a compaction moved it.
	first := make(map[IDHash]lies)
	for number, key := range d.keys {
		line := -1
		for r, err := range d.file(ctx, key) {
			if err != nil {
				yield(wire.Record{}, err)
				return
			}
			line++
			id := HashID(r.ID)
			if _, again := seen[id]; again {
				continue
			}
			changed, replaced := d.replaced(r, id, placeOf(number, line))
			at, known := first[id]
			switch {
			case replaced && changed && !known:
				first[id] = lies{r.Key, r.Offset, r.Length}
			case !replaced && known:
				r.Key, r.Offset, r.Length = at.key, at.offset, at.length
				delete(first, id)
			}
			if replaced {
				continue
			}
			seen[id] = struct{}{}
			if !yield(r, nil) {
				return
			}
		}
	}
}

// replaced says whether another line of the same object holds, and whether that line changes it.
func (d *dayFiles) replaced(r wire.Record, id IDHash, at place) (changed, replaced bool) {
	if r.State == wire.StateDuplicate {
		return false, false
	}
	if _, gone := d.duplicates[id]; gone {
		return false, true
	}
	last, changed := d.changed[id]
	return changed, changed && at != last.at
}

// eachRecord yields the records of one file.
func eachRecord(key string, r io.Reader) iter.Seq2[wire.Record, error] {
	return func(yield func(wire.Record, error) bool) {
		m, err := openFile(key, r)
		if err != nil {
			yield(wire.Record{}, err)
			return
		}
		defer m.Close()
		for {
			rec, err := m.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(wire.Record{}, fmt.Errorf("%s: %w", key, err))
				return
			}
			if !yield(rec, nil) {
				return
			}
		}
	}
}

// openFile begins to read a file and compares its header with its key.
func openFile(key string, r io.Reader) (*wire.ManifestReader, error) {
	name, err := wire.ParseManifestKey(key)
	if err != nil {
		return nil, err
	}
	m, err := wire.NewManifestReader(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	if h := m.Header; h.Site != name.Site || h.Instrument != name.Instrument || h.Day != name.Day {
		m.Close()
		return nil, fmt.Errorf("%s: its header names %s of instrument %s of site %s: %w",
			key, h.Day, h.Instrument, h.Site, wire.ErrMalformed)
	}
	return m, nil
}
