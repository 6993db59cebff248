// SPDX-License-Identifier: Apache-2.0

// Package hub reads each stream once, however many consumers follow it, and keeps
// the newest messages in memory. A consumer that falls out of that reads on from
// the stream itself: one that is slow costs others nothing, and memory nothing.
package hub

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Message is one message of a stream. It is shared by all who follow it, and must
// not be changed.
type Message struct {
	// Sequence in the stream.
	Sequence uint64
	// At is when the stream took it, by the server's clock.
	At      time.Time
	Subject string
	Header  nats.Header
	Data    []byte
}

// size is about what a message takes in memory, in bytes.
func (m *Message) size() int {
	n := len(m.Subject) + len(m.Data) + messageOverhead
	for name, values := range m.Header {
		n += len(name)
		for _, v := range values {
			n += len(v)
		}
	}
	return n
}

// messageOverhead is what a message and its headers take beside their bytes.
const messageOverhead = 512

// Ring holds the newest messages of one stream, of at most so many bytes. One
// goroutine adds, any number read.
type Ring struct {
	limit int

	mu       sync.RWMutex
	messages []*Message // ascending sequences, gaps where the stream has them
	bytes    int
	// first is the sequence from which on nothing of the stream is missing here, and
	// next the one behind the newest that was looked at.
	first, next uint64
	// changed is closed when something is added, or the ring ends.
	changed chan struct{}
	err     error
}

// NewRing returns an empty ring, which begins at a sequence.
func NewRing(limit int, begin uint64) *Ring {
	return &Ring{limit: limit, first: begin, next: begin, changed: make(chan struct{})}
}

// Add adds messages, whose sequences ascend; next is the sequence behind them up
// to which the stream has no others. Errors: one that comes late, End's.
func (r *Ring) Add(messages []*Message, next uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	for _, m := range messages {
		if m.Sequence < r.next {
			return fmt.Errorf("message %d comes after %d was looked at", m.Sequence, r.next)
		}
		r.messages = append(r.messages, m)
		r.bytes += m.size()
		r.next = m.Sequence + 1
	}
	r.next = max(r.next, next)
	r.trim()
	close(r.changed)
	r.changed = make(chan struct{})
	return nil
}

// trim lets the oldest go. One message stays, however large it is.
func (r *Ring) trim() {
	gone := 0
	for r.bytes > r.limit && gone < len(r.messages)-1 {
		r.bytes -= r.messages[gone].size()
		r.first = r.messages[gone].Sequence + 1
		r.messages[gone] = nil
		gone++
	}
	r.messages = r.messages[gone:]
}

// End has readers fail with an error: the stream is not the one it was.
func (r *Ring) End(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
		close(r.changed)
	}
}

// Span is what a ring holds: from first on, up to before next.
func (r *Ring) Span() (first, next uint64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.first, r.next
}

// Read appends to into up to most messages that wanted selects, from a sequence
// on, and returns the sequence to go on with. It does not wait. Held is false
// where the ring does not reach back so far: read the stream up to where it does.
// The error is End's.
func (r *Ring) Read(into []*Message, from uint64, most int, wanted func(*Message) bool) (messages []*Message, next uint64, held bool, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	switch {
	case r.err != nil:
		return into, from, false, r.err
	case from < r.first:
		return into, from, false, nil
	}
	for i := r.search(from); i < len(r.messages); i++ {
		if len(into) >= most {
			return into, r.messages[i].Sequence, true, nil
		}
		if wanted(r.messages[i]) {
			into = append(into, r.messages[i])
		}
	}
	return into, max(from, r.next), true, nil
}

// search returns the index of the first message from a sequence on.
func (r *Ring) search(from uint64) int {
	low, high := 0, len(r.messages)
	for low < high {
		if middle := (low + high) / 2; r.messages[middle].Sequence < from {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// Wait returns once something may have come from a sequence on. Errors: ctx's,
// End's.
func (r *Ring) Wait(ctx context.Context, from uint64) error {
	for {
		r.mu.RLock()
		changed, next, err := r.changed, r.next, r.err
		r.mu.RUnlock()
		if err != nil || next > from {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// at returns when the stream took the first message from a sequence on; zero
// where there is none.
func (r *Ring) at(from uint64) time.Time {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if i := r.search(from); i < len(r.messages) {
		return r.messages[i].At
	}
	return time.Time{}
}
