// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// cut makes a segment of a channel's open span. The range is written down first, then comes the object, then its
// notice, then the cursor, and last the ledger; a kill anywhere in between is made good by finish, in this process or
// the next. Datagrams whose channel no subject names are only counted: once, by the one write to the cursor.
func (c *Cutter) cut(ctx context.Context, ch *channel) error {
	planned, day := ch.planned(c.epoch), ch.open.day
	if ch.channel == wire.UnknownChannel {
		ch.open = nil
		return c.settle(ctx, ch, *planned, day, dropped(wire.CauseUndecodable, planned.Datagrams))
	}
	ch.cursor.Epoch, ch.cursor.Planned, ch.cursor.PlannedDay = c.epoch, planned, day
	if err := c.saveCursor(ctx, ch); err != nil {
		return err
	}
	ch.open = nil
	return c.finish(ctx, ch)
}

// finish makes and announces the planned segment.
func (c *Cutter) finish(ctx context.Context, ch *channel) error {
	planned, day := *ch.cursor.Planned, ch.cursor.PlannedDay
	notice, totals, err := c.object(ctx, ch, planned, day)
	if err != nil {
		return err
	}
	if notice != nil {
		if err := c.announce(ctx, *notice); err != nil {
			return err
		}
	}
	return c.settle(ctx, ch, planned, day, totals)
}

// settle counts what became of a range and moves the cursor behind it, in one
// write, and then shows the totals in the ledger.
func (c *Cutter) settle(ctx context.Context, ch *channel, done wire.SegmentRange, day wire.Day, totals wire.Totals) error {
	if totals.Datagrams > 0 || len(totals.Dropped) > 0 {
		before, err := c.totalsBefore(ctx, ch, day, done)
		if err != nil {
			return err
		}
		ch.count(day, totals, before, time.Now())
	}
	ch.cursor.Planned, ch.cursor.PlannedDay = nil, ""
	ch.cursor.Epoch, ch.cursor.Next = done.Epoch, done.Last+1
	if err := c.saveCursor(ctx, ch); err != nil {
		return err
	}
	c.cfg.Metrics.lost(totals.Dropped)
	return c.saveLedger(ctx, ch)
}

// dropped are the totals of datagrams that are in no segment; of none the zero value.
func dropped(cause wire.Cause, datagrams uint64) wire.Totals {
	if datagrams == 0 {
		return wire.Totals{}
	}
	return wire.Totals{Dropped: map[wire.Cause]uint64{cause: datagrams}}
}

