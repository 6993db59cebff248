// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

const (
	// daily is how many days stand for themselves, at least.
	daily = 31
	// sumMask: sums have 48 bits.
	sumMask = 1<<48 - 1
)

// dayNumber counts days since 1970.
type dayNumber int

func numberOf(d wire.Day) (dayNumber, error) {
	start, err := d.Start()
	if err != nil {
		return 0, err
	}
	return dayNumber(start.Unix() / 86400), nil
}

func (n dayNumber) start() time.Time { return time.Unix(int64(n)*86400, 0).UTC() }

// month returns the first day of the month that holds a day, and of the next.
func (n dayNumber) month() (first, next dayNumber) {
	y, m, _ := n.start().Date()
	return dayNumber(time.Date(y, m, 1, 0, 0, 0, 0, time.UTC).Unix() / 86400), dayNumber(time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC).Unix() / 86400)
}

// sum is what a token knows of a day or a month. Sums of days add up.
type sum struct {
	// files is the sum of the files in effect; 0: unknown.
	files uint64
	// count of the objects, and what their paths and digests add up to.
	count, content uint64
	// last is when the last of a day's was received, in nanoseconds of that day.
	last int64
}

func (s sum) plus(o sum) sum {
	return sum{(s.files + o.files) & sumMask, s.count + o.count, (s.content + o.content) & sumMask, 0}
}

// same reports whether the objects are.
func (s sum) same(o sum) bool { return s.count == o.count && s.content == o.content }

// add counts one object in.
func (s *sum) add(path string, r *wire.Record, day dayNumber) {
	s.count++
	s.content = (s.content + object(path, r)) & sumMask
	s.last = max(s.last, r.ReceivedAt.Sub(day.start()).Nanoseconds())
}

// remove takes an object out again. The sum and its files then match no manifest any more.
func (s *sum) remove(object uint64) {
	s.count--
	s.content = (s.content - object) & sumMask
	s.files = (s.files + 1) & sumMask
}

// object is what stands for one in sums.
func object(path string, r *wire.Record) uint64 {
	h := sha256.New()
	_, _ = h.Write(r.Digest[:])
	_, _ = h.Write([]byte(path))
	return binary.BigEndian.Uint64(h.Sum(nil)) & sumMask
}

// filesOf identifies the files of a day.
func filesOf(d wire.RootDay) uint64 {
	h := sha256.Sum256(fmt.Appendf(nil, "%s %d %v %d %d %d", d.Day, d.Version, d.Parts, d.Entries, d.Duplicates, d.Bytes))
	return binary.BigEndian.Uint64(h[:]) & sumMask
}

// span is the sum of some days: of one, or of a month.
type span struct {
	from, to dayNumber // to is not included
	sum
}

// spans are the spans of one instrument, ascending and disjoint.
type spans []span

// of returns the span that holds a day.
func (s spans) of(day dayNumber) (span, bool) {
	i, found := slices.BinarySearchFunc(s, day, func(s span, day dayNumber) int {
		switch {
		case s.to <= day:
			return -1
		case s.from > day:
			return 1
		default:
			return 0
		}
	})
	if !found {
		return span{}, false
	}
	return s[i], true
}

// add puts a span behind the others: a day that is older than the first daily one
// becomes part of its month.
func (s spans) add(next span, firstDaily dayNumber) spans {
	if next.to-next.from > 1 || next.from >= firstDaily {
		return append(s, next)
	}
	from, to := next.from.month()
	if last := len(s) - 1; last >= 0 && s[last].from == from && s[last].to == to {
		s[last].sum = s[last].plus(next.sum)
		return s
	}
	return append(s, span{from, to, sum{}.plus(next.sum)})
}

// firstDaily is the first day that has its own sum: the first day of the month that was daily days
// ago.
func firstDaily(now time.Time) dayNumber {
	first, _ := dayNumber(now.Unix()/86400 - daily).month()
	return first
}

// lack is an object that a sum counts, and that was not in the bundle.
type lack struct {
	day    dayNumber
	object uint64
}

// lacks are the lacks of one instrument, the days ascending.
type lacks []lack

// of returns the lacking objects of a day.
func (l lacks) of(day dayNumber) map[uint64]bool {
	var all map[uint64]bool
	for _, one := range l {
		if one.day == day {
			if all == nil {
				all = map[uint64]bool{}
			}
			all[one.object] = true
		}
	}
	return all
}
