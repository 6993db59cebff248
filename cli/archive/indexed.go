// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// Findings beside those of a comparison of manifests and objects: noManifest is a day that the index or the ledger knows, but without a
// manifest in the bucket; staleIndex is a day for which the index names files that are not the bucket's.
const (
	noManifest bucket.DifferenceKind = "NoManifest"
	staleIndex bucket.DifferenceKind = "StaleIndex"
)

// compareIndex compares what the Site's index and ledger know of the selection with the manifests that the bucket has.
// Without JetStream nothing is known. Errors: those of find, JetStream and the store.
func (s *survey) compareIndex(ctx context.Context, b *backend.Backend, find func(kind bucket.DifferenceKind, of bucket.List, id, detail string) error) error {
	if !b.KnowsJetStream() {
		return nil
	}
	js, err := b.JetStream(ctx)
	if err != nil {
		return err
	}
	for _, name := range []string{wire.IndexBucket(s.site), wire.LedgerBucket(s.site)} {
		if _, err := js.KeyValue(ctx, name); errors.Is(err, jetstream.ErrBucketNotFound) {
			fmt.Fprintf(s.notes, "NATS has no bucket %s: manifests are not compared with the index and the ledger\n", name)
			return nil
		}
	}
	c := indexCheck{survey: s, find: find, missing: map[instrumentDay]bool{}}
	if err := c.index(ctx, js); err != nil {
		return fmt.Errorf("compare the index with the bucket: %w", err)
	}
	if err := c.ledger(ctx, js); err != nil {
		return fmt.Errorf("compare the ledger with the bucket: %w", err)
	}
	return nil
}

type indexCheck struct {
	*survey
	find func(kind bucket.DifferenceKind, of bucket.List, id, detail string) error
	// missing are the days that were named.
	missing map[instrumentDay]bool
}

func (c *indexCheck) index(ctx context.Context, js jetstream.JetStream) error {
	entries := map[string]wire.IndexEntry{}
	err := backend.Entries(ctx, js, wire.IndexBucket(c.site), ">", func(e backend.Entry) error {
		if e.Key == wire.IndexListedKey || !c.holdsInstrument(e.Key) {
			return nil
		}
		entry, err := wire.Decode[wire.IndexEntry](e.Data)
		if errors.Is(err, wire.ErrMalformed) {
			return nil // the archivist rebuilds it
		}
		entries[e.Key] = entry
		return err
	})
	if err != nil {
		return err
	}
	names := make([]string, 0, len(entries))
	for name := range entries {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := c.entry(ctx, name, entries[name]); err != nil {
			return fmt.Errorf("instrument %s: %w", name, err)
		}
	}
	return nil
}

func (c *indexCheck) entry(ctx context.Context, name string, entry wire.IndexEntry) error {
	within, err := c.days()
	if err != nil {
		return err
	}
	days, err := manifest.Indexed(ctx, c.store, c.site, name, entry)
	if errors.Is(err, objectstore.ErrNotFound) || errors.Is(err, wire.ErrMalformed) {
		key := wire.RootKey(c.site, name, entry.Root)
		if err := c.find(staleIndex, bucket.List{Instrument: name, Day: nowhere}, key, "the list of days that the index names is not there, or cannot be read"); err != nil {
			return err
		}
		days, err = entry.Open, nil
	}
	if err != nil {
		return err
	}
	for _, d := range days {
		if !within.hold(d.Day) {
			continue
		}
		if err := c.day(ctx, name, d); err != nil {
			return err
		}
	}
	return nil
}

func (c *indexCheck) day(ctx context.Context, name string, known wire.RootDay) error {
	of := bucket.List{Instrument: name, Day: known.Day}
	files, err := manifest.List(ctx, c.store, c.site, name, known.Day)
	if err != nil {
		return err
	}
	lacks := files.Lacking(c.site, name, known)
	switch has := files.Known(known.Day); {
	case len(files.InEffect) == 0 && len(lacks) > 0:
		c.missing[instrumentDay{name, known.Day}] = true
		return c.find(noManifest, of, wire.ManifestPrefix(c.site, name, known.Day), fmt.Sprintf("the index knows %d objects of the day", known.Entries))
	case len(lacks) > 0:
		return c.find(staleIndex, of, lacks[0], fmt.Sprintf("the index names %d files of the day's manifest that are not there", len(lacks)))
	case slices.Equal(has.Parts, known.Parts) && has.Version == known.Version && !has.Same(known):
		return c.find(staleIndex, of, files.InEffect[0], "the index knows other files under the names of those that are there")
	}
	return nil
}

// ledger names the days without a manifest for which the archivist has listed objects, as its columns say.
func (c *indexCheck) ledger(ctx context.Context, js jetstream.JetStream) error {
	days, err := ReadLedger(ctx, js, c.site, &c.selection, time.Now())
	if err != nil {
		return err
	}
	for _, l := range days {
		listed := uint64(0)
		for _, w := range l.Writers {
			if w.Writer == wire.ArchivistWriter {
				listed = w.Announced.Objects
			}
		}
		if listed == 0 || c.missing[instrumentDay{l.Instrument, l.Day}] {
			continue
		}
		files, err := manifest.List(ctx, c.store, c.site, l.Instrument, l.Day)
		if err != nil {
			return err
		}
		if len(files.InEffect) > 0 {
			continue
		}
		of := bucket.List{Instrument: l.Instrument, Day: l.Day}
		if err := c.find(noManifest, of, wire.ManifestPrefix(c.site, l.Instrument, l.Day), fmt.Sprintf("the ledger counts %d objects of the day", listed)); err != nil {
			return err
		}
	}
	return nil
}
