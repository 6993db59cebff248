// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/archivist/damage"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// compareAllInterval is how often it is also asked whether the days of the roots, which are read
// seldom, still have manifests.
const compareAllInterval = 24 * time.Hour

// LostDay is a day whose files, which the index knew, the bucket lacks.
type LostDay struct {
	Instrument string
	Day        wire.Day
}

// follow compares the index with the bucket, and again and again, until the index is given up.
func (k *Keeper) follow(ctx context.Context) {
	var all time.Time
	for {
		whole := time.Since(all) >= compareAllInterval
		err := k.compareDays(ctx, whole)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrIncomplete): // it was given up, for a reason that is logged
		case err != nil:
			k.cfg.Metrics.failures.Inc()
			k.cfg.Log.Warn("cannot compare the index with the bucket; retrying later", "error", err)
		case whole:
			all = time.Now()
		}
		select {
		case <-time.After(k.cfg.CompareInterval):
		case <-k.wake:
			return
		case <-ctx.Done():
			return
		}
	}
}

// compareDays compares the days that changed since the roots with the bucket, of all
// instruments; where whole is set, it also looks whether the days of the roots are there.
func (k *Keeper) compareDays(ctx context.Context, whole bool) error {
	entries := map[string]wire.IndexEntry{}
	var unread []error // an entry, a root or a day that cannot be read holds up no other instrument
	err := stream.EntriesOf(ctx, k.cfg.JetStream, wire.IndexBucket(k.cfg.Site), ">", func(e jetstream.KeyValueEntry) error {
		if e.Key() == wire.IndexListedKey || e.Operation() != jetstream.KeyValuePut {
			return nil
		}
		entry, err := wire.Decode[wire.IndexEntry](e.Value())
		if err != nil {
			unread = append(unread, fmt.Errorf("entry %s of %s: %w", e.Key(), wire.IndexBucket(k.cfg.Site), err))
			return nil
		}
		for n := range entry.Open { // it holds the folders of many paths, which are not compared
			d := &entry.Open[n]
			d.Dirs, d.FirstPath, d.LastPath = nil, "", ""
		}
		entries[e.Key()] = entry
		return nil
	})
	if err != nil {
		return err
	}
	for name, entry := range entries {
		switch err := k.compareEntry(ctx, name, entry, whole); {
		case err == nil:
		case !errors.Is(err, ErrIncomplete) && (errors.Is(err, wire.ErrMalformed) || errors.Is(err, wire.ErrNewerFormat)):
			unread = append(unread, fmt.Errorf("instrument %s: %w", name, err))
		default:
			return fmt.Errorf("instrument %s: %w", name, err)
		}
	}
	return errors.Join(unread...)
}

func (k *Keeper) compareEntry(ctx context.Context, name string, entry wire.IndexEntry, whole bool) error {
	for _, d := range entry.Open {
		files, err := manifest.List(ctx, k.cfg.Store, k.cfg.Site, name, d.Day)
		if err != nil {
			return err
		}
		if d.Same(files.Known(d.Day)) {
			continue
		}
		if err := k.compareDay(ctx, name, d.Day); err != nil {
			return err
		}
	}
	if !whole || entry.Root == 0 {
		return nil
	}
	return k.compareRoot(ctx, name, entry.Root)
}

// compareDay compares a day under the mutex: the entry that was read may be older than what is known here.
func (k *Keeper) compareDay(ctx context.Context, name string, day wire.Day) error {
	return k.changeInstrument(ctx, name, day, func(i *instrumentIndex) error {
		known, err := k.known(ctx, i, day)
		if err != nil {
			return err
		}
		return k.compare(ctx, i, known)
	})
}

