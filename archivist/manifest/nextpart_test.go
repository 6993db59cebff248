// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"testing"
	"time"

	read "github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/manifest/manifesttest"
	"github.com/substorm/substorm/internal/wire"
)

// TestPartsFollowChanges: the parts of a day whose manifests are lost have greater numbers than the changes that were stored before.
func TestPartsFollowChanges(t *testing.T) {
	a := manifesttest.New(t, "thule")
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	key := dayKey{"camera", wire.DayOf(at)}
	header := wire.ManifestHeader{Site: a.Site, Instrument: key.instrument, Day: key.day, Writer: "archivist-0", Incarnation: "one"}
	if err := read.PutChanges(t.Context(), a.Store, header, 5, []wire.Record{raw(key.instrument, at, "a frame")}); err != nil {
		t.Fatal(err)
	}
	w := newSweeper(a).writer
	w.cfg.Store, w.cfg.Log = a.Store, newSweeper(a).cfg.Log
	d, err := w.loadDay(t.Context(), key, 0)
	if err != nil || d.nextPart != 6 {
		t.Errorf("the next part after changes of part 5: %+v, %v", d, err)
	}
}
