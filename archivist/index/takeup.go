// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	readBatch = 256
	readWait  = 500 * time.Millisecond
)

// takeUp compares the index with the bucket, and completes it: all of it if its extent is unknown;
// otherwise the days of the notices that were listed since by a writer that did not say so.
func (k *Keeper) takeUp(ctx context.Context) error {
	stale, err := k.open(ctx)
	if err != nil {
		return err
	}
	var begins wire.StreamCursor
	if k.listedAt.Epoch == "" {
		begins, err = k.beginning(ctx) // what is listed from now on, may be in no day that rebuild sees
	} else if !stale {
		stale, err = k.catchUp(ctx)
	}
	if err == nil && stale {
		err = k.rebuild(ctx)
	}
	if err != nil {
		return err
	}
	return k.settle(ctx, begins)
}

// beginning is a place in the notice stream up to which all is in closed parts: the place of the manifest's writer,
// or the first of the stream if it has none. Once the days are looked at, readers may use it: they need not wait
// until the writer closes its first parts, which takes a minute on a new Site.
func (k *Keeper) beginning(ctx context.Context) (wire.StreamCursor, error) {
	cursor, err := k.writerCursor(ctx)
	if err != nil {
		return wire.StreamCursor{}, err
	}
	epoch, _, err := stream.Epoch(ctx, k.cfg.JetStream, wire.NoticeStream(k.cfg.Site))
	if err != nil {
		return wire.StreamCursor{}, err
	}
	if cursor.Epoch != epoch {
		return wire.StreamCursor{Epoch: epoch, Next: 1}, nil
	}
	return wire.StreamCursor{Epoch: epoch, Next: cursor.Next}, nil
}

