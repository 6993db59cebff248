// SPDX-License-Identifier: Apache-2.0

package archivist

import (
	"maps"
	"slices"
	"sync"

	"github.com/substorm/substorm/archivist/retention"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// declared has the entries of the Site's own instruments of a registry. They are collected once for each snapshot, because copiers ask for them
// twice a second. Instruments of other Sites are left out: their own Site is responsible for what is due, described, copied or left to expire.
type declared struct {
	registry *registry.Registry

	mu      sync.Mutex
	of      *registry.Snapshot
	entries []wire.InstrumentEntry
}

// all returns the entries, which callers must not write to, and false before the first complete
// registry.
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

// partners returns the partners that are pushed to and the readers that pull, by the names that they have in the ledger, and false before
// the first complete registry.
func partners(s *registry.Snapshot) (map[string]retention.Partner, bool) {
	all := map[string]retention.Partner{}
	for name, m := range s.Mirrors {
		if m.Direction == wire.MirrorPush {
			all[name] = retention.Partner{Push: &m}
		}
	}
	for name, e := range s.Readers {
		if e.Pulls != nil {
			all[wire.PullerName(name)] = retention.Partner{Pull: &e}
		}
	}
	for key := range s.Problems { // what was known of it may be out of date
		if name, is := wire.ParseRegistryMirrorKey(key); is {
			all[name] = retention.Partner{}
		} else if name, is := wire.ParseRegistryReaderKey(key); is {
			all[wire.PullerName(name)] = retention.Partner{}
		}
	}
	return all, s.Revision > 0
}
