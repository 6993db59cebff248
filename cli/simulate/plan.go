// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"container/heap"
	"iter"
	"math"
	"math/rand/v2"
	"time"
)

// event is one object or datagram to send.
type event struct {
	// at is when it is due, since the start; 0 where receipts set the rhythm.
	at time.Duration
	// source is the index in Model.Sources, instrument the one of its Count,
	// number counts that instrument's events from 0.
	source, instrument int
	number             uint64
	size               int64
}

// plan yields what a model sends, in the order of time. The same model, seed and duration yield the same events. A model without a rhythm
// never ends.
func plan(m Model, seed uint64, duration time.Duration) iter.Seq[event] {
	if !m.paced() {
		return unpaced(m, seed)
	}
	return func(yield func(event) bool) {
		var queue instruments
		for s := range m.Sources {
			for i := range m.Sources[s].Count {
				if in := newInstrument(&m.Sources[s], s, i, seed); in.next.at < duration {
					queue = append(queue, in)
				}
			}
		}
		heap.Init(&queue)
		for len(queue) > 0 {
			in := queue[0]
			if !yield(in.next) {
				return
			}
			if in.advance(); in.next.at < duration {
				heap.Fix(&queue, 0)
			} else {
				heap.Pop(&queue)
			}
		}
	}
}

// unpaced gives each instrument its turn, round and round.
func unpaced(m Model, seed uint64) iter.Seq[event] {
	return func(yield func(event) bool) {
		var all []*instrument
		for s := range m.Sources {
			for i := range m.Sources[s].Count {
				all = append(all, newInstrument(&m.Sources[s], s, i, seed))
			}
		}
		for {
			for _, in := range all {
				if !yield(in.next) {
					return
				}
				in.advance()
			}
		}
	}
}

// instrument draws its events one after another.
type instrument struct {
	source *Source
	random *rand.Rand
	// end of the burst that it is in.
	end  time.Duration
	next event
}

// newInstrument returns an instrument at its first event, at a random place in
// its rhythm.
func newInstrument(s *Source, index, number int, seed uint64) *instrument {
	in := &instrument{source: s, random: rand.New(rand.NewPCG(seed, uint64(index)<<32|uint64(number)))}
	in.next = event{source: index, instrument: number, size: in.size()}
	if !s.paced() {
		return in
	}
	if s.Bursts == nil {
		in.next.at = time.Duration(in.random.Float64() * float64(s.interval()))
		return in
	}
	if in.random.Float64()*float64(s.Bursts.Lasting.Duration+s.Bursts.Silence.Duration) >= float64(s.Bursts.Lasting.Duration) {
		in.next.at = in.exponential(s.Bursts.Silence.Duration)
	}
	in.end = in.next.at + in.exponential(s.Bursts.Lasting.Duration)
	return in
}

// advance draws the next event.
func (in *instrument) advance() {
	in.next.number++
	in.next.size = in.size()
	if !in.source.paced() {
		return
	}
	step := in.source.interval()
	if in.source.Poisson {
		step = in.exponential(step)
	}
	in.next.at += step
	if in.source.Bursts == nil {
		return
	}
	for in.next.at >= in.end { // the rest of the interval continues in the next burst
		silence := in.exponential(in.source.Bursts.Silence.Duration)
		in.next.at += silence
		in.end += silence + in.exponential(in.source.Bursts.Lasting.Duration)
	}
}

func (in *instrument) exponential(mean time.Duration) time.Duration {
	return time.Duration(in.random.ExpFloat64() * float64(mean))
}

// size draws a size in bytes.
func (in *instrument) size() int64 {
	sizes := in.source.Sizes
	n := sizes[in.random.IntN(len(sizes))].Value()
	if d := in.source.DeviationPercent; d > 0 {
		n += int64(math.Round(in.random.NormFloat64() * float64(n) * d / 100))
	}
	most := int64(maxSize)
	if in.source.Protocol == UDP {
		most = maxDatagram
	}
	return min(max(n, minSize), most)
}

// instruments is a heap by the time of the next event.
type instruments []*instrument

func (q instruments) Len() int { return len(q) }

func (q instruments) Less(i, j int) bool {
	a, b := q[i].next, q[j].next
	if a.at != b.at {
		return a.at < b.at
	}
	if a.source != b.source {
		return a.source < b.source
	}
	return a.instrument < b.instrument
}

func (q instruments) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *instruments) Push(x any) { *q = append(*q, x.(*instrument)) }

// Pop implements heap.Interface.
func (q *instruments) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
