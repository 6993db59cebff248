// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// roster knows which addresses answered and which to try next. It spreads
// objects over the addresses that work and comes back to the others after a
// pause that grows from one second to thirty, a little of it by chance: senders
// that lost a server together do not come back to it together.
type roster struct {
	mu    sync.Mutex
	addrs []rosterEntry
	next  int
	now   func() time.Time
}

type rosterEntry struct {
	address  string
	failures int
	retryAt  time.Time
	// heldUntil is when it wants to be asked again: not before.
	heldUntil time.Time
	// inFlight objects are on their way to it.
	inFlight int
}

func newRoster(addresses []string) *roster {
	r := &roster{next: rand.IntN(len(addresses)), now: time.Now}
	for _, a := range addresses {
		r.addrs = append(r.addrs, rosterEntry{address: a})
	}
	return r
}

// works reports whether to try an address: it answered, or its pause after a failure is over and no
// other object is trying it meanwhile.
func (e *rosterEntry) works(now time.Time) bool {
	return !e.heldUntil.After(now) && !e.retryAt.After(now) && (e.failures == 0 || e.inFlight == 0)
}

// pick returns an address that is not in tried: one that works, else the one
// whose pause ends first. It returns false once all were tried.
func (r *roster) pick(tried []string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, best := r.now(), -1
	for i := range r.addrs {
		k := (r.next + i) % len(r.addrs)
		e := &r.addrs[k]
		if e.heldUntil.After(now) || slices.Contains(tried, e.address) {
			continue
		}
		if e.works(now) {
			best = k
			break
		}
		if best < 0 || e.retryAt.Before(r.addrs[best].retryAt) {
			best = k
		}
	}
	if best < 0 {
		return "", false
	}
	r.next = (best + 1) % len(r.addrs)
	return r.addrs[best].address, true
}

// spare returns an address that works and is not in tried, beside one that is
// silent. Idle: nothing is on its way to it.
func (r *roster) spare(tried []string, idle bool) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for i := range r.addrs {
		k := (r.next + i) % len(r.addrs)
		e := &r.addrs[k]
		if e.works(now) && !(idle && e.inFlight > 0) && !slices.Contains(tried, e.address) {
			r.next = (k + 1) % len(r.addrs)
			return e.address, true
		}
	}
	return "", false
}

// worked records that the address answered.
func (r *roster) worked(address string) {
	r.change(address, func(e *rosterEntry) { e.failures, e.retryAt, e.heldUntil = 0, time.Time{}, time.Time{} })
}

// failed records that the address did not answer, or not with a receipt.
func (r *roster) failed(address string) { r.change(address, r.pause) }

// silent records that the address has not answered for longer than usual. If several objects wait
// for it, only the first one counts.
func (r *roster) silent(address string) {
	r.change(address, func(e *rosterEntry) {
		if !e.retryAt.After(r.now()) {
			r.pause(e)
		}
	})
}

func (r *roster) pause(e *rosterEntry) {
	pause := min(time.Second<<min(e.failures, 5), 30*time.Second)
	e.retryAt = r.now().Add(pause - rand.N(pause/4))
	e.failures++
}

// hold records that the address works, and asks to be left alone for a while.
func (r *roster) hold(address string, wait time.Duration) {
	r.change(address, func(e *rosterEntry) { e.failures, e.retryAt, e.heldUntil = 0, time.Time{}, r.now().Add(wait) })
}

// enter and leave count what is on its way to an address.
func (r *roster) enter(address string) { r.change(address, func(e *rosterEntry) { e.inFlight++ }) }
func (r *roster) leave(address string) { r.change(address, func(e *rosterEntry) { e.inFlight-- }) }

func (r *roster) change(address string, how func(*rosterEntry)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.addrs {
		if r.addrs[i].address == address {
			how(&r.addrs[i])
		}
	}
}
