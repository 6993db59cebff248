// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/pcapng"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// ScratchPattern matches the scratch files of segments.
const ScratchPattern = "segment-*." + wire.SegmentExtension

// built is a segment in a scratch file.
type built struct {
	file    *os.File
	size    int64
	digest  wire.Digest
	segment wire.SegmentRange
	// from and to are the least and greatest receive time of its datagrams.
	from, to   time.Time
	duplicates int
	// readMessages of the range came from the stream, including duplicates and unreadable messages,
	// with so many datagrams as their headers say.
	readMessages, readDatagrams uint64
	// published is what the channel remembers with them.
	published *published
	// observer finds when what is in them was observed; nil where nothing says so.
	observer *decode.Observer
}

func (b *built) remove() {
	b.file.Close()
	os.Remove(b.file.Name())
}

// build reads the messages of a range and writes their datagrams in the order of
// the stream. Memory: a batch of messages. The scratch file is no part of any promise
// and is not synced. Errors: errIncomplete, where messages of the plan did not come and
// are still in the stream.
func (c *Cutter) build(ctx context.Context, ch *channel, planned wire.SegmentRange, day wire.Day) (_ *built, err error) {
	file, err := os.CreateTemp(c.cfg.ScratchDir, ScratchPattern)
	if err != nil {
		return nil, fmt.Errorf("scratch file for a segment: %w", err)
	}
	b := &built{file: file, published: ch.published.clone(), segment: wire.SegmentRange{Channel: planned.Channel, Epoch: planned.Epoch, First: planned.First, Last: planned.Last}}
	defer func() {
		if err != nil {
			b.remove()
		}
	}()
	if c.cfg.Channels != nil {
		b.observer = decode.NewObserver(c.cfg.Channels(ch.instrument), ch.channel)
	}
	sum := sha256.New()
	out := bufio.NewWriterSize(&countingWriter{w: io.MultiWriter(file, sum), n: &b.size}, 256<<10)
	comment := fmt.Sprintf("Substorm segment: site %s, instrument %s, channel %s, day %s, messages %d to %d of stream %s epoch %s",
		c.cfg.Site, ch.instrument, ch.channel, day, planned.First, planned.Last, wire.ObservationStream(c.cfg.Site), planned.Epoch)
	packets, err := pcapng.NewWriter(out, comment)
	if err != nil {
		return nil, fmt.Errorf("segment: %w", err)
	}
	if err := c.copyMessages(ctx, ch, b, packets); err != nil {
		return nil, err
	}
	if err := c.compare(ctx, ch, planned, b); err != nil {
		return nil, err
	}
	if err := packets.Flush(); err != nil {
		return nil, fmt.Errorf("segment: %w", err)
	}
	if err := out.Flush(); err != nil {
		return nil, fmt.Errorf("segment: %w", err)
	}
	b.digest = digestOf(sum)
	return b, nil
}

func digestOf(h hash.Hash) wire.Digest { return wire.Digest(h.Sum(nil)) }

// copyMessages writes the datagrams of a range. A message whose ce-id was there before, in this
// segment or an earlier one, is a duplicate: published again after JetStream had forgotten the
// first.
func (c *Cutter) copyMessages(ctx context.Context, ch *channel, b *built, packets *pcapng.Writer) error {
	return c.eachMessage(ctx, ch, b.segment, false, func(m stream.Message) error {
		datagrams, _, _ := announced(m)
		b.readMessages++
		b.readDatagrams += datagrams
		if b.published.isDuplicate(m) {
			b.duplicates++
			return nil
		}
		return c.copyDatagrams(m, b, packets)
	})
}

