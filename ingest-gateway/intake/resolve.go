// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// Scope is what a gateway pod may receive.
type Scope struct {
	// Pool is the IngestGateway whose instruments are received.
	Pool string
	// FirstPort and LastPort bound the ports, both included.
	FirstPort, LastPort uint16
}

// resolve returns the snapshot that follows prev once the registry is as r says.
//
// A complete registry is taken as it is. Otherwise it is on its way: what is new or changed
// applies at once, beside all that was claimed before; nothing is taken away, and an older
// claim keeps its port and addresses from a newer one. An instrument that did not change
// keeps its identity, and so do its listeners.
func resolve(prev *Snapshot, r *registry.Snapshot, scope Scope) *Snapshot {
	next := &Snapshot{
		Revision: r.Revision, registry: r,
		Problems:    map[string]string{},
		known:       map[string]*Instrument{},
		instruments: map[string]*Instrument{},
		claims:      map[place]*claims{},
		streams:     map[uint16]*Listener{},
	}
	for key, problem := range r.Problems {
		if name, isInstrument := wire.ParseRegistryInstrumentKey(key); isInstrument {
			next.Problems[name] = "registry entry: " + problem
		}
	}
	for name, entry := range r.Instruments {
		in := prev.known[name]
		if in == nil || !reflect.DeepEqual(in.entry, entry) {
			made, err := NewInstrument(entry)
			if err == nil {
				in = made
			} else { // what was known stays
				next.Problems[name] = "registry entry: " + err.Error()
			}
		}
		if in == nil {
			continue
		}
		next.known[name] = in
		if in.Pool == scope.Pool {
			next.instruments[name] = in
		}
	}
	held := prev
	if r.Complete {
		held = &Snapshot{}
	}
	next.claimAll(held, scope)
	return next
}

// clash says what keeps w out, and what to do.
func clash(w, holder *Listener) string {
	if w.encryptsOtherwise(holder) {
		return fmt.Sprintf("%s port %d: instrument %s has it with tls %q, and it cannot have tls %q too: give both the same, or another port",
			w.Protocol, w.Port, holder.Instrument.Name, holder.TLS, w.TLS)
	}
	if w.Protocol != holder.Protocol {
		return fmt.Sprintf("%s port %d: instrument %s has it for %s: give one of them another port",
			w.Protocol, w.Port, holder.Instrument.Name, holder.Protocol)
	}
	return fmt.Sprintf("%s port %d: instrument %s has it for an address that both name: give one of them other sources or another port",
		w.Protocol, w.Port, holder.Instrument.Name)
}

// claimAll claims the listeners of all instruments, the oldest first, and then what
// is still held from before.
func (s *Snapshot) claimAll(held *Snapshot, scope Scope) {
	order := slices.SortedFunc(maps.Values(s.instruments), func(a, b *Instrument) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Name, b.Name))
	})
	for _, in := range order {
		for _, w := range in.Listeners {
			if w.Port < scope.FirstPort || w.Port > scope.LastPort {
				s.Problems[in.Name] = fmt.Sprintf("%s port %d lies outside the pool's range %d-%d: give it a port within",
					w.Protocol, w.Port, scope.FirstPort, scope.LastPort)
				continue
			}
			if o := cmp.Or(held.conflict(w), s.conflict(w)); o != nil {
				s.Problems[in.Name] = clash(w, o)
				continue
			}
			s.claim(w)
		}
	}
	for _, w := range held.listeners {
		s.claim(w)
	}
}
