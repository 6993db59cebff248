// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	// What was read, once done is closed. Recreated: the stream is another one.
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

// catchUp returns what was read, where that is done.
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
	return c.give(b.batch), Wait{}, true, nil
}

// read asks the stream for messages from a sequence on. Where the first ones left
// the stream it says that alone.
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
	var end uint64 // of what may be missing before the first message
	if len(b.Messages) > 0 {
		end = b.Messages[0].Sequence
	} else if end = max(from, state.FirstSeq); end == from && state.LastSeq >= from {
		return Batch{}, errors.New("a replica of the stream has less than its leader")
	}
	if gone := min(end, state.FirstSeq); gone > from { // said alone: what lies behind it is asked for next
		return Batch{Epoch: epoch, Next: gone, Missing: &Missing{Epoch: epoch, From: from, To: gone - 1, Reason: wire.GapRetention}}, nil
	}
	b.Next = max(b.Next, end)
	return b, nil
}
