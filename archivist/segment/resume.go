// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"fmt"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// resumeBehind makes a cursor for a channel that has none: it begins behind the newest segment of this stream that
// the archive has of the channel, so that nothing is cut twice if the cursors were lost. A new channel has no
// segment, and it begins at the first message.
func (c *Cutter) resumeBehind(ctx context.Context, ch *channel) error {
	last, key, err := c.newestStored(ctx, ch)
	if err == nil && last > 0 {
		err = c.announceNewest(ctx, ch, key)
	}
	if err != nil {
		return fmt.Errorf("look for the newest segment of channel %s of instrument %s: %w", ch.channel, ch.instrument, err)
	}
	listed, err := c.newestListed(ctx, ch)
	if err != nil {
		return fmt.Errorf("look for the newest listed segment of channel %s of instrument %s: %w", ch.channel, ch.instrument, err)
	}
	ch.cursor.Epoch, ch.cursor.Next = c.epoch, max(last, listed)+1
	if ch.cursor.Next > 1 {
		c.cfg.Log.Warn("the cursor of a channel was lost; continuing after its newest segment in the archive",
			"instrument", ch.instrument, "channel", ch.channel, "next", ch.cursor.Next)
	}
	return nil
}

// newestStored returns the last message of this stream that is in a segment in the bucket, and the segment's key;
// 0 if none is.
func (c *Cutter) newestStored(ctx context.Context, ch *channel) (last uint64, key string, err error) {
	prefix := wire.SegmentsPrefix(c.cfg.Site, ch.instrument) + ch.channel + "/"
	for info, err := range c.cfg.Store.List(ctx, prefix, "") {
		if err != nil {
			return 0, "", err
		}
		if s, ok := wire.ParseSegmentKey(info.Key); ok && s.Epoch == c.epoch && s.Last > last {
			last, key = s.Last, info.Key
		}
	}
	return last, key, nil
}

// announceNewest announces the newest stored segment of a channel if no manifest lists it. The cursor that was lost may have planned it, and the
// archivist that stored it may have ended before the notice. For all others the notice came before the next one was planned.
func (c *Cutter) announceNewest(ctx context.Context, ch *channel, key string) error {
	notice, err := c.readable(ctx, key)
	if err != nil || notice == nil {
		return err
	}
	for s, err := range c.listedSegments(ctx, ch, wire.DayOf(notice.ReceivedAt)) {
		if err != nil {
			return err
		}
		if s.Epoch == notice.Segment.Epoch && s.First == notice.Segment.First && s.Last == notice.Segment.Last {
			return nil
		}
	}
	return c.announce(ctx, *notice)
}

// newestListed is newestStored for what the manifests list, also of segments that were
// retracted and are not in the bucket any more. It reads the days that the stream may
// have messages of, and only where the position of the scan was lost, too.
func (c *Cutter) newestListed(ctx context.Context, ch *channel) (last uint64, err error) {
	if !c.lost || c.since.IsZero() {
		return 0, nil
	}
	for at := c.since.Add(-24 * time.Hour); wire.DayOf(at) <= wire.DayOf(time.Now().Add(24*time.Hour)); at = at.Add(24 * time.Hour) {
		for s, err := range c.listedSegments(ctx, ch, wire.DayOf(at)) {
			if err != nil {
				return 0, err
			}
			if s.Epoch == c.epoch {
				last = max(last, s.Last)
			}
		}
	}
	return last, nil
}
