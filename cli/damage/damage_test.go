// SPDX-License-Identifier: Apache-2.0

package damage

import (
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// TestKnown: what is known is stated together with when the archive was last checked, also if it never was.
func TestKnown(t *testing.T) {
	at := time.Date(2026, 11, 12, 3, 0, 0, 0, time.UTC)
	ended := at.Add(26 * time.Hour)
	last := &wire.ScrubPass{BegunAt: at, EndedAt: &ended, Objects: 98765, Unreadable: 1}
	pass := &wire.ScrubPass{BegunAt: at.Add(7 * 24 * time.Hour), Instrument: "camera", Day: "2026-11-18", Objects: 4711}
	for want, k := range map[string]Known{
		"no damage is known; no archivist has read the archive yet": {},
		"no damage is known; the archivist's scrub has not read the whole archive yet: it reads since 2026-11-19T03:00:00Z, and has come to 2026-11-18 of camera: 4711 objects": {Pass: pass},
		"3 objects are known to be damaged, 2 of them missing; 1 more are to be confirmed; the archivist's scrub last read the whole archive " +
			"from 2026-11-12T03:00:00Z to 2026-11-13T05:00:00Z: 98765 objects, without 1 days whose manifest cannot be read (substorm archive rebuild makes it anew)": {Confirmed: 3, Missing: 2, Unconfirmed: 1, LastPass: last},
		"no damage is known; the archivist's scrub last read the whole archive from 2026-11-12T03:00:00Z to 2026-11-13T05:00:00Z: 98765 objects, " +
			"without 1 days whose manifest cannot be read (substorm archive rebuild makes it anew); it reads it again since 2026-11-19T03:00:00Z, and has come to 2026-11-18 of camera: 4711 objects": {LastPass: last, Pass: pass},
		"no damage is known; the archivist's scrub last read the whole archive from 2026-11-12T03:00:00Z on: 5 objects": {LastPass: &wire.ScrubPass{BegunAt: at, Objects: 5}},
	} {
		if got := k.String(); got != want {
			t.Errorf("it says\n%s\nand not\n%s", got, want)
		}
	}
}