// open finds the bucket, and says whether all days must be looked at.
func (k *Keeper) open(ctx context.Context) (stale bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	kv, err := k.cfg.JetStream.KeyValue(ctx, wire.IndexBucket(k.cfg.Site))
	if err != nil {
		return false, fmt.Errorf("bucket %s: %w", wire.IndexBucket(k.cfg.Site), err)
	}
	listed := stream.NewCell(k.cfg.JetStream, kv, wire.IndexListedKey)
	data, err := listed.Load(ctx)
	if err != nil {
		return false, err
	}
	var at wire.StreamCursor
	if data != nil {
		at, err = wire.Decode[wire.StreamCursor](data)
		if err != nil && !errors.Is(err, wire.ErrMalformed) {
			return false, fmt.Errorf("%s of %s: %w", wire.IndexListedKey, kv.Bucket(), err)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kv, k.listed, k.listedAt, k.instruments = kv, listed, at, map[string]*instrumentIndex{}
	return k.stale || at.Epoch == "", nil
}

// catchUp touches the days of objects that are listed, according to the writer's cursor, and not
// known to be in the index. Stale is true if these days cannot be determined.
func (k *Keeper) catchUp(ctx context.Context) (stale bool, err error) {
	cursor, err := k.writerCursor(ctx)
	if err != nil {
		return false, err
	}
	from := k.listedAt
	if cursor.Epoch != from.Epoch {
		return cursor.Epoch != "", nil
	}
	if cursor.Next <= from.Next {
		return false, nil // what is listed twice, the writer looks at
	}
	epoch, state, err := stream.Epoch(ctx, k.cfg.JetStream, wire.NoticeStream(k.cfg.Site))
	if err != nil {
		return false, err
	}
	if epoch != from.Epoch || state.FirstSeq > from.Next {
		return true, nil
	}
	reader := stream.NewReader(k.cfg.JetStream, stream.ReaderConfig{Stream: wire.NoticeStream(k.cfg.Site), Epoch: epoch,
		Subject: wire.NoticeSubjects(k.cfg.Site), Start: from.Next, HeadersOnly: true})
	for {
		next, end := reader.Position()
		if next >= cursor.Next || end {
			return false, nil
		}
		messages, err := reader.Next(ctx, readBatch, readWait)
		if err != nil {
			return false, err
		}
		for _, m := range messages {
			_, instrument, _, err := wire.ParseNoticeSubject(m.Subject)
			at, atErr := time.Parse(time.RFC3339Nano, m.Header.Get(wire.HeaderTime))
			if err != nil || atErr != nil {
				continue // no notice of ours
			}
			k.touch(dayKey{instrument, wire.DayOf(at)})
		}
	}
}

// writerCursor is the place that the manifest's writer has come to; empty where it
// has not begun.
func (k *Keeper) writerCursor(ctx context.Context) (wire.StreamCursor, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	bucket := wire.CursorBucket(k.cfg.Site)
	cursors, err := k.cfg.JetStream.KeyValue(ctx, bucket)
	if err != nil {
		return wire.StreamCursor{}, fmt.Errorf("bucket %s: %w", bucket, err)
	}
	data, err := stream.NewCell(k.cfg.JetStream, cursors, wire.NoticeCursorKey).Load(ctx)
	if err != nil || data == nil {
		return wire.StreamCursor{}, err
	}
	return wire.Decode[wire.StreamCursor](data)
}

func (k *Keeper) touch(day dayKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.touched[day] = true
}

// settle looks at the days that were touched, until there are none: then the index
// is complete, from begins on where nothing said how far it goes.
func (k *Keeper) settle(ctx context.Context, begins wire.StreamCursor) error {
	for {
		day, found := k.next()
		if !found {
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.complete && k.listedAt.Epoch == "" {
				return k.flush(ctx, begins)
			}
			return k.storeAll(ctx)
		}
		if err := k.checkDay(ctx, day); err != nil {
			k.touch(day)
			return fmt.Errorf("instrument %s, %s: %w", day.instrument, day.day, err)
		}
	}
}

// next takes one of the touched days; if there is none, the index is complete.
func (k *Keeper) next() (dayKey, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for day := range k.touched {
		delete(k.touched, day)
		return day, true
	}
	k.complete, k.stale = true, false
	k.cfg.Metrics.complete.Set(1)
	return dayKey{}, false
}

// checkDay compares one day with the bucket.
func (k *Keeper) checkDay(ctx context.Context, day dayKey) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	i, err := k.instrument(ctx, day.instrument)
	if err != nil {
		return err
	}
	known, err := k.known(ctx, i, day.day)
	if err != nil {
		return err
	}
	return k.compare(ctx, i, known)
}

// rebuild compares all days with the bucket, and reads those that the index does not know: all of
// an archive that never had an index; those that no root has, if JetStream was lost.
func (k *Keeper) rebuild(ctx context.Context) error {
	begun, count := time.Now(), 0
	k.cfg.Log.Info("rebuilding the index from the manifests", "site", k.cfg.Site)
	for name, err := range manifest.Instruments(ctx, k.cfg.Store, k.cfg.Site) {
		if err == nil {
			count++
			err = k.rebuildBook(ctx, name)
		}
		if err != nil {
			return fmt.Errorf("instrument %s: %w", name, err)
		}
	}
	k.cfg.Log.Info("rebuilt the index", "site", k.cfg.Site, "instruments", count, "took", time.Since(begun))
	return nil
}

// rebuildBook makes the entry of one instrument. Others may continue meanwhile: the days that they
// store are touched.
func (k *Keeper) rebuildBook(ctx context.Context, name string) error {
	i, err := k.emptyBook(ctx, name)
	if err != nil {
		return err
	}
	root, err := k.newestRoot(ctx, i)
	if err != nil {
		return err
	}
	base := manifest.MergeDays(root.Days, i.entry.Open)
	i.entry = wire.IndexEntry{Root: root.Header.Number, RootIncarnation: root.Header.Incarnation, LatestObserved: i.entry.LatestObserved}
	found, there := 0, map[wire.Day]bool{}
	for day, err := range manifest.Days(ctx, k.cfg.Store, k.cfg.Site, name) {
		if err != nil {
			return err
		}
		files, err := k.list(ctx, name, day)
		if err != nil {
			return err
		}
		at, known := manifest.FindDay(base, day)
		if len(files.InEffect) == 0 {
			continue
		}
		there[day] = true
		switch {
		case !known || !base[at].Same(files.Known(day)):
			err = k.summarize(ctx, i, day)
		default:
			if in, rooted := manifest.FindDay(root.Days, day); !rooted || !root.Days[in].Same(files.Known(day)) {
				i.set(base[at])
			}
		}
		if err != nil {
			return err
		}
		if _, rooted := manifest.FindDay(root.Days, day); rooted {
			found++
		}
	}
	if found < len(root.Days) { // days that the root has are gone
		open := i.entry.Open
		i.entry.Root, i.entry.RootIncarnation, i.entry.Open = 0, "", nil
		for _, d := range manifest.MergeDays(root.Days, open) {
			if there[d.Day] {
				i.set(d)
			}
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range base {
		if !there[d.Day] {
			if err := k.noteMissing(ctx, name, d); err != nil {
				return err
			}
		}
	}
	return k.store(ctx, i)
}

// emptyBook is the book of an instrument whose entry is recreated: its content is only believed if
// the bucket confirms it, and it may be unreadable.
func (k *Keeper) emptyBook(ctx context.Context, name string) (*instrumentIndex, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	i := &instrumentIndex{name: name, cell: stream.NewCell(k.cfg.JetStream, k.kv, name), days: map[wire.Day]wire.RootDay{}}
	data, err := i.cell.Load(ctx)
	if err != nil || data == nil {
		return i, err
	}
	entry, err := wire.Decode[wire.IndexEntry](data)
	if err != nil && !errors.Is(err, wire.ErrMalformed) {
		return nil, fmt.Errorf("entry %s of %s: %w", name, k.kv.Bucket(), err)
	}
	if err == nil {
		i.entry = entry
	}
	return i, nil
}

// newestRoot returns the newest root that can be read, or an empty one, and notes
// the greatest number that is taken. All but the two newest are removed.
func (k *Keeper) newestRoot(ctx context.Context, i *instrumentIndex) (wire.Root, error) {
	var numbers []int
	for info, err := range k.cfg.Store.List(ctx, wire.RootPrefix(k.cfg.Site, i.name), "") {
		if err != nil {
			return wire.Root{}, err
		}
		if _, _, number, err := wire.ParseRootKey(info.Key); err == nil {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	slices.Reverse(numbers)
	var newest wire.Root
	for n, number := range numbers {
		i.newest = max(i.newest, number)
		if newest.Header.Number == 0 {
			root, err := manifest.ReadRoot(ctx, k.cfg.Store, k.cfg.Site, i.name, number)
			if err != nil && !errors.Is(err, wire.ErrMalformed) && !errors.Is(err, objectstore.ErrNotFound) {
				return wire.Root{}, err
			}
			if err == nil {
				newest = root
			}
		}
		if n < rootsKept {
			continue
		}
		if err := k.deleteRoot(ctx, i.name, number); err != nil {
			return wire.Root{}, err
		}
	}
	return newest, nil
}
