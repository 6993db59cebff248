// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// An object was retracted, restored and retracted again. Its archive is restored from a backup of the time between: the list has the
// older restoration, which does not undo the second retraction. A restoration after it does.
func TestOlderRestoration(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 28, 1, 0, 0, 0, time.UTC)
	after := func(hours int) time.Time { return at.Add(time.Duration(hours) * time.Hour) }
	r := wire.Record{ID: "o/alfa/cam/n/x", Name: "x", Path: "x", Size: 3, Digest: wire.Digest{1}, ReceivedAt: at, State: wire.StateCurrent}
	r.Retract("a lamp", "anna", after(1))
	r.Restore("a mistake", "anna", after(2), false)
	backup := mirrorindex.EntryOf("x", &r)
	r.Retract("a person is in the picture", "anna", after(3))
	retracted := mirrorindex.EntryOf("x", &r)
	r.Restore("the person agrees", "anna", after(4), false)
	restored := mirrorindex.EntryOf("x", &r)

	for _, retractions := range []string{wire.MirrorTombstone, wire.MirrorDelete} {
		site := plan.GuestPolicy{By: by, Retractions: retractions, SafetyStop: 100}
		here := wire.Record{ID: "o/bravo/alfa_cam/r/x", Origin: &wire.Origin{Site: "alfa", ID: "o/alfa/cam/n/x"}, Path: "x", Size: 3, Digest: wire.Digest{1}, ReceivedAt: at, State: wire.StateCurrent}
		asked := site.Day([]mirrorindex.Entry{retracted}, []*wire.Record{&here}, after(24)).Remove
		if len(asked) != 1 || asked[0].RetractedAt == nil {
			t.Fatalf("%s: the run asks for %+v", retractions, asked)
		}
		here.Retract("a person is in the picture", by, after(10))
		if asked[0].Action == wire.ActionPurge {
			here.Purge("a person is in the picture", by, after(10))
		}
		here.Origin.RetractedAt = asked[0].RetractedAt
		if is := site.Day([]mirrorindex.Entry{backup}, []*wire.Record{&here}, after(24)); len(is.Changes) != 0 || is.Kept != 1 {
			t.Errorf("%s: of the backup come %+v, %d are kept", retractions, is.Changes, is.Kept)
		}
		is := site.Day([]mirrorindex.Entry{restored}, []*wire.Record{&here}, after(24))
		if back := len(is.Changes) == 1 && is.Changes[0].Action == wire.ActionRestore; is.Kept != 0 || back != (retractions == wire.MirrorTombstone) {
			t.Errorf("%s: of the restoration come %+v, %d are kept", retractions, is.Changes, is.Kept)
		}
	}

	folder := plan.Policy{Prune: plan.PruneNever, Retractions: plan.RetractionsTombstone}
	lines, _ := folder.Merge(nil, []mirrorindex.Entry{retracted}, false)
	lines, kept := folder.Merge(lines, []mirrorindex.Entry{backup}, false)
	if missing := (plan.Selection{}).Missing(lines); kept != 1 || len(missing) != 0 {
		t.Errorf("of the backup a folder keeps %d, and fetches %d", kept, len(missing))
	}
	lines, kept = folder.Merge(lines, []mirrorindex.Entry{restored}, false)
	if missing := (plan.Selection{}).Missing(lines); kept != 0 || len(missing) != 1 {
		t.Errorf("of the restoration a folder keeps %d, and fetches %d", kept, len(missing))
	}
}
