// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"fmt"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// resumeBehind makes a cursor for a channel that has none: it begins behind the newest
// segment of this stream that the archive has of the channel, so that nothing is cut twice
// where the cursors were lost. Of a new channel there is none, and it begins at the first
// message.
func (c *Cutter) resumeBehind(ctx context.Context, ch *channel) error {
	last, err := c.newestStored(ctx, ch)
	if err != nil {
		return fmt.Errorf("look for the newest segment of channel %s of instrument %s: %w", ch.channel, ch.instrument, err)
	}
	listed, err := c.newestListed(ctx, ch)
	if err != nil {
		return fmt.Errorf("look for the newest listed segment of channel %s of instrument %s: %w", ch.channel, ch.instrument, err)
	}
	ch.cursor.Epoch, ch.cursor.Next = c.epoch, max(last, listed)+1
	if ch.cursor.Next > 1 {
		c.cfg.Log.Warn("the cursor of a channel was lost: its segments go on behind the newest one in the archive",
			"instrument", ch.instrument, "channel", ch.channel, "next", ch.cursor.Next)
	}
	return nil
}

// newestStored returns the last message of this stream that is in a segment in the bucket,
// 0 where none is. A segment that was not announced is announced by the sweep.
func (c *Cutter) newestStored(ctx context.Context, ch *channel) (last uint64, err error) {
	prefix := wire.SegmentsPrefix(c.cfg.Site, ch.instrument) + ch.channel + "/"
	for info, err := range c.cfg.Store.List(ctx, prefix, "") {
		if err != nil {
			return 0, err
		}
		if s, ok := wire.ParseSegmentKey(info.Key); ok && s.Epoch == c.epoch {
			last = max(last, s.Last)
		}
	}
	return last, nil
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
