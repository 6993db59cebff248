// SPDX-License-Identifier: Apache-2.0

package site_test

import (
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/site"
)

// An origin that was restored from a backup does not list a retraction any more that was made after it: it stands here, also when a run is
// forced, and the run reports it.
func TestRetractionAfterTheBackup(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.has("a.jpg", storm)
	h.records[0].Retract("a face", site.By("north"), storm.AddDate(0, 0, 4))
	origin := newOrigin(t)
	origin.Wait(origin.Put(archivetest.Camera, "a.jpg", "a.jpg", func(r *wire.Record) { r.ReceivedAt = storm }))
	for _, force := range []bool{false, false, true} {
		progress := &push.Progress{}
		if _, err := h.pull(origin.URL, func(c *site.Config) { c.Force, c.Progress = force, progress }); err != nil {
			t.Error(err)
		}
		if w := progress.WentBack(); force != (w == nil) || w != nil && w.Retracted != 1 {
			t.Errorf("with force %t the run reports %+v", force, w)
		}
	}
	if got := h.requests(); len(got) != 0 {
		t.Errorf("the archivist is asked for %v", got)
	}
}
