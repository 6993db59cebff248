// SPDX-License-Identifier: Apache-2.0

package archivist

import (
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// declared has the entries of the Site's own instruments of a registry. They are collected once for each snapshot: who copies asks for them each second.
// Of the instruments of other Sites nothing is due, described, copied or left to expire: that is their Site's to do.
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
		d.of = s
		d.entries = slices.DeleteFunc(slices.Collect(maps.Values(s.Instruments)), func(e wire.InstrumentEntry) bool { return e.Origin != "" })
	}
	return d.entries, s.Revision > 0
}

// partner returns how long what is due to expire waits for a partner of mirrors at most, and false for one that is not declared. What a
// registry says that cannot be read, or is not complete, is not known: then the partner counts as long as an Instrument says.
func partner(s *registry.Snapshot, name string) (hold time.Duration, declared bool) {
	if s.Revision == 0 || s.Problems[wire.RegistryMirrorKey(name)] != "" {
		return math.MaxInt64, true
	}
	m, is := s.Mirrors[name]
	return m.Hold(), is
}
