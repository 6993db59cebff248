// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// The ledger's stored column of datagrams has one entry per instrument and day;
// in the place of incarnations stand the channels, and wire.UnknownChannel for
// messages whose subject names none. Datagrams that are in no segment stand in it
// by cause, so that it adds up to what was announced.

// totalsBefore returns what was counted of a channel's day before a range, where the cursor
// does not know: the day is new to it, or the cursor was lost, and the ledger may be, too.
// Segments say what they hold; what is in none only the ledger has.
func (c *Cutter) totalsBefore(ctx context.Context, ch *channel, day wire.Day, done wire.SegmentRange) (wire.Totals, error) {
	if _, known := ch.cursor.Stored[day]; known {
		return wire.Totals{}, nil
	}
	entry, err := c.loadEntry(ctx, c.ledgerCell(ch.instrument, day))
	if err != nil || ch.channel == wire.UnknownChannel {
		return entry.Incarnations[ch.channel], err
	}
	is, err := c.inSegments(ctx, ch, day, done)
	if err != nil {
		return wire.Totals{}, fmt.Errorf("count the datagrams of %s of channel %s of instrument %s: %w", day, ch.channel, ch.instrument, err)
	}
	return greater(entry.Incarnations[ch.channel], is), nil
}

// greater returns the greater of each count.
func greater(a, b wire.Totals) wire.Totals {
	if b.Datagrams > a.Datagrams {
		a.Datagrams, a.DatagramBytes = b.Datagrams, b.DatagramBytes
	}
	if len(b.Dropped) == 0 {
		return a
	}
	dropped := maps.Clone(b.Dropped)
	for cause, n := range a.Dropped {
		dropped[cause] = max(dropped[cause], n)
	}
	a.Dropped = dropped
	return a
}

// inSegments sums up the segments of a channel's day that are listed, or in the bucket and
// not listed yet, but for the one of a range.
func (c *Cutter) inSegments(ctx context.Context, ch *channel, day wire.Day, but wire.SegmentRange) (sum wire.Totals, err error) {
	type place struct {
		epoch string
		first uint64
	}
	counted := map[place]bool{{but.Epoch, but.First}: true}
	add := func(s *wire.SegmentRange) {
		if at := (place{s.Epoch, s.First}); !counted[at] {
			counted[at] = true
			sum = sum.Plus(s.Totals())
		}
	}
	for s, err := range c.listedSegments(ctx, ch, day) {
		if err != nil {
			return sum, err
		}
		add(s)
	}
	for info, err := range c.cfg.Store.List(ctx, wire.SegmentPrefix(c.cfg.Site, ch.instrument, ch.channel, day), "") {
		if err != nil {
			return sum, err
		}
		if s, ok := wire.ParseSegmentKey(info.Key); !ok || counted[place{s.Epoch, s.First}] {
			continue
		}
		n, err := c.readable(ctx, info.Key)
		if err != nil {
			return sum, err
		}
		if n != nil {
			add(n.Segment)
		}
	}
	return sum, nil
}

// listedSegments yields the segments of a channel that a day's manifest lists, some twice. If the manifest cannot be
// read, the day's changes take its place: segments that they do not have are in the bucket.
func (c *Cutter) listedSegments(ctx context.Context, ch *channel, day wire.Day) iter.Seq2[*wire.SegmentRange, error] {
	return func(yield func(*wire.SegmentRange, error) bool) {
		more := true
		each := func(r wire.Record) {
			if more && r.Segment != nil && r.Segment.Channel == ch.channel {
				more = yield(r.Segment, nil)
			}
		}
		var err error
		for r, failed := range manifest.Records(ctx, c.cfg.Store, c.cfg.Site, ch.instrument, day) {
			if err = failed; err == nil {
				each(r)
			}
			if !more {
				return
			}
		}
		if errors.Is(err, wire.ErrMalformed) {
			c.cfg.Log.Error("cannot read a manifest: segments are counted without it until substorm archive rebuild has recreated it",
				"instrument", ch.instrument, "day", day, "error", err)
			_, err = manifest.WalkChanges(ctx, c.cfg.Store, c.cfg.Site, ch.instrument, day, each)
		}
		if err != nil && more {
			yield(nil, err)
		}
	}
}

// dayCell is the entry of an instrument's day.
type dayCell struct {
	*stream.Cell
	key string
}

func (c *Cutter) ledgerCell(instrument string, day wire.Day) dayCell {
	key := wire.LedgerKey(instrument, day, wire.StepStored, wire.ArchivistWriter)
	return dayCell{stream.NewCell(c.cfg.JetStream, c.ledger, key), key}
}

func (c *Cutter) loadEntry(ctx context.Context, cell dayCell) (entry wire.LedgerEntry, err error) {
	var data []byte
	err = c.retryRefused(ctx, requestLedger, "key", cell.key, func() (err error) {
		data, err = cell.Load(ctx)
		return err
	})
	if err != nil || data == nil {
		return wire.LedgerEntry{}, err
	}
	if entry, err = wire.Decode[wire.LedgerEntry](data); err != nil {
		return wire.LedgerEntry{}, fmt.Errorf("read %s of the ledger: %w", cell.key, err)
	}
	return entry, nil
}

// saveLedger writes the totals of a channel's days where the ledger has others.
func (c *Cutter) saveLedger(ctx context.Context, ch *channel) error {
	for day, totals := range ch.cursor.Stored {
		if err := c.saveDay(ctx, ch, day, totals); err != nil {
			return err
		}
	}
	return nil
}

// saveDay writes the totals of a channel's day into the entry that it shares with the instrument's other channels. The
// entry may be read from a replica that is behind: then the write is refused, and both are tried again.
func (c *Cutter) saveDay(ctx context.Context, ch *channel, day wire.Day, totals wire.Totals) error {
	cell := c.ledgerCell(ch.instrument, day)
	for {
		entry, err := c.loadEntry(ctx, cell)
		if err != nil {
			return err
		}
		if was := entry.Incarnations[ch.channel]; was.Datagrams == totals.Datagrams && was.DatagramBytes == totals.DatagramBytes &&
			maps.Equal(was.Dropped, totals.Dropped) {
			return nil
		}
		if entry.Incarnations == nil {
			entry.Incarnations = make(map[string]wire.Totals)
		}
		entry.Incarnations[ch.channel] = totals
		value, err := wire.Encode(entry)
		if err != nil {
			return err
		}
		err = c.retryRefused(ctx, requestLedger, "key", cell.key, func() error { return cell.Store(ctx, value) })
		if !errors.Is(err, stream.ErrConflict) {
			return err
		}
		if !retry.Sleep(ctx, insistPause) {
			return ctx.Err()
		}
	}
}
