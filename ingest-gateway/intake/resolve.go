// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Scope is what a gateway pod may receive.
type Scope struct {
	// Pool is the IngestGateway whose instruments are received.
	Pool string
	// FirstPort and LastPort bound the ports, both included.
	FirstPort, LastPort uint16
}

// bucket is what is known of the registry's bucket at one moment.
type bucket struct {
	// epoch is when the bucket was created: a bucket that was deleted and made
	// again has a newer one.
	epoch time.Time
	// entries by instrument, those of other pools included.
	entries map[string]bucketEntry
	marker  wire.RegistryComplete
}

// bucketEntry is one instrument's entry: instrument, or why it cannot be read.
type bucketEntry struct {
	instrument *Instrument
	problem    string
}

// complete says whether the bucket holds all of the revision that its marker names.
func (b *bucket) complete() bool {
	if b.marker.Revision == 0 || b.marker.Count != len(b.entries) {
		return false
	}
	for _, e := range b.entries {
		if e.instrument != nil && e.instrument.Revision > b.marker.Revision {
			return false
		}
	}
	return true
}

// resolve returns the snapshot that follows prev once the bucket is as b says.
//
// A complete bucket of a revision at least prev's (or of a newer bucket) is
// taken as it is. Otherwise the registry is on its way: what is new or changed
// applies at once, beside all that was claimed before; nothing is taken away,
// and an older claim keeps its port and addresses from a newer one.
func resolve(prev *Snapshot, b *bucket, scope Scope) *Snapshot {
	next := &Snapshot{
		Revision: prev.Revision, epoch: prev.epoch,
		Problems:    map[string]string{},
		entries:     map[string]wire.InstrumentEntry{},
		instruments: map[string]*Instrument{},
		claims:      map[place]*claims{},
		streams:     map[uint16]*Way{},
	}
	newer := b.epoch.After(prev.epoch)
	next.complete = b.complete() && (b.marker.Revision >= prev.Revision || newer)
	if next.complete {
		next.Revision, next.epoch = b.marker.Revision, b.epoch
	} else {
		maps.Copy(next.instruments, prev.instruments)
		maps.Copy(next.entries, prev.entries)
	}
	for name, e := range b.entries {
		old, known := prev.entries[name]
		switch {
		case e.instrument == nil:
			next.Problems[name] = e.problem
			if known {
				next.entries[name] = old
			}
			if in := prev.instruments[name]; in != nil {
				next.instruments[name] = in
			}
		case !known || next.complete || newer || e.instrument.Revision > old.Revision:
			next.entries[name] = e.instrument.entry
			delete(next.instruments, name) // it may have moved to another pool
			if e.instrument.Pool == scope.Pool {
				next.instruments[name] = e.instrument
			}
		}
	}
	held := prev
	if next.complete {
		held = &Snapshot{}
	}
	next.claimAll(held, scope)
	return next
}

// clash says what keeps w out, and what to do.
func clash(w, holder *Way) string {
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

// claimAll claims the ways of all instruments, the oldest first, and then what
// is still held from before.
func (s *Snapshot) claimAll(held *Snapshot, scope Scope) {
	order := slices.SortedFunc(maps.Values(s.instruments), func(a, b *Instrument) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Name, b.Name))
	})
	for _, in := range order {
		for _, w := range in.Ways {
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
	for _, w := range held.ways {
		s.claim(w)
	}
}
