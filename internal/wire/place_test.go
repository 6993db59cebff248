// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"testing"
	"time"
)

// A member of a pack is one of its Site's packs of the day of receipt, and at the place that
// its ID says.
func TestPlaceOfMember(t *testing.T) {
	at := time.Date(2026, 11, 21, 23, 59, 59, 0, time.UTC)
	pack := PackKey("thule", at, "gateway-0", "one", 1)
	compacted := PackKey("thule", at, ArchivistWriter, "0123456789abcdef", 1)
	for name, c := range map[string]struct {
		key, id string
		offset  int64
		ok      bool
	}{
		"as a gateway packs it":     {pack, MemberID(pack, 1536), 1536, true},
		"out of a spool":            {pack, SpooledID(Notice{Site: "thule", Instrument: "allsky-1", Record: Record{ReceivedAt: at}}), 1536, true},
		"moved by a compaction":     {compacted, MemberID(pack, 1536), 4096, true},
		"at another place":          {pack, MemberID(pack, 1536), 4096, false},
		"of another Site":           {PackKey("other", at, "gateway-0", "one", 1), MemberID(PackKey("other", at, "gateway-0", "one", 1), 1536), 1536, false},
		"of another day":            {PackKey("thule", at.Add(time.Hour), "gateway-0", "one", 1), MemberID(PackKey("thule", at.Add(time.Hour), "gateway-0", "one", 1), 1536), 1536, false},
		"another day's by its ID":   {pack, MemberID(PackKey("thule", at.Add(time.Hour), "gateway-0", "one", 1), 1536), 1536, false},
		"what is no pack":           {PacksPrefix("thule") + "x.tar", MemberID(PacksPrefix("thule")+"x.tar", 1536), 1536, false},
		"spooled at another's name": {pack, SpooledID(Notice{Site: "thule", Instrument: "mag-1", Record: Record{ReceivedAt: at}}), 1536, false},
	} {
		n := Notice{Site: "thule", Instrument: "allsky-1", Record: Record{ID: c.id, Key: c.key, Offset: c.offset, Length: 7, Size: 7, State: StateCurrent, ReceivedAt: at}}
		if err := n.CheckPlace(); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
