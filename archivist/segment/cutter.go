// SPDX-License-Identifier: Apache-2.0

// Package segment cuts the telemetry of each channel into segments: objects in
// the archive that hold the datagrams of some minutes, in a format that others
// read. A range is fixed before it is cut, so that a cut which a kill ended is
// repeated as the same object.
package segment

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// scanBatch headers are read at once; cutBatch messages of up to 256 KiB.
	scanBatch = 1000
	cutBatch  = 16
	readWait  = 500 * time.Millisecond
	// saveInterval is how often the position of the scan is saved.
	saveInterval = 30 * time.Second
	listTimeout  = 30 * time.Second
	// unknownAge is how long what names no channel waits to be counted together:
	// no object is made of it.
	unknownAge = time.Second
)

// label is what an instrument's and a channel's name look like.
var label = regexp.MustCompile(`^[a-z0-9-]+$`)

// Config says which archivist cuts, and what.
type Config struct {
	holder.Base

	// Limits of an instrument's segments: the age of the first message at which
	// one is cut, and the size that it does not exceed.
	Limits func(instrument string) (age time.Duration, size int64)
	// Channels that an instrument declares: they say when what is in datagrams was
	// observed. Nil: none does.
	Channels func(instrument string) []wire.ChannelEntry
	// LateAfter is how long after it was observed what arrives is backfill.
	LateAfter func(instrument string) time.Duration
	// ScratchDir holds the segment that is being cut.
	ScratchDir string

	Metrics *Metrics
}

// Cutter cuts for as long as one lease lasts.
type Cutter struct {
	cfg    Config
	epoch  string
	reader *stream.Reader
	// cursors is the key-value bucket, cell the entry of the scan's position.
	cursors  jetstream.KeyValue
	cell     *stream.Cell
	cursor   wire.StreamCursor
	nextSave time.Time
	ledger   jetstream.KeyValue
	// since is when the stream took the first message that it has; lost says that there
	// was no position of the scan: the cursors are new, or lost.
	since time.Time
	lost  bool

	channels map[channelKey]*channel
	archived atomic.Pointer[stream.Position]
}

// New returns a cutter; Run runs it.
func New(cfg Config) *Cutter { return &Cutter{cfg: cfg, channels: make(map[channelKey]*channel)} }

// Archived returns the first place of the telemetry stream that is not yet in
// an announced segment; the zero value before that is known.
func (c *Cutter) Archived() stream.Position {
	if p := c.archived.Load(); p != nil {
		return *p
	}
	return stream.Position{}
}

// Run cuts until ctx ends or something keeps it from going on. Errors:
// wire.ErrNewerFormat, stream.ErrEpoch, stream.ErrConflict, stream.ErrLeaseLost,
// and what keeps JetStream or the store from answering.
func (c *Cutter) Run(ctx context.Context) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	for {
		messages, err := c.reader.Next(ctx, scanBatch, readWait)
		if err != nil {
			return err
		}
		for _, m := range messages {
			if err := c.take(ctx, m); err != nil {
				return err
			}
		}
		for _, ch := range sortedChannels(c.channels) {
			age, _ := c.cfg.Limits(ch.instrument)
			if ch.channel == wire.UnknownChannel {
				age = unknownAge
			}
			if ch.due(time.Now(), age) {
				if err := c.cut(ctx, ch); err != nil {
					return err
				}
			}
		}
		if err := c.advance(ctx); err != nil {
			return err
		}
	}
}

// begin finds where the last cutter stopped, and finishes what it had begun.
func (c *Cutter) begin(ctx context.Context) error {
	site, js := c.cfg.Site, c.cfg.JetStream
	name := wire.ObservationStream(site)
	var err error
	var state jetstream.StreamState
	if c.epoch, state, err = stream.Epoch(ctx, js, name); err != nil {
		return err
	}
	c.since = state.FirstTime
	if c.cursors, err = js.KeyValue(ctx, wire.CursorBucket(site)); err != nil {
		return fmt.Errorf("bucket %s: %w", wire.CursorBucket(site), err)
	}
	if c.ledger, err = js.KeyValue(ctx, wire.LedgerBucket(site)); err != nil {
		return fmt.Errorf("bucket %s: %w", wire.LedgerBucket(site), err)
	}
	if err := c.loadPosition(ctx); err != nil {
		return err
	}
	if err := c.resumeChannels(ctx); err != nil {
		return err
	}
	c.reader = stream.NewReader(js, stream.ReaderConfig{Stream: name, Epoch: c.epoch,
		Subject: wire.ObservationSubjects(site), Start: c.cursor.Next, HeadersOnly: true})
	return nil
}

