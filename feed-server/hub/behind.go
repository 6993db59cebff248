// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// behindMessages and behindBytes are asked of the stream at a time for a consumer
	// that is behind what memory holds: what it has not taken yet is all that it
	// costs.
	behindMessages = 256
	behindBytes    = 128 << 10
	// behindTimeout is for one answer.
	behindTimeout = 10 * time.Second
)

// behind is one reading of the stream itself.
type behind struct {
	cancel context.CancelFunc
	done   chan struct{}
	// The result of the read, once done is closed. Recreated: the stream was recreated.
	batch     Batch
	recreated bool
	err       error
}

// begin reads in the background: others of the consumer's streams go on.
func (c *Cursor) begin(most Most) *behind {
	ctx, cancel := context.WithTimeout(context.Background(), behindTimeout)
	b := &behind{cancel: cancel, done: make(chan struct{})}
	place, next := c.place, c.next
	most = Most{Messages: min(most.Messages, behindMessages), Bytes: min(most.Bytes, behindBytes)}
	go func() {
		defer close(b.done)
		defer cancel()
		if b.err = c.slots.Acquire(ctx, 1); b.err != nil {
			return
		}
		defer c.slots.Release(1)
		b.batch, b.err = c.hub.read(ctx, place.Epoch, next, most)
		if errors.Is(b.err, stream.ErrEpoch) {
			b.recreated, b.err = true, nil
		}
	}()
	return b
}

// catchUp returns the result of the read, once it is done.
func (c *Cursor) catchUp() (Batch, Wait, bool, error) {
	b := c.behind
	select {
	case <-b.done:
	default:
		return Batch{}, Wait{b.done, b.done}, false, nil
	}
	c.behind = nil
	switch {
	case b.err != nil:
		return Batch{}, Wait{}, false, fmt.Errorf("read stream %s behind memory: %w", c.hub.cfg.Stream, b.err)
	case b.recreated:
		return c.recreated()
	}
	clear(c.found)
	c.found = c.found[:0]
	for _, m := range b.batch.Messages {
		if c.wanted(m) {
			c.found = append(c.found, m)
		}
	}
	b.batch.Messages = c.found
	missing := c.lacks(b.batch.Missing)
	b.batch.Missing = nil
	if missing == nil {
		return c.give(b.batch), Wait{}, true, nil
	}
	// The loss is reported before the messages behind it are given: a consumer that is cut off in
	// between gets the report again.
	c.rest = &b.batch
	return Batch{Epoch: b.batch.Epoch, Missing: missing}, Wait{}, true, nil
}

// read asks the stream for messages from a sequence on, and returns which of them left it.
func (h *Hub) read(ctx context.Context, epoch string, from uint64, most Most) (Batch, error) {
	b := Batch{Epoch: epoch, Next: from}
	answer, err := jetstreamext.GetBatch(ctx, h.cfg.JetStream, h.cfg.Stream, most.Messages,
		jetstreamext.GetBatchSeq(from), jetstreamext.GetBatchMaxBytes(most.Bytes))
	if err != nil {
		return Batch{}, err
	}
	for m, err := range answer {
		switch {
		case errors.Is(err, jetstreamext.ErrNoMessages):
		case err != nil:
			return Batch{}, err
		case m.Sequence >= b.Next:
			b.Messages = append(b.Messages, newMessage(stream.Message{
				Sequence: m.Sequence, At: m.Time, Subject: m.Subject, Header: m.Header, Data: m.Data,
			}))
			b.Next = m.Sequence + 1
		}
	}
	// Asked after the answer: what came is of the stream that is there now.
	is, state, err := stream.Epoch(ctx, h.cfg.JetStream, h.cfg.Stream)
	switch {
	case err != nil:
		return Batch{}, err
	case is != epoch:
		return Batch{}, stream.ErrEpoch
	}
	switch {
	case len(b.Messages) > 0:
	case state.FirstSeq > from:
		b.Next = state.FirstSeq
	case state.LastSeq >= from:
		if err := h.goneTo(ctx, epoch, from, state.LastSeq); err != nil {
			return Batch{}, err
		}
		b.Next = state.LastSeq + 1
	}
	if b.Missing = holes(b, from, state); b.Missing != nil {
		b.Missing.Epoch = epoch
	}
	return b, nil
}

// holes returns what a batch that was read from a sequence on lacks, or nil. State
// is what the stream said after that: without deletions its sequences have no holes.
func holes(b Batch, from uint64, state jetstream.StreamState) *Missing {
	m := Missing{Reason: wire.GapRetention}
	next := from
	hole := func(end uint64) {
		if !deleted(state, next, end) {
			return
		}
		if m.Count == 0 {
			m.From = next
		}
		m.To = end - 1
		m.Count += end - next
	}
	for _, message := range b.Messages {
		hole(message.Sequence)
		next = message.Sequence + 1
	}
	if len(b.Messages) == 0 {
		hole(b.Next)
	}
	if m.Count == 0 {
		return nil
	}
	return &m
}

// deleted reports whether the messages from one sequence up to before another, which did not come,
// left the stream.
func deleted(state jetstream.StreamState, from, to uint64) bool {
	return from < to && (state.FirstSeq > from || state.NumDeleted > 0)
}

// goneTo finds out whether nothing is left of a stream's end, or the replica that
// was asked does not have it yet. Error: the latter.
func (h *Hub) goneTo(ctx context.Context, epoch string, from, last uint64) error {
	s, err := h.cfg.JetStream.Stream(ctx, h.cfg.Stream)
	if err != nil {
		return err
	}
	info, err := s.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return err
	}
	if wire.StreamEpoch(info.Created) != epoch {
		return stream.ErrEpoch
	}
	gone := uint64(0)
	for _, sequence := range info.State.Deleted {
		if sequence >= from && sequence <= last {
			gone++
		}
	}
	if first := info.State.FirstSeq; first > from { // earlier messages are not listed
		gone += min(first, last+1) - from
	}
	if gone <= last-from {
		return errors.New("a replica of the stream lacks messages that its leader has")
	}
	return nil
}
