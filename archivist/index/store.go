// SPDX-License-Identifier: Apache-2.0

package index

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/archivist/deletion"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// rootTries is how many numbers are tried: those that are taken were written by
	// a keeper that did not come to say so.
	rootTries = 100
	// rootsKept stay: readers may be about to read the one before the newest.
	rootsKept = 2
)

// flush writes the entries that changed, and then the place that they know.
func (k *Keeper) flush(ctx context.Context, at wire.StreamCursor) error {
	if err := k.storeAll(ctx); err != nil {
		return err
	}
	if at == k.listedAt {
		return k.checkListed(ctx)
	}
	if err := k.cfg.Lease.Check(); err != nil {
		return err
	}
	value, err := wire.Encode(at)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := k.listed.Store(ctx, value); err != nil {
		return err
	}
	k.listedAt = at
	return nil
}

// checkListed compares the bucket with what was written last: while nothing new arrives, nothing
// else shows that it was lost and recreated.
func (k *Keeper) checkListed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	e, err := k.kv.Get(ctx, wire.IndexListedKey)
	if err != nil {
		return fmt.Errorf("read %s of %s: %w", wire.IndexListedKey, k.kv.Bucket(), err)
	}
	if at, err := wire.Decode[wire.StreamCursor](e.Value()); err != nil || at != k.listedAt {
		return fmt.Errorf("%s of %s is not what was written: %w", wire.IndexListedKey, k.kv.Bucket(), stream.ErrConflict)
	}
	return nil
}

// storeAll writes the entries that changed.
func (k *Keeper) storeAll(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(putsAtOnce)
	for _, i := range k.instruments {
		if i.changed {
			group.Go(func() error { return k.store(groupCtx, i) })
		}
	}
	return group.Wait()
}

// store writes an instrument's entry, and a new root before that where one is due.
func (k *Keeper) store(ctx context.Context, i *instrumentIndex) error {
	value, err := wire.Encode(i.entry)
	if err != nil {
		return err
	}
	due := i.closed || len(i.entry.Open) > maxOpen || len(value) > dueEntry
	rooted := 0
	if due && (time.Since(i.rooted) >= k.cfg.RootInterval || len(value) > maxEntry) {
		if rooted, err = k.root(ctx, i); err != nil {
			return err
		}
		if value, err = wire.Encode(i.entry); err != nil {
			return err
		}
	}
	if err := k.cfg.Lease.Check(); err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := i.cell.Store(call, value); err != nil {
		return err
	}
	k.cfg.Metrics.entries.Inc()
	i.changed = false
	if rooted > rootsKept {
		// A root that stays says nothing wrong.
		if err := k.deleteRoot(ctx, i.name, rooted-rootsKept); err != nil {
			k.cfg.Log.Warn("cannot delete an old root", "instrument", i.name, "root", rooted-rootsKept, "error", err)
		}
	}
	return nil
}

func (k *Keeper) deleteRoot(ctx context.Context, instrument string, number int) error {
	_, err := k.cfg.Deleter.Delete(ctx, time.Now(), deletion.Object{Key: wire.RootKey(k.cfg.Site, instrument, number), Reason: wire.DeletedRoot, Instrument: instrument})
	return err
}

// root writes a root of all days, and returns its number.
func (k *Keeper) root(ctx context.Context, i *instrumentIndex) (int, error) {
	var days []wire.RootDay
	if i.entry.Root > 0 {
		last, err := manifest.ReadRoot(ctx, k.cfg.Store, k.cfg.Site, i.name, i.entry.Root)
		if err != nil {
			return 0, err
		}
		days = last.Days
	}
	root := wire.Root{Header: wire.RootHeader{Site: k.cfg.Site, Instrument: i.name, Writer: k.cfg.Pod, Incarnation: k.cfg.Incarnation},
		Days: manifest.MergeDays(days, i.entry.Open)}
	first := max(i.newest, i.entry.Root) + 1
	for number := first; number < first+rootTries; number++ {
		root.Header.Number = number
		data, err := root.Encode()
		if err != nil {
			return 0, err
		}
		if err := k.cfg.Lease.Check(); err != nil {
			return 0, err
		}
		err = k.cfg.Store.Put(ctx, wire.RootKey(k.cfg.Site, i.name, number), bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{
			ContentType: "application/zstd", Digest: sha256.Sum256(data), CreateOnly: true})
		if errors.Is(err, objectstore.ErrExists) {
			continue
		}
		if err != nil {
			return 0, err
		}
		k.cfg.Metrics.roots.Inc()
		i.entry.Root, i.entry.RootIncarnation, i.entry.Open, i.newest = number, k.cfg.Incarnation, nil, number
		i.rooted, i.closed = time.Now(), false
		return number, nil
	}
	return 0, fmt.Errorf("the roots of instrument %s from %d on are all taken", i.name, first)
}
