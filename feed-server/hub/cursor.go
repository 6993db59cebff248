// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// Missing is a run of messages that a consumer can never be given.
type Missing struct {
	// From and To are the first and the last sequence, in the stream of Epoch. If the stream was
	// recreated, the last is unknown: To is From.
	Epoch    string
	From, To uint64
	// Count of them: others between From and To may be there, and are given.
	Count  uint64
	Reason wire.GapReason
}

// Batch is what a consumer is given next: messages, or what is Missing.
type Batch struct {
	Missing  *Missing
	Epoch    string
	Messages []*Message
	// Next is the sequence to continue with: nothing before it is wanted any more. 0 beside what is
	// Missing: the place stays, others between follow.
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
	found []*Message
	// within is the index in the message at next of the datagram that was given last;
	// -1 where that message was not begun.
	within int64

	// begun is a run that is missing before anything is given.
	begun *Missing
	// behind is on its way where the ring does not reach back.
	behind *behind
	// rest is what was read together with missing messages, which are reported first.
	rest *Batch
}

// ErrNoPlace: a token names a place that its stream does not have yet.
var ErrNoPlace = errors.New("the token names a position that the stream does not have")

// Cursor returns a consumer's place: behind where token says or, with the zero
// token, at the newest message. Messages that wanted does not select are passed
// over. Close gives back what it holds. Errors: ErrNoPlace; ctx's, while the
// stream is not there.
func (h *Hub) Cursor(ctx context.Context, token wire.ResumeToken, slots *semaphore.Weighted, wanted func(*Message) bool) (*Cursor, error) {
	place, err := h.Current(ctx)
	if err != nil {
		return nil, err
	}
	c := &Cursor{hub: h, wanted: wanted, slots: slots, place: place, within: -1}
	_, newest := place.Ring.Span()
	switch token.Epoch {
	case "":
		c.next = newest
	case place.Epoch:
		if token.Sequence >= newest { // another replica may have seen more
			if _, state, err := stream.Epoch(ctx, h.cfg.JetStream, h.cfg.Stream); err != nil {
				return nil, err
			} else if token.Sequence > state.LastSeq {
				return nil, fmt.Errorf("%w: the stream ends at %d", ErrNoPlace, state.LastSeq)
			}
		}
		if c.next = 1; token.Sequence > 0 {
			c.next, c.within = token.Sequence, int64(token.Index)
		}
	default:
		// The messages that the other stream had behind the token are gone, and their number is
		// unknown. All messages of the new stream are new to the consumer.
		c.next = 1
		c.begun = &Missing{Epoch: token.Epoch, From: token.Sequence + 1, To: token.Sequence + 1, Count: 1, Reason: wire.GapStreamRecreated}
	}
	return c, nil
}

// Close gives back what the cursor holds.
func (c *Cursor) Close() {
	if c.behind != nil {
		c.behind.cancel()
	}
}

// Behind reports whether the cursor is on its way through what memory does not hold.
func (c *Cursor) Behind() bool { return c.behind != nil }

// Place returns the epoch of the stream, and the sequence that is next.
func (c *Cursor) Place() (epoch string, next uint64) { return c.place.Epoch, c.next }

// Poll returns what comes next, without waiting: at most so much, and no messages if all new ones
// are unwanted. Ok is false if nothing came: poll again when Wait's channel is closed. Errors: the
// stream's, or the reason of the hub's end; the cursor can be polled again, and loses nothing.
func (c *Cursor) Poll(most Most) (b Batch, wait Wait, ok bool, err error) {
	if c.begun != nil {
		b = Batch{Missing: c.begun, Epoch: c.place.Epoch, Next: c.next}
		c.begun = nil
		return b, Wait{}, true, nil
	}
	if c.rest != nil {
		b, c.rest = *c.rest, nil
		return c.give(b), Wait{}, true, nil
	}
	if c.behind != nil {
		return c.catchUp()
	}
	clear(c.found)
	f, err := c.place.Ring.Read(c.found[:0], c.next, most, c.wanted)
	switch {
	case errors.Is(err, stream.ErrEpoch):
		return c.recreated()
	case err != nil:
		return Batch{}, Wait{}, false, err
	case !f.Held:
		c.behind = c.begin(most)
		return c.catchUp()
	case f.Next <= c.next:
		return Batch{}, Wait{f.Urgent, f.Changed}, false, nil
	}
	c.found = f.Messages
	return c.give(Batch{Epoch: c.place.Epoch, Messages: f.Messages, Next: f.Next}), Wait{}, true, nil
}

// Wait has channels that are closed when there may be something: Urgent before
// Normal.
type Wait struct {
	Urgent, Normal <-chan struct{}
}

// give advances past a batch, and omits the part of its first message that was given before.
func (c *Cursor) give(b Batch) Batch {
	if c.within >= 0 && len(b.Messages) > 0 && b.Messages[0].Sequence == c.next {
		if rest := b.Messages[0].After(uint32(c.within)); rest != nil {
			b.Messages[0] = rest
		} else {
			b.Messages = b.Messages[1:]
		}
	}
	c.next, c.within = b.Next, -1
	return b
}

// lacks returns the part of a loss that the consumer was not given, or nil. A message that was
// given in part is missing: the number of its remaining datagrams is unknown.
func (c *Cursor) lacks(m *Missing) *Missing {
	if m == nil || m.From != c.next || c.within != math.MaxUint32 {
		return m
	}
	if m.Count == 1 {
		return nil
	}
	return &Missing{Epoch: m.Epoch, From: m.From + 1, To: m.To, Count: m.Count - 1, Reason: m.Reason}
}

// recreated continues with the stream that replaced the old one.
func (c *Cursor) recreated() (Batch, Wait, bool, error) {
	place, changed := c.hub.currentPlace()
	if place.Ring == nil || place.Epoch == c.place.Epoch {
		return Batch{}, Wait{changed, changed}, false, nil
	}
	missing := &Missing{Epoch: c.place.Epoch, From: c.next, To: c.next, Count: 1, Reason: wire.GapStreamRecreated}
	c.place, c.next, c.within = place, 1, -1
	return Batch{Missing: missing, Epoch: place.Epoch, Next: 1}, Wait{}, true, nil
}

// Position is where a cursor was at a moment. Others than its owner may ask it.
type Position struct {
	ring   *Ring
	next   uint64
	wanted func(*Message) bool
}

// Position returns where the cursor is.
func (c *Cursor) Position() Position { return Position{c.place.Ring, c.next, c.wanted} }

// Lag counts the messages between the position and the newest message. It looks at no more than
// lookedAt messages.
func (p Position) Lag() Lag {
	if p.ring == nil {
		return Lag{}
	}
	return p.ring.lag(p.next, p.wanted, lookedAt)
}

const lookedAt = 512
