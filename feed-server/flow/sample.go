// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"container/list"
	"fmt"
	"iter"
	"time"
)

// MinInterval is the shortest interval that is sampled.
const MinInterval = 10 * time.Millisecond

// grace is how much later than its interval ends a source's item may come: telemetry is
// gathered for 100 ms. An item that comes later still is a second sample of the interval.
const grace = 250 * time.Millisecond

// Sample lets the newest item of each source and interval through. Intervals follow the items' own
// times, counted from the Unix epoch, so that consumers with one interval get the same samples,
// also from another replica.
type Sample struct {
	interval time.Duration
	sources  map[string]*sampled
	// waiting are the sources by when their interval began to be gathered, longest ago
	// first, and bytes what their items take.
	waiting *list.List // of *sampled
	bytes   int
	out     *Latest
	sampled uint64
}

// sampled is the interval of a source that is not over yet.
type sampled struct {
	index int64
	kept  Kept
	// due is when the item goes out though no later one came.
	due   time.Time
	place *list.Element
}

// NewSample returns a Sample that hands its samples to out, whose consumer may be slower still. The items that both hold together keep within out's
// bounds: if there is no space, the item that waits longest gives way, and is counted as overflowed by out. Error: an interval that is too short.
func NewSample(interval time.Duration, out *Latest) (*Sample, error) {
	if interval < MinInterval {
		return nil, fmt.Errorf("an interval of %v is shorter than the minimum of %v", interval, MinInterval)
	}
	return &Sample{interval: interval, sources: map[string]*sampled{}, waiting: list.New(), out: out}, nil
}

// Interval returns the index of the interval of an item's time.
func (s *Sample) Interval(at time.Time) (index int64) {
	return floorDiv(at.UnixNano(), int64(s.interval))
}

// Offer takes an item that came now. Items that are counted in its Also are in its interval.
func (s *Sample) Offer(i Item, now time.Time) {
	index := s.Interval(i.At)
	s.sampled += i.Also
	current := s.sources[i.Key]
	switch {
	case current == nil:
	case index > current.index:
		s.out.offer(s.remove(current))
	case index < current.index, i.At.Before(current.kept.At): // late: its interval has a newer one
		s.sampled++
		current.kept.Sampled += 1 + i.Also
		return
	default:
		s.sampled++
		s.bytes += i.Size - current.kept.Size
		current.kept = Kept{Item: i, Sampled: current.kept.Sampled + 1 + i.Also}
		s.bound(current)
		return
	}
	current = &sampled{index: index, kept: Kept{Item: i, Sampled: i.Also}, due: now.Add(s.interval + min(s.interval, grace))}
	current.place = s.waiting.PushBack(current)
	s.sources[i.Key] = current
	s.bytes += i.Size
	s.bound(current)
}

// bound makes space for an item. Items whose interval is over have waited longest.
func (s *Sample) bound(newest *sampled) {
	for {
		items, bytes := s.out.Waiting()
		all := items + len(s.sources)
		if all <= 1 || all <= s.out.bounds.Items && bytes+s.bytes <= s.out.bounds.Bytes {
			return
		}
		if items > 0 {
			s.out.remove(s.out.waiting.Front())
		} else {
			longest := s.waiting.Front()
			if longest == newest.place {
				longest = longest.Next()
			}
			s.remove(longest.Value.(*sampled))
		}
		s.out.overflowed++
	}
}

func (s *Sample) remove(entry *sampled) Kept {
	s.waiting.Remove(entry.place)
	delete(s.sources, entry.kept.Key)
	s.bytes -= entry.kept.Size
	return entry.kept
}

// Due hands over what no later item pushed out in time, that which waits longest first, and
// returns when that is next: zero where nothing waits.
func (s *Sample) Due(now time.Time) (next time.Time) {
	for first := s.waiting.Front(); first != nil; first = s.waiting.Front() {
		is := first.Value.(*sampled)
		if is.due.After(now) {
			return is.due
		}
		s.out.offer(s.remove(is))
	}
	return time.Time{}
}

// All yields what waits for the end of its interval.
func (s *Sample) All() iter.Seq[Kept] {
	return func(yield func(Kept) bool) {
		for _, is := range s.sources {
			if !yield(is.kept) {
				return
			}
		}
	}
}

// Sampled is how many items the intervals left out since the beginning.
func (s *Sample) Sampled() uint64 { return s.sampled }

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
