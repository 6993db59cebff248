// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// instrumentIndex is what is known of one instrument.
type instrumentIndex struct {
	name  string
	cell  *stream.Cell
	entry wire.IndexEntry
	// days are summaries of days as they are in the bucket, some that were used last.
	days map[wire.Day]wire.RootDay
	// changed: the entry is to be written; closed: a root is due, as a day was closed.
	changed, closed bool
	// rooted is when the last root was written, newest the greatest number of one.
	rooted time.Time
	newest int
}

// instrument returns what is known of an instrument; its entry is read the first time.
func (k *Keeper) instrument(ctx context.Context, name string) (*instrumentIndex, error) {
	if i := k.instruments[name]; i != nil {
		return i, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	i := &instrumentIndex{name: name, cell: stream.NewCell(k.cfg.JetStream, k.kv, name), days: map[wire.Day]wire.RootDay{}}
	data, err := i.cell.Load(ctx)
	if err != nil {
		return nil, err
	}
	if data != nil {
		if i.entry, err = wire.Decode[wire.IndexEntry](data); err != nil {
			return nil, fmt.Errorf("entry %s of %s: %w", name, k.kv.Bucket(), err)
		}
	}
	for _, d := range i.entry.Open {
		i.keep(d)
	}
	k.instruments[name] = i
	return i, nil
}

// recent returns what is in memory of a day.
func (i *instrumentIndex) recent(day wire.Day) (wire.RootDay, bool) {
	if d, ok := i.days[day]; ok {
		return d, true
	}
	if at, found := manifest.FindDay(i.entry.Open, day); found {
		i.keep(i.entry.Open[at])
		return i.entry.Open[at], true
	}
	return wire.RootDay{Day: day}, false
}

// known returns what the index says of a day; an empty summary if it has none.
func (k *Keeper) known(ctx context.Context, i *instrumentIndex, day wire.Day) (wire.RootDay, error) {
	if d, found := i.recent(day); found || i.entry.Root == 0 {
		return d, nil
	}
	root, err := manifest.ReadRoot(ctx, k.cfg.Store, k.cfg.Site, i.name, i.entry.Root)
	if err != nil {
		return wire.RootDay{}, err
	}
	if at, found := manifest.FindDay(root.Days, day); found {
		i.keep(root.Days[at])
		return root.Days[at], nil
	}
	return wire.RootDay{Day: day}, nil
}

// list finds the files of a day, and warns of what is none among them.
func (k *Keeper) list(ctx context.Context, instrument string, day wire.Day) (manifest.Files, error) {
	files, err := manifest.List(ctx, k.cfg.Store, k.cfg.Site, instrument, day)
	for _, key := range files.Foreign {
		k.cfg.Log.Warn("ignoring an unknown object among the files of a manifest", "instrument", instrument, "day", day, "object", key)
	}
	return files, err
}

// summarize reads a day. One that cannot be read is known by its files alone.
func (k *Keeper) summarize(ctx context.Context, i *instrumentIndex, day wire.Day) error {
	d, err := manifest.Summarize(ctx, k.cfg.Store, k.cfg.Site, i.name, day)
	if errors.Is(err, wire.ErrMalformed) {
		k.cfg.Log.Error("cannot read a manifest: the index has its day without what the manifest lists", "instrument", i.name, "day", day, "error", err)
		var files manifest.Files
		if files, err = k.list(ctx, i.name, day); errors.Is(err, wire.ErrMalformed) {
			return nil
		}
		d = files.Known(day)
	}
	if err != nil {
		return err
	}
	k.cfg.Metrics.summaries.Inc()
	if d.Version == 0 && len(d.Parts) == 0 {
		return nil
	}
	i.set(d)
	delete(k.missing, dayKey{i.name, day})
	return nil
}

// set says what a day is now.
func (i *instrumentIndex) set(d wire.RootDay) {
	i.keep(d)
	i.changed = true
	if at, found := manifest.FindDay(i.entry.Open, d.Day); found {
		i.entry.Open[at] = d
	} else {
		i.entry.Open = slices.Insert(i.entry.Open, at, d)
	}
	if d.ObservedTo != nil && (i.entry.LatestObserved == nil || d.ObservedTo.After(*i.entry.LatestObserved)) {
		i.entry.LatestObserved = d.ObservedTo
	}
}

// keep remembers a day, and forgets the oldest if there are too many.
func (i *instrumentIndex) keep(d wire.RootDay) {
	i.days[d.Day] = d
	if len(i.days) <= keepDays {
		return
	}
	oldest := d.Day
	for day := range i.days {
		if oldest == d.Day || day != d.Day && day < oldest {
			oldest = day
		}
	}
	delete(i.days, oldest)
}
