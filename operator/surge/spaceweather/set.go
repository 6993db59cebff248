// SPDX-License-Identifier: Apache-2.0

package spaceweather

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/substorm/substorm/operator/surge"
)

// Set are the pollers of a Site, in the order in which its sources are declared.
type Set struct{ pollers []*Poller }

// NewSet returns the pollers of sources. What is declared as one source, such as the solar wind, may be read in several documents: then
// several have its name, each with other quantities.
func NewSet(sources ...Config) (*Set, error) {
	type told struct {
		source   string
		quantity surge.Quantity
	}
	set, all := &Set{}, map[told]bool{}
	for _, cfg := range sources {
		p, err := NewPoller(cfg)
		if err != nil {
			return nil, err
		}
		for _, q := range cfg.Source.Quantities() {
			if all[told{cfg.Name, q}] {
				return nil, fmt.Errorf("source %s tells %s twice: give the second one another name", cfg.Name, q)
			}
			all[told{cfg.Name, q}] = true
		}
		set.pollers = append(set.pollers, p)
	}
	return set, nil
}

// Run asks all sources until ctx ends, each in a goroutine of its own: none waits for another.
func (s *Set) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, p := range s.pollers {
		all.Go(func() { p.Run(ctx) })
	}
	all.Wait()
}

// States are those of the pollers, in their order.
func (s *Set) States() []State {
	states := make([]State, 0, len(s.pollers))
	for _, p := range s.pollers {
		states = append(states, p.State())
	}
	return states
}

// Signals are one of each quantity that any source tells. If several tell it, it is that of the first one that is fresh, and if none
// is, that with the newest sample: so a Site can declare a second source for the time in which the first one fails.
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
