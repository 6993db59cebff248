// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"testing"
	"time"
)

// The ID of a duplicate that is announced as an object of its own is no other one of its
// IDs, the same each time, and names the instrument and day as all IDs do.
func TestOrphanID(t *testing.T) {
	n := Notice{Site: "thule", Instrument: "allsky-1", Record: Record{Digest: Digest{1, 2}, Gateway: "gateway-0", Incarnation: "one",
		ReceivedAt: time.Date(2026, 11, 21, 23, 59, 59, 987_654_321, time.UTC), State: StateCurrent, Size: 7}}
	raw := RawKey(n.Site, n.Instrument, n.ReceivedAt, n.Digest)
	pack := PackKey(n.Site, n.ReceivedAt, n.Gateway, n.Incarnation, 1)
	seen := map[string]bool{SpooledID(n): true}
	for _, id := range []string{MemberID(pack, 512), raw, SpooledID(n)} {
		n.ID, n.Key = id, raw
		is := OrphanID(n)
		if want := SpooledID(n) + "-orphan-1"; is != want || seen[is] && is == id {
			t.Errorf("of %s: %s, want %s", id, is, want)
		}
	}
	n.ID = raw
	for range 12 {
		seen[n.ID] = true
		n.ID = OrphanID(n)
		if seen[n.ID] {
			t.Fatalf("%s is the ID of two", n.ID)
		}
		if day, ok := DayOfID(n.ID); !ok || day != "2026-11-21" {
			t.Errorf("%s: day %q", n.ID, day)
		}
		if key, packed := KeyOfID(n.ID); packed || key != n.ID {
			t.Errorf("%s: key %q", n.ID, key)
		}
		if _, isKey := ReceivedAtOfKey(n.ID); isKey || IsNamedID(n.ID) {
			t.Errorf("%s looks like a key", n.ID)
		}
		if err := n.CheckPlace(); err != nil {
			t.Error(err)
		}
		if _, instrument, err := InstrumentOfKey(n.ID); err != nil || instrument != n.Instrument {
			t.Errorf("%s: instrument %q, %v", n.ID, instrument, err)
		}
	}
}
