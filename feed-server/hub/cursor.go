// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// behindMost messages are asked of the stream at a time for a consumer that is
// behind what memory holds.
const behindMost = 64

// Missing is a run of messages that a consumer can never be given.
type Missing struct {
	// From and To are the first and the last sequence, in the stream of Epoch.
	Epoch    string
	From, To uint64
	Reason   wire.GapReason
}

// Batch is what a consumer is given next: Missing, where that is set, lies before
// the messages.
type Batch struct {
	Missing  *Missing
	Epoch    string
	Messages []*Message
	// Next is the sequence to go on with: of what lies before it nothing is wanted
	// any more.
	Next uint64
}

// Cursor is one consumer's place in a stream. It belongs to one goroutine.
type Cursor struct {
	hub    *Hub
	wanted func(*Message) bool
	// slots bound how many consumers read the stream itself at a time.
	slots *semaphore.Weighted

	place Place
	next  uint64
	// behind reads the stream where the ring does not reach back; it holds a slot.
	behind *stream.Reader
	found  []*Message
}

// Cursor returns a consumer's place: behind where token says or, with the zero
// token, at the newest message. Messages that wanted does not select are passed
// over. Close gives back what it holds. Error: ctx's, while the stream is not
// there.
func (h *Hub) Cursor(ctx context.Context, token wire.ResumeToken, slots *semaphore.Weighted, wanted func(*Message) bool) (*Cursor, *Missing, error) {
	place, err := h.Current(ctx)
	if err != nil {
		return nil, nil, err
	}
	c := &Cursor{hub: h, wanted: wanted, slots: slots, place: place}
	_, c.next = place.Ring.Span()
	switch token.Epoch {
	case "":
		return c, nil, nil
	case place.Epoch:
		c.next = min(c.next, token.Sequence+1)
		return c, nil, nil
	}
	// What the other stream had behind the token is gone, and nobody knows how much
	// that was. All that the new one holds is new to the consumer.
	c.next = 1
	return c, &Missing{Epoch: token.Epoch, From: token.Sequence + 1, To: token.Sequence + 1, Reason: wire.GapStreamRecreated}, nil
}

// Close gives back what the cursor holds.
func (c *Cursor) Close() { c.caughtUp() }

// Next returns what comes next: at most so many messages, and none where all that
// came was not wanted. It waits until something came. Errors: ctx's, JetStream's;
// it can be asked again, and loses nothing.
func (c *Cursor) Next(ctx context.Context, most int) (Batch, error) {
	for {
		messages, next, held, err := c.place.Ring.Read(c.found[:0], c.next, most, c.wanted)
		switch {
		case errors.Is(err, stream.ErrEpoch):
			return c.recreated(ctx)
		case err != nil:
			return Batch{}, err
		case !held:
			return c.catchUp(ctx, most)
		case next > c.next:
			c.caughtUp()
			c.next, c.found = next, messages
			return Batch{Epoch: c.place.Epoch, Messages: messages, Next: next}, nil
		}
		if err := c.place.Ring.Wait(ctx, c.next); err != nil && !errors.Is(err, stream.ErrEpoch) {
			return Batch{}, err
		}
	}
}

// recreated goes on with the stream that took the place of the one there was.
func (c *Cursor) recreated(ctx context.Context) (Batch, error) {
	c.caughtUp()
	place, err := c.hub.Current(ctx)
	if err != nil {
		return Batch{}, err
	}
	missing := &Missing{Epoch: c.place.Epoch, From: c.next, To: c.next, Reason: wire.GapStreamRecreated}
	c.place, c.next = place, 1
	return Batch{Missing: missing, Epoch: place.Epoch, Next: 1}, nil
}

// catchUp reads the stream where memory does not reach back.
func (c *Cursor) catchUp(ctx context.Context, most int) (Batch, error) {
	if c.behind == nil {
		if err := c.slots.Acquire(ctx, 1); err != nil {
			return Batch{}, err
		}
		c.behind = stream.NewReader(c.hub.cfg.JetStream, stream.ReaderConfig{Stream: c.hub.cfg.Stream, Epoch: c.place.Epoch, Start: c.next})
	}
	missing, err := c.missing(ctx)
	if err != nil {
		return Batch{}, err
	}
	if missing != nil {
		c.next = missing.To + 1
		c.caughtUp() // the reader begins anew where there is something
		return Batch{Missing: missing, Epoch: c.place.Epoch, Next: c.next}, nil
	}
	read, err := c.behind.Next(ctx, min(most, behindMost), readWait)
	if errors.Is(err, stream.ErrEpoch) {
		return c.recreated(ctx)
	}
	if err != nil {
		return Batch{}, fmt.Errorf("consumer behind memory: %w", err)
	}
	c.found = c.found[:0]
	for _, m := range read {
		if m := (&Message{Sequence: m.Sequence, At: m.At, Subject: m.Subject, Header: m.Header, Data: m.Data}); c.wanted(m) {
			c.found = append(c.found, m)
		}
	}
	c.next, _ = c.behind.Position()
	return Batch{Epoch: c.place.Epoch, Messages: c.found, Next: c.next}, nil
}

// missing returns what left the stream before the consumer came to it.
func (c *Cursor) missing(ctx context.Context) (*Missing, error) {
	epoch, state, err := stream.Epoch(ctx, c.hub.cfg.JetStream, c.hub.cfg.Stream)
	switch {
	case err != nil:
		return nil, err
	case epoch != c.place.Epoch, state.FirstSeq <= c.next:
		return nil, nil
	}
	return &Missing{Epoch: epoch, From: c.next, To: state.FirstSeq - 1, Reason: wire.GapRetention}, nil
}

func (c *Cursor) caughtUp() {
	if c.behind != nil {
		c.behind = nil
		c.slots.Release(1)
	}
}

// Lag is how many messages of the stream lie behind the consumer's place, wanted or not, and since when the next of
// them is there: zero where nobody knows without asking the stream.
func (c *Cursor) Lag() (messages uint64, since time.Time) {
	first, next := c.place.Ring.Span()
	if next <= c.next {
		return 0, time.Time{}
	}
	if c.next >= first {
		since = c.place.Ring.at(c.next)
	}
	return next - c.next, since
}
