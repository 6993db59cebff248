// SPDX-License-Identifier: Apache-2.0

package session

import (
	"time"

	"github.com/substorm/substorm/feed-server/flow"
	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/internal/wire"
)

// conflating is the queue of modes Latest and Sample.
type conflating struct {
	*conflater
	announcement
	gaps gaps
	// overflowed is the number of overflowed items that were reported already.
	overflowed uint64
}

func newConflating(interval time.Duration, urgent bool) (*conflating, error) {
	bounds := conflateBounds
	if urgent {
		bounds = flow.Bounds{Items: urgentMessages, Bytes: urgentBytes}
	}
	c, err := newConflater(interval, bounds)
	return &conflating{conflater: c}, err
}

func (c *conflating) offer(s *Session, src *source, b hub.Batch, now time.Time) {
	c.conflater.offer(src, b.Epoch, b.Messages, now)
	if items, _ := c.latest.Waiting(); items > 0 && s.urgent {
		c.announce(s)
	}
	if all := c.latest.Overflowed(); all > c.overflowed {
		c.gap(s, s.gap(src.stream, wire.Gap{To: s.placeOf(src).String(), Count: all - c.overflowed, Exact: true, Reason: wire.GapOverflow}, now))
		c.overflowed = all
	}
}

func (c *conflating) gap(_ *Session, g wire.Gap) { c.gaps = c.gaps.add(g) }

func (c *conflating) take(s *Session, into []Entry, most int, reached wire.FeedToken, now time.Time) ([]Entry, wire.FeedToken, time.Time) {
	for _, g := range c.gaps {
		into = append(into, s.record(g))
	}
	c.gaps = nil
	entries, next := c.conflater.take(into, most, now, s.wanted)
	c.cancel(s, len(entries) > 0)
	c.reportDropped(s.cfg.Meter)
	place := c.place(reached)
	for i := range entries {
		entries[i].Token = s.place
	}
	if len(entries) > 0 { // the place is reached with the last of them
		entries[len(entries)-1].Token = place
	}
	return entries, place, next
}
