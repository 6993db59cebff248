// SPDX-License-Identifier: Apache-2.0

package archivist

import (
	"math"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// TestPartner: one that is not declared holds nothing; one of which that is not known holds as long as an Instrument says.
func TestPartner(t *testing.T) {
	t.Parallel()
	declares := map[string]wire.MirrorEntry{"uni": {Partner: "uni", HoldMillis: time.Hour.Milliseconds()}}
	for _, c := range []struct {
		what     string
		s        *registry.Snapshot
		name     string
		hold     time.Duration
		declared bool
	}{
		{"declared", &registry.Snapshot{Revision: 3, Mirrors: declares}, "uni", time.Hour, true},
		{"not declared", &registry.Snapshot{Revision: 3, Mirrors: declares}, "nmdc", 0, false},
		{"no registry yet", &registry.Snapshot{}, "uni", math.MaxInt64, true},
		{"an entry that cannot be read", &registry.Snapshot{Revision: 3, Problems: map[string]string{wire.RegistryMirrorKey("nmdc"): "?"}}, "nmdc", math.MaxInt64, true},
	} {
		if hold, declared := partner(c.s, c.name); hold != c.hold || declared != c.declared {
			t.Errorf("%s: %s, %t", c.what, hold, declared)
		}
	}
}

// TestDeclaredOwn: the instruments of other Sites are known, and nothing is declared of them.
func TestDeclaredOwn(t *testing.T) {
	t.Parallel()
	guest := wire.GuestEntry{Origin: "arctic", Instrument: "mag-1"}
	d := declared{registry: registry.From(&registry.Snapshot{Revision: 1, Instruments: map[string]wire.InstrumentEntry{
		"mag-1": {Instrument: "mag-1"}, guest.Name(): guest.Entry(),
	}})}
	if all, known := d.all(); !known || len(all) != 1 || all[0].Instrument != "mag-1" {
		t.Errorf("%v, %t", all, known)
	}
}
