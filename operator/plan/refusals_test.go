// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan"
)

// TestRefusals: one event for an instrument and cause in ten minutes, which
// counts what came between, over all pods and their restarts.
func TestRefusals(t *testing.T) {
	var r plan.Refusals
	start := time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC)
	take := func(pod, incarnation string, minute int, cause wire.Cause, count uint64, replayed bool) {
		at := start.Add(time.Duration(minute) * time.Minute)
		r.Take(pod, wire.RefusalStatus{Incarnation: incarnation, ReportedAt: at, Refused: map[wire.Cause]wire.Refused{
			cause: {Count: count, Source: "192.0.2.9", Protocol: "TCP", Port: 30100, Shown: "a certificate for x", At: at},
		}}, replayed, at)
	}
	due := func(minute int, want ...string) time.Duration {
		t.Helper()
		events, wait := r.Due(start.Add(time.Duration(minute) * time.Minute))
		if len(events) != len(want) {
			t.Fatalf("minute %d: events %+v, want %q", minute, events, want)
		}
		for i, e := range events {
			if !strings.Contains(e.Message, want[i]) {
				t.Errorf("minute %d: %q does not say %q", minute, e.Message, want[i])
			}
		}
		return wait
	}
	due(0)
	take("pod-0", "a", 0, wire.CauseBadCertificate, 1, false)
	due(0, "a sender was refused at 192.0.2.9 on TCP port 30100")
	take("pod-0", "a", 1, wire.CauseBadCertificate, 5, false)
	take("pod-1", "b", 2, wire.CauseBadCertificate, 2, false)
	take("pod-0", "a", 2, wire.CauseBadCertificate, 5, false) // again, unchanged
	if wait := due(3); wait != 7*time.Minute {
		t.Errorf("asks again after %v", wait)
	}
	take("pod-0", "a2", 4, wire.CauseBadCertificate, 1, false) // restarted
	take("pod-0", "a2", 4, wire.CauseUnknownSource, 1, false)
	due(4, "If it is this instrument, add the address")
	due(10, "refused 7 times since 2026-11-21T18:01:00Z, the last one at 192.0.2.9")
	if wait := due(30); wait != 0 {
		t.Errorf("asks again after %v", wait)
	}

	// After a restart of the operator old refusals get no second event, and new ones do.
	r = plan.Refusals{}
	old := start.Add(-time.Hour)
	r.Take("pod-0", wire.RefusalStatus{Incarnation: "a2", ReportedAt: start, Refused: map[wire.Cause]wire.Refused{
		wire.CauseBadCertificate: {Count: 8, At: old}, wire.CauseBadToken: {Count: 3, At: start.Add(-time.Minute)},
	}}, true, start)
	due(0, "refused 3 times")
	take("pod-0", "a2", 1, wire.CauseBadCertificate, 9, false)
	due(1, "a sender was refused")
}

// TestRefusedChanges: a change that the archivist did not retract gets events like a refused sender.
func TestRefusedChanges(t *testing.T) {
	var r plan.Refusals
	now := time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC)
	for minute, count := range []uint64{1, 3} {
		at := now.Add(time.Duration(minute) * 20 * time.Minute)
		r.Take(wire.ArchivistWriter, wire.RefusalStatus{Incarnation: "a", ReportedAt: at, Changes: map[string]wire.RefusedChange{
			"LegalHold": {Count: count, ID: "o/hub/camera/n/a", Asked: "Purged", By: "anna", Why: "the Instrument is under legal hold", At: at},
		}}, false, at)
		events, _ := r.Due(at)
		want := "anna asked that o/hub/camera/n/a be purged, and it is not: the Instrument is under legal hold"
		if count > 1 {
			want = "2 requests were refused since 2026-11-21T18:20:00Z, the last one: " + want
		}
		if len(events) != 1 || events[0].Cause != "LegalHold" || events[0].Message != want {
			t.Errorf("told: %+v, want %q", events, want)
		}
	}
}
