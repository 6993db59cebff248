// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"container/list"
	"fmt"
	"iter"
)

// Bounds of what waits for one consumer.
type Bounds struct {
	// Items and Bytes; at least one of each.
	Items int
	Bytes int
}

// Latest keeps the newest item of each source until the consumer takes it. A
// source waits for its turn from when its first item came, however often that is
// replaced: so a source that sends much does not starve others.
type Latest struct {
	bounds  Bounds
	waiting *list.List // of *Kept, longest first
	places  map[string]*list.Element
	bytes   int

	replaced, overflowed uint64
}

// NewLatest returns an empty Latest. Error: bounds that hold nothing.
func NewLatest(b Bounds) (*Latest, error) {
	if b.Items < 1 || b.Bytes < 1 {
		return nil, fmt.Errorf("bounds of %d items and %d bytes hold nothing", b.Items, b.Bytes)
	}
	return &Latest{bounds: b, waiting: list.New(), places: map[string]*list.Element{}}, nil
}

// Offer takes an item. An older one than that which waits replaces nothing, and is counted as
// replaced itself. If there is no space, the source that waits longest gives way, and is
// counted as overflowed.
func (l *Latest) Offer(i Item) {
	l.replaced += i.Also
	l.offer(Kept{Item: i, Replaced: i.Also})
}

func (l *Latest) offer(k Kept) {
	e := l.places[k.Key]
	if e == nil {
		e = l.waiting.PushBack(&k)
		l.places[k.Key] = e
		l.bytes += k.Size
	} else {
		was := e.Value.(*Kept)
		l.replaced++
		k.Replaced += was.Replaced + 1
		k.Sampled += was.Sampled
		if k.At.Before(was.At) {
			was.Replaced, was.Sampled = k.Replaced, k.Sampled
			return
		}
		l.bytes += k.Size - was.Size
		*was = k
	}
	for l.waiting.Len() > 1 && (l.waiting.Len() > l.bounds.Items || l.bytes > l.bounds.Bytes) {
		gone := l.waiting.Front()
		if gone == e {
			gone = e.Next()
		}
		l.remove(gone)
		l.overflowed++
	}
}

func (l *Latest) remove(e *list.Element) Kept {
	k := l.waiting.Remove(e).(*Kept)
	delete(l.places, k.Key)
	l.bytes -= k.Size
	return *k
}

// Take removes and returns what is due, longest waiting first: at most so many bytes, and at least
// one item if any is due.
func (l *Latest) Take(most int) []Kept {
	var due []Kept
	for size := 0; l.waiting.Len() > 0; {
		e := l.waiting.Front()
		if size += e.Value.(*Kept).Size; size > most && len(due) > 0 {
			break
		}
		due = append(due, l.remove(e))
	}
	return due
}

// All yields what waits, longest waiting first.
func (l *Latest) All() iter.Seq[Kept] {
	return func(yield func(Kept) bool) {
		for e := l.waiting.Front(); e != nil; e = e.Next() {
			if !yield(*e.Value.(*Kept)) {
				return
			}
		}
	}
}

// Waiting is how many items and bytes wait.
func (l *Latest) Waiting() (items, bytes int) { return l.waiting.Len(), l.bytes }

// Replaced is how many items were replaced since the beginning.
func (l *Latest) Replaced() uint64 { return l.replaced }

// Overflowed is how many items were lost for lack of space since the beginning.
func (l *Latest) Overflowed() uint64 { return l.overflowed }
