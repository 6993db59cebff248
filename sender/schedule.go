// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"github.com/substorm/substorm/sender/queue"
)

// schedule decides what of a queue is sent next. It does no I/O and takes the
// time as an argument. It is not safe for concurrent use.
type schedule struct {
	// newestFirst: else the oldest is sent first.
	newestFirst bool
	// share of the bytes that the oldest get where newestFirst, from 0 to 1.
	share  float64
	budget budget

	// waiting in the order of time.
	waiting []queue.Entry
	// arrived is what servers have of entries that are half sent, in bytes by
	// number: only the rest counts for the budget.
	arrived map[uint32]int64
	// inFlight are on their way, by number.
	inFlight map[uint32]queue.Entry
	bytes    int64 // of both
	// stuck objects cannot be read; they stay until an operator intervenes.
	stuck int

	// saved is what the oldest may be sent for, in bytes: share of what was sent
	// of the newest, less the rest of what was sent of the oldest.
	saved float64

	// failures in a row, and until when nothing is tried because of them.
	failures int
	pause    time.Time
	// postponed objects failed, by number: others go before them.
	postponed map[uint32]postponed
	// failed objects since the last success.
	failed map[uint32]bool
}

type postponed struct {
	failures int
	until    time.Time
}

func newSchedule(newestFirst bool, share float64, dailyBudget int64) *schedule {
	return &schedule{
		newestFirst: newestFirst, share: share, budget: budget{limit: dailyBudget},
		inFlight: map[uint32]queue.Entry{}, postponed: map[uint32]postponed{}, failed: map[uint32]bool{}, arrived: map[uint32]int64{},
	}
}

// add puts entries among the waiting ones.
func (s *schedule) add(entries ...queue.Entry) {
	for _, e := range entries {
		s.bytes += e.Size
		s.insert(e)
	}
}

func (s *schedule) insert(e queue.Entry) {
	at := len(s.waiting)
	if at > 0 && e.Before(s.waiting[at-1]) {
		at = sort.Search(at, func(i int) bool { return e.Before(s.waiting[i]) })
	}
	s.waiting = slices.Insert(s.waiting, at, e)
}

// looks bounds how many entries are looked at for one that may be sent now.
const looks = 256

// pick takes what is sent next. If nothing may be sent now, it returns after how long something may
// be; 0 if that does not depend on time.
func (s *schedule) pick(now time.Time) (e queue.Entry, wait time.Duration, ok bool) {
	switch {
	case len(s.waiting) == 0:
		return queue.Entry{}, 0, false
	case now.Before(s.pause):
		return queue.Entry{}, s.pause.Sub(now), false
	}
	last := len(s.waiting) - 1
	fresh := s.newestFirst && !s.oldestIsDue()
	fallback := -1
	for i := range min(looks, len(s.waiting)) {
		at := i
		if fresh {
			at = last - i
		}
		e := s.waiting[at]
		if !s.budget.admits(now, s.left(e)) {
			continue
		}
		if now.Before(s.postponed[e.Number].until) {
			if fallback < 0 {
				fallback = at
			}
			continue
		}
		return s.take(at, fresh), 0, true
	}
	if fallback >= 0 {
		return s.take(fallback, fresh), 0, true
	}
	return queue.Entry{}, nextDay(now), false
}

// oldestIsDue reports whether enough is saved for the oldest.
func (s *schedule) oldestIsDue() bool {
	cost := (1 - s.share) * float64(s.waiting[0].Size)
	s.saved = min(s.saved, 2*cost+1)
	return s.share > 0 && s.saved >= cost
}

func (s *schedule) take(at int, fresh bool) queue.Entry {
	e := s.waiting[at]
	switch size := float64(e.Size); {
	case len(s.waiting) == 1: // it is both
	case fresh:
		s.saved += s.share * size
	default:
		s.saved -= (1 - s.share) * size
	}
	if at == 0 {
		s.waiting = s.waiting[1:] // the space is had back when add needs more
	} else {
		s.waiting = slices.Delete(s.waiting, at, at+1)
	}
	s.inFlight[e.Number] = e
	if s.budget.limit > 0 {
		s.budget.promised += s.left(e)
	}
	return e
}

// done takes an entry back from its way.
func (s *schedule) done(e queue.Entry) {
	delete(s.inFlight, e.Number)
	if s.budget.limit > 0 {
		s.budget.promised -= s.left(e)
	}
}

// left is what has to be sent of an entry, in bytes. It changes only while the
// entry waits.
func (s *schedule) left(e queue.Entry) int64 { return e.Size - s.arrived[e.Number] }

// received: the entry is no more of the queue.
func (s *schedule) received(e queue.Entry) {
	s.done(e)
	s.bytes -= e.Size
	delete(s.postponed, e.Number)
	delete(s.arrived, e.Number)
	if len(s.failed) > 1 { // it was not the objects that failed
		clear(s.postponed)
	}
	s.failures, s.pause = 0, time.Time{}
	clear(s.failed)
}

// aside: the entry is not sent any more. If stays, it is kept in the queue.
func (s *schedule) aside(e queue.Entry, stays bool) {
	s.done(e)
	delete(s.postponed, e.Number)
	if stays {
		s.stuck++
		return
	}
	s.bytes -= e.Size
}

// postpone postpones an entry that no server took. Until a success all entries wait, longer after
// each failure; then another entry, if there is one, is tried first.
func (s *schedule) postpone(e queue.Entry, now time.Time) {
	s.done(e)
	s.insert(e)
	if len(s.postponed) > 10_000 {
		clear(s.postponed)
	}
	p := s.postponed[e.Number]
	p.failures++
	p.until = now.Add(min(firstPause<<min(p.failures, 20), 5*time.Minute))
	s.postponed[e.Number] = p
	s.failed[e.Number] = true
	if now.Before(s.pause) {
		return // of the same outage
	}
	wait := min(firstPause<<min(s.failures, 20), maxPause)
	s.failures++
	s.pause = now.Add(wait/2 + rand.N(wait/2)) // so that senders that failed together do not come back together
}

// noteProgress handles a transfer that broke off: servers have so many bytes of the entry, more than
// before. The connection works, and the transfer is resumed soon.
func (s *schedule) noteProgress(e queue.Entry, arrived int64, now time.Time) {
	s.done(e)
	s.insert(e)
	s.arrived[e.Number] = min(arrived, e.Size-1)
	delete(s.postponed, e.Number)
	s.failures, s.pause = 0, now.Add(firstPause)
}

// owed returns what has no receipt, and when the oldest of it was observed.
func (s *schedule) owed() (objects, bytes int64, oldest time.Time) {
	objects = int64(len(s.waiting) + len(s.inFlight) + s.stuck)
	var first *queue.Entry
	if len(s.waiting) > 0 {
		first = &s.waiting[0]
	}
	for _, e := range s.inFlight {
		if first == nil || e.Before(*first) {
			first = &e
		}
	}
	if first != nil {
		oldest = first.Time()
	}
	return objects, s.bytes, oldest
}
