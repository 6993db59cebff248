// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// TestMirrorReportsThatCannotBe: a report without the time at which its run began, or of a run whose name no Job has, is passed over, and
// those of other runs are taken.
func TestMirrorReportsThatCannotBe(t *testing.T) {
	w := newFeedWorld(t)
	w.secret("uni", map[string]string{"password": "secret"})
	w.applyMirror("uni", rsyncWithPassword+`, schedule: {cron: "@daily"}`)
	w.awaits("MirrorPartner", "uni", "Ready", "True/Ready")
	run := w.mirrorRun("uni")
	run.says(wire.MirrorStatus{Run: "uni-mirror-1", Generation: 1, Result: wire.MirrorRunning})
	run.says(wire.MirrorStatus{Run: strings.Repeat("a", 64), Generation: 1, StartedAt: time.Now(), Result: wire.MirrorRunning})
	run.says(wire.MirrorStatus{Run: "uni-mirror-2", Generation: 1, StartedAt: time.Now(), EndedAt: time.Now(), Result: wire.MirrorSucceeded, Reached: time.Now()})
	w.awaits("MirrorPartner", "uni", "Synced", "True/Complete")
	if runs := w.mirrorStatus("uni").Runs; len(runs) != 1 || runs[0].Name != "uni-mirror-2" {
		t.Errorf("runs %+v", runs)
	}
}