// compareRoot looks whether the days of a root have manifests.
func (k *Keeper) compareRoot(ctx context.Context, name string, number int) error {
	root, err := manifest.ReadRoot(ctx, k.cfg.Store, k.cfg.Site, name, number)
	if errors.Is(err, objectstore.ErrNotFound) || errors.Is(err, wire.ErrMalformed) {
		// There is a newer one, or the index is given up and rebuilt from the bucket.
		return k.changeInstrument(ctx, name, wire.DayOf(time.Now()), func(i *instrumentIndex) error {
			if i.entry.Root == 0 {
				return nil
			}
			_, err := manifest.ReadRoot(ctx, k.cfg.Store, k.cfg.Site, name, i.entry.Root)
			return err
		})
	}
	if err != nil {
		return err
	}
	gone := map[wire.Day]bool{}
	for _, d := range root.Days {
		gone[d.Day] = true
	}
	for day, err := range manifest.Days(ctx, k.cfg.Store, k.cfg.Site, name) {
		if err != nil {
			return err
		}
		delete(gone, day)
	}
	for day := range maps.Keys(gone) {
		if err := k.compareDay(ctx, name, day); err != nil {
			return err
		}
	}
	return nil
}

// compare compares a day with the bucket, and reads it if it has other files. The mutex is held.
func (k *Keeper) compare(ctx context.Context, i *instrumentIndex, known wire.RootDay) error {
	files, err := k.list(ctx, i.name, known.Day)
	if err != nil || known.Same(files.Known(known.Day)) {
		return err
	}
	if len(files.InEffect) == 0 {
		return k.noteMissing(ctx, i.name, known)
	}
	lacks := files.Lacking(k.cfg.Site, i.name, known)
	if len(lacks) == 0 && files.Replaces(k.cfg.Site, i.name, known) {
		lacks = known.Keys(k.cfg.Site, i.name)[:1] // which one is not known
	}
	if len(lacks) > 0 {
		k.cfg.Metrics.lost.Add(float64(len(lacks)))
		k.cfg.Log.Error("the index names files of a manifest that the bucket does not have, or has with another content, as in a copy that was made while the Site ran: "+
			"readers get what the bucket has; substorm archive rebuild lists what is stored and in no manifest",
			"instrument", i.name, "day", known.Day, "files", len(lacks), "first", lacks[0])
		if err := k.noteLost(ctx, i.name, known.Day); err != nil {
			return err
		}
	}
	return k.summarize(ctx, i, known.Day)
}

// noteMissing notes that the bucket has no manifest of a day any more. The index keeps naming it: otherwise readers would learn
// that there never was anything. The mutex is held.
func (k *Keeper) noteMissing(ctx context.Context, instrument string, known wire.RootDay) error {
	keys := known.Keys(k.cfg.Site, instrument)
	of := dayKey{instrument, known.Day}
	if len(keys) == 0 || k.missing[of] {
		return nil
	}
	if err := k.noteLost(ctx, instrument, known.Day); err != nil {
		return err
	}
	k.missing[of] = true
	k.cfg.Metrics.lost.Add(float64(len(keys)))
	k.reportMissing(ctx, instrument, known)
	return nil
}

// reportMissing says that the bucket has no manifest of a day which the index knows.
func (k *Keeper) reportMissing(ctx context.Context, instrument string, known wire.RootDay) {
	keys := known.Keys(k.cfg.Site, instrument)
	start, err := known.Day.Start()
	if err != nil || len(keys) == 0 {
		return
	}
	k.cfg.Log.Error("a day's manifest is missing in the bucket: its objects cannot be listed or read until substorm archive rebuild has recreated it",
		"instrument", instrument, "day", known.Day, "objects", known.Entries, "files", len(keys))
	d := wire.DamageOf(instrument, wire.Record{ID: keys[0], Key: keys[0], ReceivedAt: start}, wire.DamageMissing, k.cfg.Pod, time.Now())
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := damage.Report(ctx, k.cfg.JetStream, k.cfg.Site, d); err != nil {
		k.cfg.Log.Warn("cannot report a missing manifest now", "instrument", instrument, "day", known.Day, "error", err)
	}
}

// TakeLost returns, once, the days whose files the index knew and the bucket lacks: a caller that has in memory what
// they listed must read the days again. A nil keeper has none.
func (k *Keeper) TakeLost() []LostDay {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	lost := k.lost
	k.lost = nil
	return lost
}
