// SPDX-License-Identifier: Apache-2.0

package gaps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// mark is what is remembered of a day of receipt: which files list it, and the times
// of observation in it.
type mark struct {
	wire.RootDay
	from, to time.Time
}

// markOf sums up a day of receipt.
func markOf(d wire.RootDay) (mark, error) {
	from, to, err := d.Observed()
	d.Dirs = nil // they are large, and of no use here
	return mark{RootDay: d, from: from, to: to}, err
}

// findChanged reads which days of receipt there are, and returns the days of observation of
// those that changed since the last pass.
func (k *Keeper) findChanged(ctx context.Context, i *instrument, now time.Time) ([]wire.Day, error) {
	days, same, err := k.days(ctx, i)
	if err != nil || same {
		return nil, err
	}
	oldest := now.AddDate(0, 0, -lookback).Truncate(24 * time.Hour)
	before := map[wire.Day]wire.RootDay{}
	for _, m := range i.marks {
		before[m.Day] = m.RootDay
	}
	var changed []wire.Day
	marks := i.marks[:0:0]
	for _, d := range days {
		m, err := markOf(d)
		if err != nil {
			return nil, err
		}
		if err := k.noteFirstObserved(ctx, i, m, oldest); err != nil {
			return nil, err
		}
		if m.to.Before(oldest) {
			continue
		}
		marks = append(marks, m)
		if known, found := before[m.Day]; found && known.Same(m.RootDay) || i.fresh {
			continue
		}
		last := minTime(m.to, now)
		for at := maxTime(m.from, oldest); at.Before(last); at = at.AddDate(0, 0, 1) {
			changed = append(changed, wire.DayOf(at))
		}
		changed = append(changed, wire.DayOf(last))
	}
	i.marks = marks
	slices.Sort(changed)
	return slices.Compact(changed), nil
}

// first is a day of receipt whose first observation was read from its manifest, because nothing
// records when its objects observe.
type first struct {
	of wire.RootDay
	at time.Time
}

// noteFirstObserved takes a day of receipt into account for when the instrument first observed.
// Midnight stands for the beginning only of days that no plan looks at any more.
func (k *Keeper) noteFirstObserved(ctx context.Context, i *instrument, m mark, oldest time.Time) error {
	at := m.from
	switch {
	case m.ObservedFrom != nil:
		at = *m.ObservedFrom
	case (i.since.IsZero() || at.Before(i.since)) && m.to.After(oldest):
		var err error
		if at, err = k.firstOf(ctx, i, m.RootDay); err != nil || at.IsZero() {
			return err
		}
	}
	if i.since.IsZero() || at.Before(i.since) {
		i.since = at
	}
	return nil
}

// firstOf returns the least time of what is listed of a day, zero if nothing is listed. If it knows
// the day already, it reads only what is new.
func (k *Keeper) firstOf(ctx context.Context, i *instrument, d wire.RootDay) (time.Time, error) {
	if i.first.of.Same(d) {
		return i.first.at, nil
	}
	current := first{of: d, at: i.first.at}
	before := reading{of: []wire.RootDay{i.first.of}, channels: map[string]Archived{}}
	keys, more := before.unreadKeys(k.cfg.Site, i.name, "", []wire.RootDay{d})
	if i.first.of.Day != d.Day || !more {
		current.at, keys = time.Time{}, d.Keys(k.cfg.Site, i.name)
	}
	for r, err := range manifest.RecordsOf(ctx, k.cfg.Store, keys) {
		if err != nil {
			return time.Time{}, fmt.Errorf("read the start of its data on %s: %w", d.Day, err)
		}
		if from := spanOf(&r).From; current.at.IsZero() || from.Before(current.at) {
			current.at = from
		}
	}
	i.first = current
	return current.at, nil
}

// days returns the days of receipt that are listed, and whether they are unchanged since the last
// call.
func (k *Keeper) days(ctx context.Context, i *instrument) (days []wire.RootDay, same bool, err error) {
	entry, err := k.index.Get(ctx, i.name)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if entry.Revision() == i.revision && !i.fresh {
		return nil, true, nil
	}
	index, err := wire.Decode[wire.IndexEntry](entry.Value())
	if err != nil {
		return nil, false, err
	}
	if days, err = manifest.Indexed(ctx, k.cfg.Store, k.cfg.Site, i.name, index); err != nil {
		return nil, false, err
	}
	i.revision = entry.Revision()
	return days, false, nil
}

// reading is what was read of a day of observation, with the days of receipt whose files were read
// and the declaration in effect.
type reading struct {
	declared string
	of       []wire.RootDay
	channels map[string]Archived
}

