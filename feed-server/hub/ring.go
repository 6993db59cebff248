// SPDX-License-Identifier: Apache-2.0

// Package hub reads each stream once, however many consumers follow it, and keeps
// the newest messages in memory. A consumer that falls out of that reads on from
// the stream itself: one that is slow costs others nothing, and memory nothing.
package hub

import (
	"fmt"
	"sync"
	"time"
)

// Ring holds the newest messages of one stream, as many as its budget lets it. One
// goroutine adds, any number read.
type Ring struct {
	budget *Budget

	mu       sync.RWMutex
	messages []*Message // ascending sequences, gaps where the stream has them
	bytes    int
	// first is the sequence from which on nothing of the stream is missing here, and
	// next the one behind the newest that was looked at.
	first, next uint64
	// urgent and changed are closed when something is added, or the ring ends; urgent is closed
	// first.
	urgent, changed chan struct{}
	err             error
}

// Add adds messages, whose sequences ascend; next is the sequence behind them up
// to which the stream has no others. Errors: one that comes late, End's.
func (r *Ring) Add(messages []*Message, next uint64) error {
	defer r.budget.enforceLimit() // without the lock
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	for _, m := range messages {
		if m.Sequence < r.next {
			return fmt.Errorf("message %d is out of order: expected %d or later", m.Sequence, r.next)
		}
		m.ring = r
		r.messages = append(r.messages, m)
		r.hold(m.size() + m.charged)
		r.next = m.Sequence + 1
	}
	r.next = max(r.next, next)
	r.wake()
	return nil
}

// hold counts bytes that come, or go.
func (r *Ring) hold(bytes int) {
	r.bytes += bytes
	r.budget.used.Add(int64(bytes))
}

// wake wakes all readers. Readers that are woken first run first, as far as there are processors.
func (r *Ring) wake() {
	close(r.urgent)
	close(r.changed)
	r.urgent, r.changed = make(chan struct{}), make(chan struct{})
}

// spare is how many bytes are held, 0 where they are of one message.
func (r *Ring) spare() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if len(r.messages) < 2 {
		return 0
	}
	return r.bytes
}

// trim lets the oldest go: at least one, and then as long as the budget is spent and
// more than so many bytes are held. One message stays, however large it is.
func (r *Ring) trim(least int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for first := true; len(r.messages) > 1 && (first || r.bytes > least && r.budget.used.Load() > r.budget.limit); first = false {
		r.drop()
	}
}

func (r *Ring) drop() {
	m := r.messages[0]
	r.hold(-m.size() - m.charged)
	r.first = m.Sequence + 1
	r.messages[0] = nil
	r.messages = r.messages[1:]
}

// Skip discards everything before a sequence which is beyond the newest: the messages in between
// left the stream before they came here.
func (r *Ring) Skip(to uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil && to > r.next {
		r.hold(-r.bytes)
		r.messages, r.first, r.next = nil, to, to
		r.wake()
	}
}

// charge counts what is kept beside a message that the ring holds, until it goes.
func (r *Ring) charge(m *Message, bytes int) {
	if r == nil { // a message of no ring: its holder counts it
		return
	}
	defer r.budget.enforceLimit() // without the lock
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.Sequence >= r.first && r.err == nil {
		m.charged += bytes
		r.hold(bytes)
	}
}

// End has readers fail with an error: the stream is not the one it was. Nothing is
// held then.
func (r *Ring) End(err error) {
	defer r.budget.remove(r) // without the lock
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
		r.hold(-r.bytes)
		r.messages = nil
		close(r.urgent)
		close(r.changed)
	}
}

// Span is what a ring holds: from first on, up to before next.
func (r *Ring) Span() (first, next uint64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.first, r.next
}

// Most bounds what is read at a time: messages, and bytes of their data unless
// one message alone is larger.
type Most struct {
	Messages, Bytes int
}

// Found is what Read found.
type Found struct {
	Messages []*Message
	// Next is the sequence to go on with.
	Next uint64
	// Held is false where the ring does not reach back so far: read the stream up to
	// where it does.
	Held bool
	// Urgent and Changed are closed when there may be more, Urgent first.
	Urgent, Changed <-chan struct{}
}

// Read appends to into those messages that wanted selects, from a sequence on. It
// does not wait. The error is End's.
func (r *Ring) Read(into []*Message, from uint64, most Most, wanted func(*Message) bool) (Found, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	f := Found{Messages: into, Next: from, Held: from >= r.first, Urgent: r.urgent, Changed: r.changed}
	if r.err != nil || !f.Held {
		return f, r.err
	}
	bytes := 0
	for i := r.search(from); i < len(r.messages); i++ {
		m := r.messages[i]
		if wanted(m) {
			if bytes += len(m.Data); len(f.Messages) >= most.Messages || bytes > most.Bytes && len(f.Messages) > 0 {
				f.Next = m.Sequence
				return f, nil
			}
			f.Messages = append(f.Messages, m)
		}
	}
	f.Next = max(from, r.next)
	return f, nil
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

// Lag is how far a consumer is behind the newest message.
type Lag struct {
	// Messages that the consumer wants, and Bytes of them.
	Messages uint64
	Bytes    int64
	// Unsized: Bytes count only some messages, since the others were not examined. If the ring does
	// not reach back so far, all messages of the stream are counted.
	Unsized bool
	// Since is when the stream took the oldest of them; zero if that is unknown without asking the
	// stream.
	Since time.Time
}

// Plus is both together.
func (l Lag) Plus(other Lag) Lag {
	return Lag{Messages: l.Messages + other.Messages, Bytes: l.Bytes + other.Bytes, Unsized: l.Unsized || other.Unsized, Since: Sooner(l.Since, other.Since)}
}

// Sooner returns the earlier of two moments; the zero one is never.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// lag looks at no more than so many messages, and takes the others for like them.
func (r *Ring) lag(from uint64, wanted func(*Message) bool, most int) Lag {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var l Lag
	if from < r.first {
		l.Messages, l.Unsized = r.first-from, true
		from = r.first
	}
	begin := r.search(from)
	behind := l.Messages
	looked := min(most, len(r.messages)-begin)
	for _, m := range r.messages[begin : begin+looked] {
		if wanted(m) {
			if l.Messages == 0 {
				l.Since = m.At
			}
			l.Messages++
			l.Bytes += int64(len(m.Data))
		}
	}
	if all := len(r.messages) - begin; looked > 0 && all > looked {
		l.Messages = behind + (l.Messages-behind)*uint64(all)/uint64(looked)
		l.Bytes = l.Bytes * int64(all) / int64(looked)
	}
	return l
}
