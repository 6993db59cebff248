// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errAside: another try of the object was faster.
var errAside = errors.New("another server has it")

// maxFlights is how many tries of an object are on their way at a time, at most.
const maxFlights = 2

// race is an object on its way to one server and, where that falls silent, to
// another: the first receipt wins. It belongs to one goroutine, but for begins.
type race struct {
	*delivery
	ctx   context.Context
	it    item
	res   *Result
	tried []string
	done  chan *flight

	mu      sync.Mutex // for flights
	flights []*flight
	// blind: this object is the one that is hedged without knowing what is usual.
	blind bool
}

// flight is one try.
type flight struct {
	address string
	pulse   *pulse
	cancel  context.CancelFunc
	verdict verdict
}

// round tries each address once and returns true if there is nothing more to try.
func (d *delivery) round(ctx context.Context, it item, begin time.Time, res *Result) bool {
	r := &race{delivery: d, ctx: ctx, it: it, res: res, done: make(chan *flight, maxFlights)}
	defer r.drop()
	for {
		if len(r.flights) == 0 && !r.next() {
			return false
		}
		f := r.wait()
		if r.land(f) {
			return true
		}
		if len(r.flights) > 0 {
			continue
		}
		if ctx.Err() != nil || d.giveUpAfter > 0 && time.Since(begin) >= d.giveUpAfter {
			return false
		}
		d.again(it, f.address, f.verdict.err)
	}
}

// next tries the address whose turn it is.
func (r *race) next() bool {
	address, ok := r.roster.pick(r.tried)
	if ok {
		r.start(address)
	} else if len(r.tried) == 0 {
		r.res.Error = "all servers ask for a pause before the next try"
		r.res.Server = "all"
	}
	return ok
}

func (r *race) start(address string) {
	r.tried = append(r.tried, address)
	r.res.Tries++
	ctx, cancel := context.WithCancel(r.ctx)
	f := &flight{address: address, pulse: newPulse(), cancel: cancel}
	f.pulse.begins = func() bool { return r.begins(f) }
	r.mu.Lock()
	r.flights = append(r.flights, f)
	r.mu.Unlock()
	r.roster.enter(address)
	go func() {
		f.verdict = r.attempt(ctx, address, r.it, f.pulse)
		r.roster.leave(address)
		r.done <- f
	}()
}

// begins reports whether a try may send the object's bytes: not while those of
// another are getting on. Over one thin link both would be slower.
func (r *race) begins(f *flight) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.flights {
		if other != f && other.pulse.hasBegun() && !r.isSilent(other) {
			return false
		}
	}
	f.pulse.begin()
	return true
}

// isSilent reports whether a try has shown no sign of activity for too long.
func (r *race) isSilent(f *flight) bool {
	silence, _ := f.pulse.silence(time.Now())
	limit, _ := r.hedge.limit(f.address)
	return silence > limit
}

// wait waits for a try to end, and tries another server where the only one on its
// way is silent.
func (r *race) wait() *flight {
	if r.hedge.after == 0 {
		return <-r.done
	}
	ticks := time.NewTicker(max(r.hedge.after/10, time.Millisecond))
	defer ticks.Stop()
	for {
		select {
		case f := <-r.done:
			return f
		case <-ticks.C:
			if len(r.flights) < maxFlights {
				r.lookElsewhere(r.flights[0])
			}
		}
	}
}

// lookElsewhere tries another server where f has fallen silent. One that has the
// whole object owes a receipt, and one that does not accept costs nothing; one that
// takes no more bytes may have a thin link, so that only a server to which nothing
// is on its way is better.
func (r *race) lookElsewhere(f *flight) {
	silence, still := f.pulse.silence(time.Now())
	limit, usual := r.hedge.limit(f.address)
	if silence <= limit {
		return
	}
	// Also one that was tried before, if it works again by now.
	address, ok := r.roster.spare([]string{f.address}, !still)
	if !ok {
		return
	}
	if !usual && !r.blind {
		if !r.hedge.blind.CompareAndSwap(false, true) {
			return
		}
		r.blind = true
	}
	r.roster.silent(f.address)
	r.again(r.it, f.address, errSilent)
	r.start(address)
}

var errSilent = errors.New("the server is silent")

// land takes a try off, and returns true where it is final.
func (r *race) land(f *flight) bool {
	r.remove(f)
	if errors.Is(f.verdict.err, errAside) {
		r.tried = removed(r.tried, f.address)
		return false
	}
	if f.verdict.receipted {
		r.hedge.received(f.address, f.pulse)
	}
	return r.take(r.res, f.address, f.verdict)
}

func (r *race) remove(f *flight) {
	f.cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flights = removed(r.flights, f)
}

// drop ends what is still on its way. An object that was sent to its end may be stored,
// and a receipt that comes in this moment counts.
func (r *race) drop() {
	for _, f := range r.flights {
		f.cancel()
	}
	for len(r.flights) > 0 {
		f := <-r.done
		r.remove(f)
		switch {
		case r.res.Outcome == Received:
		case f.verdict.receipted:
			r.take(r.res, f.address, f.verdict)
		case f.verdict.whole:
			r.res.Outcome = Unknown
		}
	}
	if r.blind {
		r.hedge.blind.Store(false)
	}
}

// removed returns all without one of them.
func removed[T comparable](all []T, one T) []T {
	var rest []T
	for _, each := range all {
		if each != one {
			rest = append(rest, each)
		}
	}
	return rest
}