// unreadKeys returns the keys that were not read yet, and false if all must be read again: a day was
// compacted, or the declaration changed.
func (r *reading) unreadKeys(site, instrument, declared string, of []wire.RootDay) (keys []string, more bool) {
	if r.channels == nil || r.declared != declared {
		return nil, false
	}
	known := map[wire.Day]wire.RootDay{}
	for _, d := range r.of {
		known[d.Day] = d
	}
	for _, d := range of {
		before, found := known[d.Day]
		if found && before.Version != d.Version {
			return nil, false
		}
		for _, key := range d.Keys(site, instrument) {
			file, err := wire.ParseManifestKey(key)
			if err != nil || !found || !file.Compacted && !before.Parts.Has(file.Number) {
				keys = append(keys, key)
			}
		}
	}
	return keys, true
}

// errChanged: something was retracted of what was read before.
var errChanged = errors.New("what was read before changed")

// readArchived reads what there is of a day of observation.
func (k *Keeper) readArchived(ctx context.Context, e *wire.InstrumentEntry, i *instrument, day wire.Day) (map[string]Archived, error) {
	start, err := day.Start()
	if err != nil {
		return nil, err
	}
	within := window{from: start, to: start.AddDate(0, 0, 1), overdue: 2*time.Duration(e.CadenceMillis)*time.Millisecond + 2*time.Second}
	var of []wire.RootDay
	var all []string
	for _, m := range i.marks {
		if !m.from.After(within.to.Add(within.overdue)) && !m.to.Before(within.from.Add(-within.overdue)) {
			of = append(of, m.RootDay)
			all = append(all, m.Keys(k.cfg.Site, i.name)...)
		}
	}
	declared := fmt.Sprint(e.CadenceMillis, e.SegmentAgeMillis, e.Listeners)
	before := i.read[day]
	channels := maps.Clone(before.channels)
	news, more := before.unreadKeys(k.cfg.Site, i.name, declared, of)
	if more {
		err = k.read(ctx, channels, news, within, len(before.of) > 0)
	}
	if !more || errors.Is(err, errChanged) {
		channels = channelsOf(e)
		err = k.read(ctx, channels, all, within, false)
	}
	if err != nil {
		delete(i.read, day)
		return nil, err
	}
	i.read[day] = reading{declared, of, channels}
	return channels, nil
}

// read adds what files list.
func (k *Keeper) read(ctx context.Context, channels map[string]Archived, keys []string, w window, added bool) error {
	for r, err := range manifest.RecordsOf(ctx, k.cfg.Store, keys) {
		switch {
		case errors.Is(err, objectstore.ErrNotFound):
			return fmt.Errorf("its files were replaced meanwhile: %w", err)
		case err != nil:
			return err
		case added && isRetracted(&r):
			return errChanged
		}
		w.take(channels, &r)
	}
	for name, c := range channels {
		c.Observed = merge(c.Observed, w.overdue)
		channels[name] = c
	}
	return nil
}

// channelsOf are those on which an instrument sends, with nothing in them.
func channelsOf(e *wire.InstrumentEntry) map[string]Archived {
	channels := map[string]Archived{}
	for _, listener := range e.Listeners {
		if listener.Protocol == wire.ProtocolUDP {
			age := time.Duration(e.SegmentAgeMillis) * time.Millisecond
			channels[listener.Channel] = Archived{Delay: Duration(age + listing)}
		} else {
			channels[""] = Archived{Delay: Duration(listing)}
		}
	}
	return channels
}

// maxSpans are gathered before they are put together.
const maxSpans = 8192

// isRetracted says whether an object is not to be had any more, and not for its age: what
// expired was observed.
func isRetracted(r *wire.Record) bool {
	return r.State == wire.StateRetracted || r.State == wire.StatePurged && !r.Expired()
}

// window is a day of observation; what is less than overdue apart follows each other.
type window struct {
	from, to time.Time
	overdue  time.Duration
}

// take notes when a record observes.
func (w window) take(channels map[string]Archived, r *wire.Record) {
	name := ""
	if r.Segment != nil {
		name = r.Segment.Channel
	}
	c, sends := channels[name]
	span := spanOf(r)
	if !sends || span.From.After(w.to.Add(w.overdue)) || span.To.Before(w.from.Add(-w.overdue)) {
		return
	}
	switch {
	case r.State == wire.StateDuplicate: // it duplicates another
		return
	case isRetracted(r):
		c.Retracted = append(c.Retracted, span)
	case r.Segment != nil && r.Segment.Undecodable > r.Segment.Datagrams:
		c.Undecodable = append(c.Undecodable, span)
	default:
		if c.Observed = append(c.Observed, span); len(c.Observed) > maxSpans {
			c.Observed = merge(c.Observed, w.overdue)
			for apart := 2 * w.overdue; len(c.Observed) > maxSpans/2; apart *= 2 {
				c.Observed = merge(c.Observed, apart) // nothing but gaps: the shortest are let go
			}
		}
	}
	channels[name] = c
}

// spanOf is the time that an object observes.
func spanOf(r *wire.Record) wire.TimeSpan {
	from, to := r.Observed()
	return wire.TimeSpan{From: from, To: to}
}