// object returns the notice of the planned segment, which is in the store then,
// or nil where none of its datagrams can be had; and what the range adds to its
// day's totals, which is the same however often it is cut.
func (c *Cutter) object(ctx context.Context, ch *channel, planned wire.SegmentRange, day wire.Day) (*wire.Notice, wire.Totals, error) {
	key := wire.SegmentKey(c.cfg.Site, ch.instrument, ch.channel, day, planned.Epoch, planned.First, planned.Last)
	// The archivist before us may have stored it. If the stream is gone, that is all there is.
	notice, totals, err := c.readStored(ctx, key)
	var metadataLost error
	if errors.Is(err, wire.ErrMalformed) {
		metadataLost, err = fmt.Errorf("%w: restore the object with its metadata from a backup; without one, move it away, and what the stream does not have of it is counted as dropped", err), nil
	}
	if notice != nil || err != nil {
		if err == nil && planned.Epoch == c.epoch {
			err = c.remember(ctx, ch, planned)
		}
		return notice, totals, err
	}
	if planned.Epoch != c.epoch {
		if metadataLost != nil {
			return nil, wire.Totals{}, metadataLost
		}
		c.cfg.Log.Error("telemetry that was not yet in a segment is gone with its stream", "instrument", ch.instrument,
			"channel", ch.channel, "epoch", planned.Epoch, "first", planned.First, "last", planned.Last, "datagrams", planned.Datagrams)
		return nil, dropped(wire.CauseStreamGone, planned.Datagrams), nil
	}
	b, err := c.buildWhole(ctx, ch, planned, day)
	if err != nil {
		return nil, wire.Totals{}, err
	}
	defer b.remove()
	ch.published = b.published
	if metadataLost != nil { // it is stored once more with its metadata, if the stream gives the same bytes
		if same, err := c.isStored(ctx, key, b.digest); err != nil || !same || b.segment.Datagrams == 0 {
			return nil, wire.Totals{}, cmp.Or(err, metadataLost)
		}
	}
	if b.segment.Datagrams == 0 && uint64(b.duplicates) == b.readMessages && b.segment.Deleted == 0 {
		c.cfg.Metrics.duplicates.Add(float64(b.duplicates))
		return nil, wire.Totals{}, nil
	}
	if b.segment.Datagrams == 0 {
		c.cfg.Log.Error("the stream has no usable datagram of a planned segment", "instrument", ch.instrument,
			"channel", ch.channel, "first", planned.First, "last", planned.Last, "undecodable", b.segment.Undecodable,
			"deleted", b.segment.Deleted)
		return nil, b.segment.Totals(), nil
	}
	n := b.notice(c.cfg.Site, ch.instrument, key, day, c.cfg.LateAfter(ch.instrument))
	metadata, err := wire.ObjectMetadata(n)
	if err != nil {
		return nil, wire.Totals{}, err
	}
	if err := c.cfg.Lease.Check(); err != nil {
		return nil, wire.Totals{}, err
	}
	err = c.cfg.Store.Put(ctx, key, b.file, b.size, objectstore.PutOptions{
		ContentType: wire.MediaTypeSegment, Metadata: metadata, Digest: b.digest, CreateOnly: metadataLost == nil})
	if errors.Is(err, objectstore.ErrExists) {
		return c.readStored(ctx, key)
	}
	if err != nil {
		return nil, wire.Totals{}, err
	}
	c.cfg.Metrics.cut(ch.instrument, b)
	return &n, n.Segment.Totals(), nil
}

// readStored returns the notice of a segment that is in the store, and what its
// range adds to its day's totals; nil for none.
func (c *Cutter) readStored(ctx context.Context, key string) (*wire.Notice, wire.Totals, error) {
	info, err := c.cfg.Store.Head(ctx, key)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, wire.Totals{}, nil
	}
	if err != nil {
		return nil, wire.Totals{}, err
	}
	n, err := wire.NoticeFromMetadata(key, info.Metadata)
	if err != nil {
		return nil, wire.Totals{}, err
	}
	if n.Segment == nil {
		return nil, wire.Totals{}, fmt.Errorf("object %s has no metadata of a segment: %w", key, wire.ErrMalformed)
	}
	return &n, n.Segment.Totals(), nil
}

// isStored says whether an object in the store has a digest.
func (c *Cutter) isStored(ctx context.Context, key string, digest wire.Digest) (bool, error) {
	body, _, err := c.cfg.Store.Get(ctx, key, objectstore.All)
	if err != nil {
		return false, err
	}
	defer func() { _ = body.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, body); err != nil {
		return false, err
	}
	return wire.Digest(hash.Sum(nil)) == digest, nil
}

// readable is existing for segments that others cut: one whose metadata is lost, as in a copy without it, keeps no channel from going on.
func (c *Cutter) readable(ctx context.Context, key string) (*wire.Notice, error) {
	n, _, err := c.readStored(ctx, key)
	if errors.Is(err, wire.ErrMalformed) || errors.Is(err, wire.ErrNewerFormat) {
		c.cfg.Log.Error("a segment in the bucket does not say what it holds, and is not counted: if no manifest lists it, restore it with its metadata from a backup",
			"object", key, "error", err)
		return nil, nil
	}
	return n, err
}

// announce publishes the notice of a segment that is in the store.
func (c *Cutter) announce(ctx context.Context, n wire.Notice) error {
	m, err := stream.NoticeMessage(n, c.cfg.Pod)
	if err != nil {
		return err
	}
	return c.retryRefused(ctx, requestNotice, "object", n.Key, func() error {
		if _, err := c.cfg.JetStream.PublishMsg(ctx, m); err != nil {
			return fmt.Errorf("publish the notice %s: %w", n.MessageID(), err)
		}
		return nil
	})
}
