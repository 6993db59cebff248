// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// window holds items that were read and not sent yet. Objects are announced as
// they are stored, several at a time: for a while they are held and put in the
// order in which they were received.
type window struct {
	// items by receive time.
	items []item
	// next is the first sequence that was not read yet; caughtUp: there was none.
	next     uint64
	caughtUp bool
	// sent are sequences that were sent before earlier ones were.
	sent map[uint64]bool
}

func newWindow(c wire.ForwardCursor) window {
	w := window{next: c.Next, sent: make(map[uint64]bool)}
	for _, sequence := range c.Done {
		w.sent[sequence] = true
	}
	return w
}

// add holds an item, unless it was sent.
func (w *window) add(i item) {
	if w.sent[i.sequence] {
		return
	}
	at, _ := slices.BinarySearchFunc(w.items, i, inOrder)
	w.items = slices.Insert(w.items, at, i)
}

func inOrder(a, b item) int {
	return cmp.Or(a.receivedAt.Compare(b.receivedAt), cmp.Compare(a.sequence, b.sequence))
}

// ready returns the first items that were held for long enough: what the stream took so long after them was read, or
// they were read so long ago and there is no more. If the window is full, at least one item is ready.
func (w *window) ready(now time.Time, settle time.Duration, space int) []item {
	var newest time.Time
	for _, i := range w.items {
		if i.at.After(newest) {
			newest = i.at
		}
	}
	n := 0
	for n < len(w.items) && (w.caughtUp && now.Sub(w.items[n].readAt) >= settle || newest.Sub(w.items[n].at) >= settle) {
		n++
	}
	if n == 0 && len(w.items) > 0 && len(w.items) >= space {
		n = 1
	}
	return slices.Clone(w.items[:n])
}

// remove notes that items were sent, or left out.
func (w *window) remove(items []item) {
	for _, i := range items {
		w.sent[i.sequence] = true
	}
	w.items = slices.DeleteFunc(w.items, func(i item) bool { return w.sent[i.sequence] })
}

// position returns the first sequence that may not be sent yet, and those behind
// it that are. It forgets the others.
func (w *window) position() (next uint64, done []uint64) {
	next = w.next
	for _, i := range w.items {
		next = min(next, i.sequence)
	}
	maps.DeleteFunc(w.sent, func(sequence uint64, _ bool) bool { return sequence < next })
	return next, slices.Sorted(maps.Keys(w.sent))
}

// oldest is when the first item was received, the zero time if there is none.
func (w *window) oldest() time.Time {
	if len(w.items) == 0 {
		return time.Time{}
	}
	return w.items[0].receivedAt
}
