// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// cut makes a segment of a channel's open span. The range is written down first,
// then comes the object, then its notice, then the cursor, and last the ledger;
// a kill anywhere in between is made good by finish, in this process or the next.
func (c *Cutter) cut(ctx context.Context, ch *channel) error {
	if err := c.cfg.Lease.Check(); err != nil {
		return err
	}
	ch.cursor.Epoch = c.epoch
	ch.cursor.Planned = &wire.SegmentRange{Channel: ch.channel, Epoch: c.epoch, First: ch.open.first, Last: ch.open.last}
	ch.cursor.PlannedDay = ch.open.day
	if err := ch.save(ctx); err != nil {
		return err
	}
	ch.open = nil
	return c.finish(ctx, ch)
}

// finish makes and announces the planned segment.
func (c *Cutter) finish(ctx context.Context, ch *channel) error {
	planned, day := *ch.cursor.Planned, ch.cursor.PlannedDay
	notice, err := c.object(ctx, ch, planned, day)
	if err != nil {
		return err
	}
	if notice != nil {
		if err := c.announce(ctx, *notice); err != nil {
			return err
		}
	}
	before, err := c.ledgerTotals(ctx, ch, day)
	if err != nil {
		return err
	}
	if err := c.cfg.Lease.Check(); err != nil {
		return err
	}
	if notice != nil {
		s := notice.Segment
		ch.count(day, wire.Totals{Datagrams: s.Datagrams, DatagramBytes: s.DatagramBytes}, before, time.Now())
	}
	ch.cursor.Planned, ch.cursor.PlannedDay = nil, ""
	ch.cursor.Epoch, ch.cursor.Next = planned.Epoch, planned.Last+1
	if err := ch.save(ctx); err != nil {
		return err
	}
	return c.saveLedger(ctx, ch)
}

// object returns the notice of the planned segment, which is in the store then,
// or nil where none of its messages is left.
func (c *Cutter) object(ctx context.Context, ch *channel, planned wire.SegmentRange, day wire.Day) (*wire.Notice, error) {
	key := wire.SegmentKey(c.cfg.Site, ch.instrument, ch.channel, day, planned.Epoch, planned.First, planned.Last)
	// The one before us may have stored it. Where the stream is gone that is all there is.
	notice, err := c.existing(ctx, key)
	if err != nil || notice != nil {
		return notice, err
	}
	if planned.Epoch != c.epoch {
		c.cfg.Metrics.dropped.WithLabelValues(causeStreamGone).Inc()
		c.cfg.Log.Error("telemetry that was not yet in a segment is gone with its stream", "instrument", ch.instrument,
			"channel", ch.channel, "epoch", planned.Epoch, "first", planned.First, "last", planned.Last)
		return nil, nil
	}
	b, err := c.build(ctx, ch, planned, day)
	if err != nil {
		return nil, err
	}
	defer b.remove()
	if b.segment.Datagrams == 0 {
		c.cfg.Log.Error("no message of a planned segment is left in the stream", "instrument", ch.instrument,
			"channel", ch.channel, "first", planned.First, "last", planned.Last)
		return nil, nil
	}
	n := b.notice(c.cfg.Site, ch.instrument, key, day)
	metadata, err := wire.ObjectMetadata(n)
	if err != nil {
		return nil, err
	}
	if err := c.cfg.Lease.Check(); err != nil {
		return nil, err
	}
	err = c.cfg.Store.Put(ctx, key, b.file, b.size, objectstore.PutOptions{
		ContentType: wire.MediaTypeSegment, Metadata: metadata, Digest: b.digest, CreateOnly: true})
	if errors.Is(err, objectstore.ErrExists) {
		return c.existing(ctx, key)
	}
	if err != nil {
		return nil, err
	}
	c.cfg.Metrics.cut(b)
	return &n, nil
}

// existing returns the notice of a segment that is in the store; nil for none.
func (c *Cutter) existing(ctx context.Context, key string) (*wire.Notice, error) {
	info, err := c.cfg.Store.Head(ctx, key)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n, err := wire.NoticeFromMetadata(key, info.Metadata)
	if err == nil && n.Segment == nil {
		err = fmt.Errorf("object %s says nothing of a segment: %w", key, wire.ErrMalformed)
	}
	return &n, err
}

// announce publishes the notice of a segment that is in the store. As long as
// the notice stream refuses it, which is when it is full, the segment stays
// planned and the cutter waits: were that the end of it, it would be the end of
// all that works under the lease, of what makes room in that stream as well.
func (c *Cutter) announce(ctx context.Context, n wire.Notice) error {
	m, err := stream.NoticeMessage(n, c.cfg.Gateway)
	if err != nil {
		return err
	}
	for {
		if err := c.cfg.Lease.Check(); err != nil {
			return err
		}
		_, err := c.cfg.JetStream.PublishMsg(ctx, m)
		if err == nil {
			return nil
		}
		err = fmt.Errorf("publish the notice %s: %w", n.MessageID(), err)
		var refused *jetstream.APIError
		if !errors.As(err, &refused) {
			return err
		}
		c.cfg.Metrics.refused.Inc()
		c.cfg.Log.Warn("a segment cannot be announced now and stays planned", "instrument", n.Instrument,
			"object", n.Key, "wait", announcePause, "error", err)
		select {
		case <-time.After(announcePause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