func (c *Cutter) loadPosition(ctx context.Context) error {
	c.cell = stream.NewCell(c.cfg.JetStream, c.cursors, wire.ObservationCursorKey)
	var data []byte
	err := c.retryRefused(ctx, requestCursor, "key", wire.ObservationCursorKey, func() (err error) {
		data, err = c.cell.Load(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if data != nil {
		if c.cursor, err = wire.Decode[wire.StreamCursor](data); err != nil {
			return fmt.Errorf("cursor %s: %w", wire.ObservationCursorKey, err)
		}
	}
	c.lost = data == nil
	if c.cursor.Epoch != c.epoch {
		if data != nil {
			c.cfg.Log.Warn("the telemetry stream was recreated; cutting it from its beginning",
				"stream", wire.ObservationStream(c.cfg.Site), "epoch", c.epoch, "before", c.cursor.Epoch)
		}
		c.cursor = wire.StreamCursor{Epoch: c.epoch, Next: 1}
	}
	c.archived.Store(&stream.Position{Epoch: c.epoch, Next: c.cursor.Next})
	c.nextSave = time.Now().Add(saveInterval)
	return nil
}

// resumeChannels finishes what is planned in any channel. One that the listing
// misses is resumed at its first message.
func (c *Cutter) resumeChannels(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	keys, err := c.cursors.ListKeysFiltered(call, wire.SegmentCursorKey("*", "*"))
	if err != nil {
		return fmt.Errorf("list the cursors of segments: %w", err)
	}
	var found []channelKey
	for key := range keys.Keys() {
		if p := strings.Split(key, "."); len(p) == 3 {
			found = append(found, channelKey{p[1], p[2]})
		}
	}
	if err := call.Err(); err != nil {
		return fmt.Errorf("list the cursors of segments: %w", err)
	}
	for _, key := range found {
		if _, err := c.channel(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// channel returns a channel that is ready for more: its planned segment is
// finished, its ledger written, and its cursor is one of this stream.
func (c *Cutter) channel(ctx context.Context, key channelKey) (*channel, error) {
	if ch := c.channels[key]; ch != nil {
		return ch, nil
	}
	ch := newChannel(key, stream.NewCell(c.cfg.JetStream, c.cursors, wire.SegmentCursorKey(key.instrument, key.channel)))
	err := c.loadCursor(ctx, ch)
	switch {
	case err != nil:
	case ch.cursor.Epoch == "":
		err = c.resumeBehind(ctx, ch)
	case ch.cursor.Planned != nil:
		err = c.finish(ctx, ch)
	default:
		err = c.saveLedger(ctx, ch)
	}
	if err != nil {
		return nil, err
	}
	if ch.cursor.Epoch != c.epoch {
		ch.cursor.Epoch, ch.cursor.Next = c.epoch, 1
	}
	c.channels[key] = ch
	return ch, nil
}

// take notes a message of the stream; if it does not fit what its channel has open, that is cut
// first.
func (c *Cutter) take(ctx context.Context, m stream.Message) error {
	key, subjectErr := channelOf(m.Subject)
	s, err := scan(m)
	if err != nil {
		return fmt.Errorf("telemetry message %d on %s: %w", m.Sequence, m.Subject, err)
	}
	ch, err := c.channel(ctx, key)
	if err != nil {
		return err
	}
	if s.sequence < ch.cursor.Next {
		ch.published.isDuplicate(m) // where the cursor was lost it is not known yet
		return nil
	}
	if subjectErr != nil {
		c.refuse(m, s.datagrams, subjectErr)
	}
	_, size := c.cfg.Limits(key.instrument)
	if ch.open != nil && !ch.open.fits(s, size) {
		if err := c.cut(ctx, ch); err != nil {
			return err
		}
	}
	ch.extend(s)
	return nil
}

// channelOf returns the channel of a subject. With an error it is the one that
// stands for messages whose subject names no channel, or not even an instrument.
func channelOf(subject string) (channelKey, error) {
	_, instrument, name, err := wire.ParseObservationSubject(subject)
	switch {
	case err != nil:
		return channelKey{wire.UnknownInstrument, wire.UnknownChannel}, err
	case !label.MatchString(instrument):
		return channelKey{wire.UnknownInstrument, wire.UnknownChannel},
			fmt.Errorf("subject %q: instrument %q: %w", subject, instrument, wire.ErrMalformed)
	case !label.MatchString(name):
		return channelKey{instrument, wire.UnknownChannel}, fmt.Errorf("subject %q: channel %q: %w", subject, name, wire.ErrMalformed)
	}
	return channelKey{instrument, name}, nil
}

// refuse logs a message whose datagrams will be in no segment because it cannot be read. They are
// counted with the range that holds the message.
func (c *Cutter) refuse(m stream.Message, datagrams uint64, err error) {
	c.cfg.Log.Error("datagrams of a telemetry message will be in no segment", "cause", wire.CauseUndecodable, "datagrams", datagrams,
		"subject", m.Subject, "sequence", m.Sequence, "id", m.Header.Get(wire.HeaderID), "error", err)
}

// advance publishes how far all channels are archived, and saves it now and then.
func (c *Cutter) advance(ctx context.Context) error {
	next, _ := c.reader.Position()
	waiting := 0
	for _, ch := range c.channels {
		if first, ok := ch.first(); ok {
			next = min(next, first)
			waiting++
		}
	}
	c.archived.Store(&stream.Position{Epoch: c.epoch, Next: next})
	c.cfg.Metrics.waiting.Set(float64(waiting))
	if next == c.cursor.Next || time.Now().Before(c.nextSave) {
		return nil
	}
	c.cursor.Next = next
	value, err := wire.Encode(c.cursor)
	if err != nil {
		return err
	}
	c.nextSave = time.Now().Add(saveInterval)
	return c.retryRefused(ctx, requestCursor, "key", wire.ObservationCursorKey, func() error { return c.cell.Store(ctx, value) })
}
