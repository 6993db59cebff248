// SPDX-License-Identifier: Apache-2.0

package session

import (
	"iter"
	"time"

	"github.com/substorm/substorm/feed-server/flow"
	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/internal/wire"
)

// conflateBounds is what waits for one connection at most, one item of each
// source. Connections share the items' memory.
var conflateBounds = flow.Bounds{Items: 4096, Bytes: 4 << 20}

// The reasons for which messages are dropped, beside the reasons of gaps.
const (
	DroppedReplaced = "Replaced"
	DroppedSampled  = "Sampled"
)

// pending is what a flow.Item holds: a notice, or one datagram.
type pending struct {
	message   *hub.Message
	epoch     string
	telemetry bool // whose place in the token it is
}

// conflater gives the newest of each instrument and channel: of all that waits, or
// of each interval.
type conflater struct {
	latest *flow.Latest
	sample *flow.Sample // nil: mode Latest
	// replaced and sampled items that were reported to the meter.
	replaced, sampled uint64
	backfill          backfill
}

func newConflater(interval time.Duration, bounds flow.Bounds) (*conflater, error) {
	latest, err := flow.NewLatest(bounds)
	if err != nil {
		return nil, err
	}
	c := &conflater{latest: latest}
	if interval > 0 {
		c.sample, err = flow.NewSample(interval, latest)
	}
	return c, err
}

// offer takes what a source brought.
func (c *conflater) offer(src *source, epoch string, messages []*hub.Message, now time.Time) {
	for _, m := range messages {
		for part, also := range c.parts(m) {
			at := part.Time()
			if part.Kind == wire.RecordNotice {
				at = part.When()
				c.backfill.noteOffered(part, at)
			} else if d := part.Datagrams(); len(d) > 0 {
				at = d[0].ReceivedAt
			}
			i := flow.Item{Key: m.Subject, At: at, Size: len(part.Data), Value: pending{part, epoch, src.telemetry}, Also: also}
			if c.sample != nil {
				c.sample.Offer(i, now)
			} else {
				c.latest.Offer(i)
			}
		}
	}
}

// parts yields the newest datagrams of a message, one for each interval, and how
// many others each stands for. A notice, and what cannot be read, is one whole.
func (c *conflater) parts(m *hub.Message) iter.Seq2[*hub.Message, uint64] {
	return func(yield func(*hub.Message, uint64) bool) {
		if m.Kind != wire.RecordTelemetry {
			yield(m, 0)
			return
		}
		newest, ok := m.Newest()
		if !ok {
			yield(m, 0)
			return
		}
		all := m.Datagrams()
		if c.sample == nil {
			yield(m.Datagram(newest), uint64(len(all)-1))
			return
		}
		for begin := 0; begin < len(all); {
			newest, end := begin, begin+1
			for end < len(all) && c.sample.Interval(all[end].ReceivedAt) == c.sample.Interval(all[begin].ReceivedAt) {
				if !all[end].ReceivedAt.Before(all[newest].ReceivedAt) {
					newest = end
				}
				end++
			}
			if !yield(m.Datagram(newest), uint64(end-begin-1)) {
				return
			}
			begin = end
		}
	}
}

// take returns what is due, of at most so many bytes, as entries without a place, and when more
// is due by the clock alone. Items that are no longer wanted are dropped.
func (c *conflater) take(into []Entry, most int, now time.Time, wanted func(*hub.Message) bool) (entries []Entry, next time.Time) {
	if c.sample != nil {
		next = c.sample.Due(now)
	}
	for {
		due := c.latest.Take(most)
		before := len(into)
		for _, k := range due {
			m := k.Value.(pending).message
			if !wanted(m) || !c.backfill.gives(m, &k) {
				continue
			}
			into = append(into, Entry{Message: m, Replaced: k.Replaced, Sampled: k.Sampled})
		}
		if len(due) == 0 || len(into) > before {
			return into, next
		}
	}
}

// reportDropped reports to the meter what was replaced and sampled since its last call.
func (c *conflater) reportDropped(m Meter) {
	if all := c.latest.Replaced() + c.backfill.replaced; all > c.replaced {
		m.Dropped(DroppedReplaced, all-c.replaced)
		c.replaced = all
	}
	if c.sample == nil {
		return
	}
	if all := c.sample.Sampled(); all > c.sampled {
		m.Dropped(DroppedSampled, all-c.sampled)
		c.sampled = all
	}
}

// place returns the place before all that waits: at reached or before it.
func (c *conflater) place(reached wire.FeedToken) wire.FeedToken {
	lower := func(k flow.Kept) {
		p := k.Value.(pending)
		place := &reached.Notices
		if p.telemetry {
			place = &reached.Telemetry
		}
		at := placeBefore(p.epoch, p.message.Sequence, firstOf(p.message))
		// If the stream was recreated since, waiting messages of the old one are before all of the new
		// one.
		if at.Epoch != place.Epoch || at.Sequence < place.Sequence || at.Sequence == place.Sequence && at.Index < place.Index {
			*place = at
		}
	}
	for k := range c.latest.All() {
		lower(k)
	}
	if c.sample != nil {
		for k := range c.sample.All() {
			lower(k)
		}
	}
	return reached
}

// firstOf is the index of the first datagram that a message or a part of one holds.
func firstOf(m *hub.Message) uint32 {
	if m.Part {
		return m.Last
	}
	return 0
}

func (c *conflater) lag() hub.Lag {
	items, bytes := c.latest.Waiting()
	l := hub.Lag{Messages: uint64(items), Bytes: int64(bytes)}
	for k := range c.latest.All() {
		l.Since = k.Value.(pending).message.At
		break // it waits longest
	}
	return l
}
