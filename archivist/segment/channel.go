// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/substorm/substorm/internal/pcapng"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// maxMessages bounds a segment's messages. The ids of those that are no gateway's are
// held while it is cut: at some 40 bytes each it is 5 MiB.
const maxMessages = 1 << 17

// dayEndGrace is how long after a day's end its last segment waits for messages
// that are still on their way. Later ones make a segment of their own.
const dayEndGrace = 10 * time.Second

// keepStored is how long the totals of a day stay in the cursor.
const keepStored = 3 * 24 * time.Hour

type channelKey struct{ instrument, channel string }

// channel is one channel's way from the stream into segments.
type channel struct {
	channelKey
	cell   *stream.Cell
	cursor wire.SegmentCursor
	// published are the messages that are in segments.
	published *published
	// open is what was scanned and not yet cut; nil for nothing.
	open *span
}

// newChannel returns a channel in its initial state; its cell is the cell of its cursor.
func newChannel(key channelKey, cell *stream.Cell) *channel {
	return &channel{channelKey: key, cell: cell, published: publishedOf(&wire.SegmentCursor{})}
}

// span is a run of a channel's messages of one day.
type span struct {
	first, last uint64
	day         wire.Day
	// since is when the stream took the first message.
	since    time.Time
	messages int
	size     int64 // about, in the segment
	// datagrams and datagramBytes as the headers say.
	datagrams, datagramBytes uint64
}

// scanned is what the headers of a telemetry message say.
type scanned struct {
	sequence uint64
	at       time.Time
	day      wire.Day
	size     int64
	// datagrams and datagramBytes as the headers say.
	datagrams, datagramBytes uint64
}

// scan reads a message's headers. Values that they do not give are taken from the stream; a format that they do not
// state explicitly is taken from the message when it is cut. Errors: wire.ErrNewerFormat.
func scan(m stream.Message) (scanned, error) {
	if n, err := strconv.Atoi(m.Header.Get(wire.HeaderFormat)); err == nil {
		if err := wire.CheckFormat(n); errors.Is(err, wire.ErrNewerFormat) {
			return scanned{}, err
		}
	}
	s := scanned{sequence: m.Sequence, at: m.At, day: wire.DayOf(m.At), size: wire.MaxTelemetrySize}
	if t, err := time.Parse(time.RFC3339Nano, m.Header.Get(wire.HeaderTime)); err == nil {
		s.day = wire.DayOf(t)
	}
	var told bool
	if s.datagrams, s.datagramBytes, told = announced(m); told {
		s.size = int64(s.datagrams*pcapng.PerPacket + s.datagramBytes)
	}
	return s, nil
}

// announced returns what a message's headers say of its datagrams, which is what its gateway
// counted as announced. A message without these headers has one, as far as is known.
func announced(m stream.Message) (datagrams, bytes uint64, told bool) {
	datagrams, err1 := strconv.ParseUint(m.Header.Get(wire.HeaderDatagrams), 10, 31)
	bytes, err2 := strconv.ParseUint(m.Header.Get(wire.HeaderDatagramBytes), 10, 31)
	if err1 != nil || err2 != nil {
		return 1, 0, false
	}
	return datagrams, bytes, true
}

// fits says whether a message may join the span.
func (s *span) fits(m scanned, size int64) bool {
	return s.day == m.day && s.size+m.size <= size && s.messages < maxMessages
}

// extend adds a message to the channel's open span.
func (c *channel) extend(m scanned) {
	if c.open == nil {
		c.open = &span{first: m.sequence, day: m.day, since: m.at}
	}
	c.open.last = m.sequence
	c.open.messages++
	c.open.size += m.size
	c.open.datagrams += m.datagrams
	c.open.datagramBytes += m.datagramBytes
}

// due says whether the open span must be cut now.
func (c *channel) due(now time.Time, age time.Duration) bool {
	if c.open == nil {
		return false
	}
	if now.Sub(c.open.since) >= age {
		return true
	}
	start, err := c.open.day.Start()
	return err == nil && now.After(start.Add(24*time.Hour+dayEndGrace))
}

// first returns the first sequence that is not archived, and false where the
// channel has none.
func (c *channel) first() (uint64, bool) {
	switch {
	case c.cursor.Planned != nil:
		return c.cursor.Planned.First, true
	case c.open != nil:
		return c.open.first, true
	default:
		return 0, false
	}
}

// planned returns the range of the open span.
func (c *channel) planned(epoch string) *wire.SegmentRange {
	return &wire.SegmentRange{Channel: c.channel, Epoch: epoch, First: c.open.first, Last: c.open.last,
		Messages: uint64(c.open.messages), Datagrams: c.open.datagrams, DatagramBytes: c.open.datagramBytes}
}

// count adds what a range held to its day's totals, and forgets days that are
// long over.
func (c *channel) count(day wire.Day, totals wire.Totals, before wire.Totals, now time.Time) {
	stored := make(map[wire.Day]wire.Totals, len(c.cursor.Stored)+1)
	oldest := wire.DayOf(now.Add(-keepStored))
	for d, t := range c.cursor.Stored {
		if d >= oldest {
			stored[d] = t
		}
	}
	if t, ok := stored[day]; ok {
		before = t
	}
	stored[day] = before.Plus(totals)
	c.cursor.Stored = stored
}

// sortedChannels makes the order of work the same in every run.
func sortedChannels(all map[channelKey]*channel) []*channel {
	return slices.SortedFunc(maps.Values(all), func(a, b *channel) int {
		return slices.Compare([]string{a.instrument, a.channel}, []string{b.instrument, b.channel})
	})
}
