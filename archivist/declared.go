// SPDX-License-Identifier: Apache-2.0

package archivist

import (
	"maps"
	"slices"
	"sync"

	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// declared has the entries of a registry's instruments. They are collected once for each snapshot: who copies asks for them each second.
type declared struct {
	registry *registry.Registry

	mu      sync.Mutex
	of      *registry.Snapshot
	entries []wire.InstrumentEntry
}

// all returns the entries, which nobody may write to, and false before the first complete registry.
func (d *declared) all() ([]wire.InstrumentEntry, bool) {
	s := d.registry.Snapshot()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of != s {
		d.of, d.entries = s, slices.Collect(maps.Values(s.Instruments))
	}
	return d.entries, s.Revision > 0
}
