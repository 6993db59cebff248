// SPDX-License-Identifier: Apache-2.0

package archivist

import (
	"testing"

	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// TestDeclared: entries are collected once for each snapshot, and anew for the next.
func TestDeclared(t *testing.T) {
	with := func(revision int64, names ...string) *registry.Registry {
		s := &registry.Snapshot{Revision: revision, Instruments: map[string]wire.InstrumentEntry{}}
		for _, n := range names {
			s.Instruments[n] = wire.InstrumentEntry{Instrument: n}
		}
		return registry.From(s)
	}
	d := &declared{registry: with(0)}
	if all, known := d.all(); known || len(all) != 0 {
		t.Errorf("before the first complete registry: %v, %v", all, known)
	}
	d.registry = with(1, "a", "b")
	first, known := d.all()
	if !known || len(first) != 2 {
		t.Fatalf("%v, %v", first, known)
	}
	if again, _ := d.all(); &again[0] != &first[0] {
		t.Error("they are collected again")
	}
	d.registry = with(2, "b")
	if all, _ := d.all(); len(all) != 1 || all[0].Instrument != "b" {
		t.Errorf("after a change: %v", all)
	}
}
