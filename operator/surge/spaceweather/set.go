// SPDX-License-Identifier: Apache-2.0

package spaceweather

import (
	"time"

	"github.com/substorm/substorm/operator/surge"
)

// Set are the pollers of a Site, in the order in which its sources are declared.
type Set struct{ pollers []*Poller }

// NewSet returns a set of pollers; the caller runs them. A source that is declared as one, such as the solar wind, may be read in several
// documents: then several pollers have its name, each with other quantities.
func NewSet(pollers ...*Poller) *Set { return &Set{pollers: pollers} }

// States are those of the pollers, in their order.
func (s *Set) States() []State {
	states := make([]State, 0, len(s.pollers))
	for _, p := range s.pollers {
		states = append(states, p.State())
	}
	return states
}

// Signals has one signal for each quantity that any source has. If several sources have it, it is the signal of the first one that is
// fresh, and if none is, the one with the newest sample: so a Site can declare a second source for the time in which the first one fails.
func (s *Set) Signals(now time.Time) surge.Signals {
	chosen := map[surge.Quantity]*surge.Signal{}
	for _, p := range s.pollers {
		for _, signal := range p.Signals() {
			if best := chosen[signal.Quantity]; best == nil || better(signal, best, now) {
				chosen[signal.Quantity] = signal
			}
		}
	}
	var all surge.Signals
	for _, q := range declared(chosen) {
		all = append(all, chosen[q])
	}
	return all
}

// better says whether a signal is used instead of one that was declared before it.
func better(signal, before *surge.Signal, now time.Time) bool {
	if before.Fresh(now) || signal.Fresh(now) {
		return !before.Fresh(now)
	}
	newest, is := signal.Newest()
	old, was := before.Newest()
	return is && (!was || newest.To.After(old.To))
}