// eachMessage calls f for each message of a range that the stream still has.
func (c *Cutter) eachMessage(ctx context.Context, ch *channel, of wire.SegmentRange, headersOnly bool, f func(stream.Message) error) error {
	r := stream.NewReader(c.cfg.JetStream, stream.ReaderConfig{
		Stream: wire.ObservationStream(c.cfg.Site), Epoch: of.Epoch, Start: of.First, HeadersOnly: headersOnly,
		Subject: wire.ObservationSubject(c.cfg.Site, ch.instrument, ch.channel)})
	for {
		messages, err := r.Next(ctx, cutBatch, readWait)
		if err != nil {
			return err
		}
		for _, m := range messages {
			if m.Sequence > of.Last {
				return nil
			}
			if err := f(m); err != nil {
				return err
			}
		}
		if next, end := r.Position(); end || next > of.Last {
			return nil
		}
	}
}

// copyDatagrams writes one message's datagrams. Those that were announced and
// cannot be written are counted as undecodable.
func (c *Cutter) copyDatagrams(m stream.Message, b *built, packets *pcapng.Writer) error {
	var written uint64
	var malformed error
	for d, err := range wire.Datagrams(m.Data) { // what cannot be read is the last
		if err == nil {
			err = packets.Write(d)
		}
		if errors.Is(err, wire.ErrMalformed) {
			malformed = err
			continue
		}
		if err != nil {
			return fmt.Errorf("telemetry message %d on %s: %w", m.Sequence, m.Subject, err)
		}
		written++
		b.add(d)
	}
	datagrams, _, told := announced(m)
	switch {
	case told && datagrams > written:
		datagrams -= written
	case told || malformed == nil:
		datagrams = 0
	}
	if datagrams > 0 && malformed == nil {
		malformed = fmt.Errorf("%d datagrams, its header says %d: %w", written, datagrams+written, wire.ErrMalformed)
	}
	if malformed != nil {
		b.segment.Undecodable += datagrams
		c.refuse(m, datagrams, malformed)
		return nil
	}
	b.segment.Messages++
	return nil
}

// add counts a datagram that was written.
func (b *built) add(d wire.Datagram) {
	b.segment.Datagrams++
	b.segment.DatagramBytes += uint64(len(d.Payload))
	if b.from.IsZero() || d.ReceivedAt.Before(b.from) {
		b.from = d.ReceivedAt
	}
	if d.ReceivedAt.After(b.to) {
		b.to = d.ReceivedAt
	}
	b.observer.Add(d.Payload, d.ReceivedAt)
}

// notice describes the segment by its contents alone, and by what the instrument declares of them,
// so that it is the same whichever archivist cuts it.
func (b *built) notice(site, instrument, key string, day wire.Day, lateAfter time.Duration) wire.Notice {
	received := b.to
	if start, err := day.Start(); err == nil { // a clock that jumped must not move it to another day's manifest
		end := start.Add(24*time.Hour - time.Nanosecond)
		received = clamp(received, start, end)
	}
	segment := b.segment
	from, to, source := b.from, b.to, wire.TimeSourceReceived
	if first, last, ok := b.observer.Span(); ok {
		// Each datagram was judged by its own receipt time; the segment's is the last of them.
		least, greatest := wire.BelievedObserved(received)
		from, to, source = clamp(first, least, greatest), clamp(last, least, greatest), wire.TimeSourcePayload
	}
	r := wire.Record{
		ID: key, Key: key, Size: b.size, Digest: b.digest, MediaType: wire.MediaTypeSegment, State: wire.StateCurrent,
		ObservedFrom: &from, ObservedTo: &to, Doubted: b.observer.Doubted(), ReceivedAt: received, TimeSource: source,
		Completeness: wire.CompletenessVerified, Gateway: wire.ArchivistWriter, Incarnation: segment.Epoch, Segment: &segment,
	}
	r.Backfill = r.IsLate(received, lateAfter) // not where any of it came in time
	return wire.Notice{Site: site, Instrument: instrument, Record: r}
}

func clamp(t, low, high time.Time) time.Time {
	if t.Before(low) {
		return low
	}
	if t.After(high) {
		return high
	}
	return t
}

type countingWriter struct {
	w io.Writer
	n *int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	*c.n += int64(n)
	return n, err
}
