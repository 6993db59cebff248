// SPDX-License-Identifier: Apache-2.0

package archivist

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/archivist/retention"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// TestPartners: partners that are pushed to count, and so do readers that pull, and those whose entry
// cannot be read.
func TestPartners(t *testing.T) {
	t.Parallel()
	declares := map[string]wire.MirrorEntry{
		"uni": {Partner: "uni", Direction: wire.MirrorPush, HoldMillis: 1}, "old": {Partner: "old", Direction: wire.MirrorPush}, "arctic": {Partner: "arctic", Direction: wire.MirrorPull},
	}
	problems := map[string]string{wire.RegistryMirrorKey("nmdc"): "?", wire.RegistryMirrorKey("old"): "?", wire.RegistryInstrumentKey("mag-1"): "?", wire.RegistryReaderKey("lost"): "?"}
	hub := wire.ReaderEntry{Reader: "hub", Pulls: &wire.PullsEntry{HoldMillis: 1}}
	readers := map[string]wire.ReaderEntry{"hub": hub, "person": {Reader: "person"}}
	all, known := partners(&registry.Snapshot{Revision: 3, Mirrors: declares, Readers: readers, Problems: problems})
	uni := declares["uni"]
	if diff := cmp.Diff(map[string]retention.Partner{"uni": {Push: &uni}, "old": {}, "nmdc": {}, "reader_hub": {Pull: &hub}, "reader_lost": {}}, all); diff != "" || !known {
		t.Errorf("known %t (-want +got):\n%s", known, diff)
	}
	if _, known := partners(&registry.Snapshot{Mirrors: declares}); known {
		t.Error("they are known before there is a registry")
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
