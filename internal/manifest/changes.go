// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// PutChanges stores what lines of a manifest say and their objects do not; it must be
// there before those lines are. Part is the number of the day's part that lists them, or
// Files.NextPart if a compacted day does. Changes that are there already are no error.
// Errors: those of objectstore.
func PutChanges(ctx context.Context, store objectstore.Store, h wire.ManifestHeader, part int, records []wire.Record) error {
	if len(records) == 0 {
		return nil
	}
	data, err := wire.Manifest{Header: h, Records: records}.Encode()
	if err != nil {
		return fmt.Errorf("changes of %s of instrument %s: %w", h.Day, h.Instrument, err)
	}
	digest := wire.Digest(sha256.Sum256(data))
	err = store.Put(ctx, wire.ChangesKey(h.Site, h.Instrument, h.Day, part, digest), bytes.NewReader(data), int64(len(data)),
		objectstore.PutOptions{ContentType: "application/zstd", Digest: digest, CreateOnly: true})
	if errors.Is(err, objectstore.ErrExists) {
		return nil // its key follows from its bytes
	}
	return err
}

// ChangedDays yields the days for which there are changes of an instrument, and what else has the name of a folder there.
func ChangedDays(ctx context.Context, store objectstore.Store, site, instrument string) iter.Seq2[wire.Day, error] {
	return func(yield func(wire.Day, error) bool) {
		for name, err := range store.Folders(ctx, wire.ChangesInstrumentPrefix(site, instrument)) {
			if !yield(wire.Day(name), err) {
				return
			}
		}
	}
}

// Changes are what is known of a day beside its objects.
type Changes struct {
	// Records by ID: what holds of each.
	Records map[string]wire.Record
	// LastPart is the greatest number of a part that changes are of.
	LastPart int
	// Foreign are the keys under the day that are not keys of changes, and Unreadable the keys of changes that cannot be read: it is
	// unknown what they retracted.
	Foreign, Unreadable []string
}

// ReadChanges reads the changes of an instrument and day, as far as they can be read.
// Errors: those of objectstore, wire.ErrNewerFormat.
func ReadChanges(ctx context.Context, store objectstore.Store, site, instrument string, day wire.Day) (Changes, error) {
	records := map[string]wire.Record{}
	c, err := WalkChanges(ctx, store, site, instrument, day, func(r wire.Record) {
		if before, known := records[r.ID]; !known || finality(r.State) >= finality(before.State) {
			records[r.ID] = r
		}
	})
	if err != nil {
		return Changes{}, err
	}
	c.Records = records
	return c, nil
}

// WalkChanges is ReadChanges without Records: it calls a function with each line, in the
// order in which they were stored, and holds one file in memory.
func WalkChanges(ctx context.Context, store objectstore.Store, site, instrument string, day wire.Day, each func(wire.Record)) (Changes, error) {
	type file struct {
		key      string
		part     int
		storedAt time.Time
	}
	var files []file
	var c Changes
	for info, err := range store.List(ctx, wire.ChangesPrefix(site, instrument, day), "") {
		if err != nil {
			return Changes{}, err
		}
		name, err := wire.ParseChangesKey(info.Key)
		if err != nil { // a foreign file must not stop the day
			c.Foreign = append(c.Foreign, info.Key)
			continue
		}
		files = append(files, file{info.Key, name.Part, info.ModifiedAt})
	}
	slices.SortFunc(files, func(a, b file) int {
		return cmp.Or(cmp.Compare(a.part, b.part), a.storedAt.Compare(b.storedAt), cmp.Compare(a.key, b.key))
	})
	for _, f := range files {
		c.LastPart = max(c.LastPart, f.part)
		records, err := readChanges(ctx, store, f.key)
		if errors.Is(err, wire.ErrMalformed) {
			c.Unreadable = append(c.Unreadable, f.key)
			continue
		}
		if err != nil {
			return Changes{}, err
		}
		for _, r := range records {
			each(r)
		}
	}
	return c, nil
}

// LastChangedPart is the greatest number of a part that changes of an instrument and day are of; 0: there are none. It reads no
// file. Errors: those of objectstore.
func LastChangedPart(ctx context.Context, store objectstore.Store, site, instrument string, day wire.Day) (last int, err error) {
	for info, err := range store.List(ctx, wire.ChangesPrefix(site, instrument, day), "") {
		if err != nil {
			return 0, err
		}
		if name, err := wire.ParseChangesKey(info.Key); err == nil { // WalkChanges names what is foreign
			last = max(last, name.Part)
		}
	}
	return last, nil
}

// readChanges reads one file.
func readChanges(ctx context.Context, store objectstore.Store, key string) ([]wire.Record, error) {
	body, _, err := store.Get(ctx, key, objectstore.All)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	m, err := wire.DecodeManifest(body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	name, err := wire.ParseChangesKey(key)
	if err != nil {
		return nil, err
	}
	if h := m.Header; h.Site != name.Site || h.Instrument != name.Instrument || h.Day != name.Day {
		return nil, fmt.Errorf("%s: its header names %s of instrument %s of site %s: %w", key, h.Day, h.Instrument, h.Site, wire.ErrMalformed)
	}
	return m.Records, nil
}

// finality orders states by what nothing that comes later changes.
func finality(s wire.State) int {
	switch s {
	case wire.StateDuplicate:
		return 2
	case wire.StatePurged:
		return 1
	default:
		return 0
	}
}
