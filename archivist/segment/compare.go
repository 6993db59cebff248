// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"errors"
	"fmt"

	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// errIncomplete: messages of a planned range did not come, and are still in the stream.
var errIncomplete = errors.New("messages of a planned segment are in the stream, but were not delivered")

// buildWhole builds a segment, again and again as long as messages of it are in the stream
// and do not come. Errors: as build.
func (c *Cutter) buildWhole(ctx context.Context, ch *channel, planned wire.SegmentRange, day wire.Day) (*built, error) {
	for {
		if err := c.cfg.Lease.Check(); err != nil {
			return nil, err
		}
		b, err := c.build(ctx, ch, planned, day)
		if !errors.Is(err, errIncomplete) {
			return b, err
		}
		c.cfg.Metrics.refused.WithLabelValues(requestMessages).Inc()
		c.cfg.Log.Warn("a segment waits for telemetry that the stream has, but does not deliver: check the JetStream servers",
			"instrument", ch.instrument, "channel", ch.channel, "wait", insistPause, "error", err)
		if !retry.Sleep(ctx, insistPause) {
			return nil, ctx.Err()
		}
	}
}

// compare compares what was read of a planned range with the plan. Missing messages were deleted from the stream if its
// leader has no more than was read, and are counted as such. Errors: errIncomplete.
func (c *Cutter) compare(ctx context.Context, ch *channel, planned wire.SegmentRange, b *built) error {
	if b.readMessages >= planned.Messages {
		return nil
	}
	there, err := c.count(ctx, ch, planned, b.readMessages+1)
	if err != nil {
		return err
	}
	if there > b.readMessages {
		return fmt.Errorf("%d of %d messages from %d to %d were read: %w", b.readMessages, planned.Messages, planned.First, planned.Last, errIncomplete)
	}
	b.segment.Deleted = planned.Datagrams - min(planned.Datagrams, b.readDatagrams)
	c.cfg.Log.Error("datagrams will be in no segment: their messages were deleted from the stream", "cause", wire.CauseMessageDeleted,
		"datagrams", b.segment.Deleted, "messages", planned.Messages-b.readMessages, "instrument", ch.instrument, "channel", ch.channel,
		"stream", wire.ObservationStream(c.cfg.Site), "first", planned.First, "last", planned.Last)
	return nil
}

// count returns how many messages of a range the stream's leader has, and most where there
// are more. It asks for one after the other: this is for the rare case that some are missing.
func (c *Cutter) count(ctx context.Context, ch *channel, of wire.SegmentRange, most uint64) (n uint64, err error) {
	subject := wire.ObservationSubject(c.cfg.Site, ch.instrument, ch.channel)
	for next := of.First; n < most; n++ {
		at, err := stream.NextOf(ctx, c.cfg.JetStream, wire.ObservationStream(c.cfg.Site), subject, next)
		if err != nil || at == 0 || at > of.Last {
			return n, err
		}
		next = at + 1
	}
	return n, nil
}

// remember notes the messages of a range that is in a segment already.
func (c *Cutter) remember(ctx context.Context, ch *channel, of wire.SegmentRange) error {
	return c.eachMessage(ctx, ch, of, true, func(m stream.Message) error {
		ch.published.isDuplicate(m)
		return nil
	})
}
