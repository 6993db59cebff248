// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// replicated are the names of a Site's Instruments that keep the pods of a pool on nodes of
// their own, by pool, and the pools that know that they have some.
type replicated struct {
	names map[string]map[string]bool
	told  map[string]bool
}

// move notes that an Instrument asks another pool than before to keep its pods apart; "" is no pool.
func (r *replicated) move(instrument, from, to string) {
	delete(r.names[from], instrument)
	if to == "" {
		return
	}
	if r.names[to] == nil {
		r.names[to] = map[string]bool{}
	}
	r.names[to][instrument] = true
}

// replicatedOn returns the Instruments that keep a pool's pods on nodes of their own, and
// whether that is known.
func (f *facts) replicatedOn(pool string) (names []string, judged bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.replicated.names[pool])), f.judged
}

// updateReplicated returns the pools that gained their first such Instrument or lost the last one; at first all.
func (f *facts) updateReplicated(pools []v1alpha1.IngestGateway) (changed []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	told := map[string]bool{}
	for i := range pools {
		name := pools[i].Name
		told[name] = len(f.replicated.names[name]) > 0
		if was, known := f.replicated.told[name]; !known || was != told[name] {
			changed = append(changed, name)
		}
	}
	f.replicated.told = told
	return changed
}
