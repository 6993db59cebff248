// SPDX-License-Identifier: Apache-2.0

package site_test

import (
	"slices"
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/site"
)

// An origin that was restored from a backup does not list a retraction any more that was made after it: it stands here until a run is forced.
func TestRetractionAfterTheBackup(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.has("a.jpg", storm)
	h.has("after.jpg", storm.AddDate(0, 0, 3))
	h.records[0].Retract("a face", site.By("north"), storm.AddDate(0, 0, 4))
	origin := newOrigin(t)
	origin.Wait(origin.Put(archivetest.Camera, "a.jpg", "a.jpg", func(r *wire.Record) { r.ReceivedAt = storm }))
	for range 2 {
		if _, err := h.pull(origin.URL); err != nil {
			t.Error(err)
		}
	}
	if got := h.requests(); len(got) != 0 {
		t.Errorf("the archivist is asked for %v", got)
	}
	if _, err := h.pull(origin.URL, func(c *site.Config) { c.Force = true }); err != nil {
		t.Error(err)
	}
	if got := h.requests(); !slices.Contains(got, wire.ActionRestore) {
		t.Errorf("a forced run asks the archivist for %v", got)
	}
}
