// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"net/netip"
	"sync/atomic"
)

// Registry is the snapshot in force. Any number of goroutines may ask it.
type Registry struct {
	// Refusals are of senders whom the registry did not know.
	Refusals Refusals

	current atomic.Pointer[Snapshot]
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	r := &Registry{}
	r.current.Store(&Snapshot{})
	return r
}

// Current returns the snapshot in force.
func (r *Registry) Current() *Snapshot { return r.current.Load() }

// Lookup asks the snapshot in force, see Snapshot.Lookup.
func (r *Registry) Lookup(protocol string, port uint16, addr netip.Addr) (*Listener, bool) {
	return r.Current().Lookup(protocol, port, addr)
}
