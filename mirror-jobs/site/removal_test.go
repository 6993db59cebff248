// SPDX-License-Identifier: Apache-2.0

package site_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/site"
)

// If the other Site retracts or purges more than the declared share of what was pulled, the archivist is asked for none of it, whatever
// spec.retractions says, until a run is forced.
func TestSafetyStop(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	var all []wire.Record
	for i := range 20 {
		all = append(all, h.has(fmt.Sprintf("%02d.jpg", i), storm.AddDate(0, 0, i%2)))
	}
	stops := func(c *site.Config) { c.Entry.SafetyStopPercent, c.Entry.Retractions = 10, wire.MirrorIgnore }
	if _, err := h.pull(h.URL, stops); err != nil {
		t.Fatal(err)
	}
	for _, r := range all[:3] { // on two days
		h.becomes(r, wire.StatePurged)
	}
	for range 2 {
		_, err := h.pull(h.URL, stops)
		var problem *push.Problem
		if !errors.As(err, &problem) || problem.Reason != wire.MirrorReasonSafetyStop || !strings.Contains(err.Error(), "3 of 20 objects") ||
			!strings.Contains(err.Error(), "mirror run north --force") {
			t.Errorf("3 of 20 would go: %v", err)
		}
		if got := h.requests(); len(got) != 0 {
			t.Errorf("the archivist is asked for %v", got)
		}
	}
	if _, err := h.pull(h.URL, stops, func(c *site.Config) { c.Force = true }); err != nil {
		t.Error(err)
	}
	if got := countActions(h.requests(), wire.ActionPurge); got != 3 {
		t.Errorf("forced, the archivist is asked to purge %d", got)
	}
}

// As many as the declared share go, together with those that the archivist has not made yet.
func TestBelowSafetyStop(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	var all []wire.Record
	for i := range 20 {
		all = append(all, h.has(fmt.Sprintf("%02d.jpg", i), storm.AddDate(0, 0, i%2)))
	}
	stops := func(c *site.Config) { c.Entry.SafetyStopPercent = 10 }
	for _, r := range all[:2] {
		h.becomes(r, wire.StatePurged)
	}
	if _, err := h.pull(h.URL, stops); err != nil {
		t.Fatal(err)
	}
	if got := countActions(h.requests(), wire.ActionPurge); got != 2 {
		t.Errorf("the archivist is asked to purge %d of 20", got)
	}
	if _, err := h.pull(h.URL, stops); err != nil {
		t.Errorf("two that are not purged yet are counted again: %v", err)
	}
	h.becomes(all[2], wire.StateRetracted)
	if _, err := h.pull(h.URL, stops); err == nil {
		t.Error("two that are not purged yet and one more go")
	}
	if got := countActions(h.requests(), wire.ActionRetract); got != 0 {
		t.Errorf("the archivist is asked to retract %d", got)
	}
}

// Retractions and purges of earlier runs count for a week, also if the archivist has done them, and if a run looked at some days alone:
// else the other Site could have a share removed by each run.
func TestSafetyStopOverRuns(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	var all []wire.Record
	for i := range 20 {
		all = append(all, h.has(fmt.Sprintf("%02d.jpg", i), storm.AddDate(0, 0, i%2)))
	}
	stops := func(c *site.Config) { c.Entry.SafetyStopPercent = 10 }
	some := func(c *site.Config) { c.From = storm.AddDate(-1, 0, 0) }
	done := func(i int) {
		h.records[i].State, h.records[i].ChangedBy = wire.StateRetracted, site.By("north")
	}
	stopped := func(what string) {
		t.Helper()
		before := len(h.requests())
		_, err := h.pull(h.URL, stops)
		var problem *push.Problem
		if !errors.As(err, &problem) || problem.Reason != wire.MirrorReasonSafetyStop || !strings.Contains(err.Error(), "1 of 20 objects, and 2 were removed within 7 days") {
			t.Errorf("%s: %v", what, err)
		}
		if after := len(h.requests()); after != before {
			t.Errorf("%s: the archivist is asked for %d", what, after-before)
		}
	}
	for i, run := range [][]func(*site.Config){{stops}, {stops, some}} {
		h.becomes(all[i], wire.StateRetracted)
		if _, err := h.pull(h.URL, run...); err != nil {
			t.Fatal(err)
		}
		done(i)
	}
	h.becomes(all[2], wire.StateRetracted)
	stopped("a third one")
	stopped("a third one, again")
	if _, err := h.pull(h.URL, stops, func(c *site.Config) { c.Force = true }); err != nil {
		t.Fatal(err)
	}
	done(2)
	for i := 3; i < 5; i++ {
		h.becomes(all[i], wire.StateRetracted)
		if _, err := h.pull(h.URL, stops); err != nil {
			t.Errorf("after a forced run: %v", err)
		}
		done(i)
	}
	h.becomes(all[5], wire.StateRetracted)
	stopped("after two more")
	h.removed(plan.Removed{wire.DayOf(time.Now().AddDate(0, 0, -plan.RemovalDays)): 2})
	if _, err := h.pull(h.URL, stops); err != nil {
		t.Errorf("a week later: %v", err)
	}
	if got := countActions(h.requests(), wire.ActionRetract); got != 6 {
		t.Errorf("the archivist is asked to retract %d", got)
	}
}

// removed has the mirror remember what was removed.
func (h *hub) removed(days plan.Removed) {
	h.Helper()
	kv, err := h.JetStream.KeyValue(h.Context(), wire.CursorBucket(hubSite))
	if err != nil {
		h.Fatal(err)
	}
	if err := stream.Save(h.Context(), kv, wire.MirrorCursorKey("north", "pull-removed"), map[string]any{"days": days}); err != nil {
		h.Fatal(err)
	}
}

func countActions(all []wire.Action, action wire.Action) (n int) {
	for _, a := range all {
		if a == action {
			n++
		}
	}
	return n
}

// An object that expires at the origin stays here, also with --force, and nothing is left to do. One that was retracted before it expired is
// retracted here.
func TestExpired(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	kept, retracted := h.has("a.jpg", storm), h.has("b.jpg", storm.AddDate(0, 0, 1))
	h.pulled()
	kept.Expire("expired: kept for 48h0m0s", storm.AddDate(0, 1, 0))
	h.lists(kept)
	h.pulled()
	if _, err := h.pull(h.URL, func(c *site.Config) { c.Force, c.Entry.Retractions = true, wire.MirrorDelete }); err != nil {
		t.Error(err)
	}
	if got := h.requests(); len(got) != 0 {
		t.Errorf("an object expired, and the archivist is asked for %v", got)
	}
	h.pulled()
	if asked := h.pulled(); len(asked) != 1 {
		t.Errorf("nothing is left: %q", asked)
	}
	retracted.Retract("a lamp", "anna", storm.AddDate(0, 1, 0))
	h.lists(retracted)
	retracted.Expire("expired: kept for 48h0m0s", storm.AddDate(0, 2, 0))
	h.lists(retracted)
	h.pulled()
	if got := h.requests(); len(got) != 1 || got[0] != wire.ActionRetract {
		t.Errorf("an object was retracted and expired, and the archivist is asked for %v", got)
	}
}

// An object that was pulled and is older than the selection by now is retracted here all the same.
func TestRetractedOutsideOfTheWindow(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	old := h.has("old.jpg", storm)
	h.has("new.jpg", time.Now().UTC())
	within := func(c *site.Config) { c.Entry.Selection.ObservedWithinMillis = (72 * time.Hour).Milliseconds() }
	for _, retracted := range []bool{false, true} {
		if retracted {
			h.becomes(old, wire.StateRetracted)
		}
		if _, err := h.pull(h.URL, within); err != nil {
			t.Fatal(err)
		}
	}
	if asked := h.requests(); len(asked) != 1 || asked[0] != wire.ActionRetract {
		t.Errorf("the archivist is asked for %q", asked)
	}
}

// An object of an instrument that is not selected any more is retracted here, too, and no new ones of the instrument come.
func TestRetractedWhereNotSelected(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	old := h.has("old.jpg", storm)
	h.pulled()
	selects := func(c *site.Config) { c.Entry.Selection.Instruments = []string{"other"} }
	h.Wait(h.Put(archivetest.Camera, "new.jpg", "new.jpg", func(r *wire.Record) { r.ReceivedAt = storm }))
	for _, retracted := range []bool{false, true} {
		if retracted {
			h.becomes(old, wire.StateRetracted)
		}
		if _, err := h.pull(h.URL, selects); err != nil { // no gateway takes what it fetches
			t.Fatal(err)
		}
	}
	if asked := h.requests(); len(asked) != 1 || asked[0] != wire.ActionRetract {
		t.Errorf("the archivist is asked for %q", asked)
	}
	if _, err := h.pull(h.URL, selects, func(c *site.Config) { c.VerifyOnly = true }); err == nil {
		t.Error("a run that only verifies does not say that the retraction is owed")
	}
}

// A request names the time at which an object was retracted at its origin, so that an older restoration there is not followed.
func TestRetractionTime(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.has("a.jpg", storm)
	h.has("b.jpg", storm)
	h.pulled()
	r.Retract("a lamp", "anna", storm.Add(time.Hour))
	h.lists(r)
	h.pulled()
	asked := h.wholeRequests()
	if len(asked) != 1 || asked[0].RetractedAt == nil || !asked[0].RetractedAt.Equal(*r.RetractedAt) {
		t.Errorf("the archivist is asked for %+v", asked)
	}
}

// An object is restored and retracted again between two runs: the archivist is asked to note the second time.
func TestRetractedAgain(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	r := h.has("a.jpg", storm)
	h.pulled()
	r.Retract("a lamp", "anna", storm.Add(time.Hour))
	h.lists(r)
	h.pulled()
	copied := h.records[0]
	copied.Retract("a lamp", site.By("north"), storm.Add(time.Hour))
	copied.Origin = &wire.Origin{Site: copied.Origin.Site, ID: copied.Origin.ID, RetractedAt: h.wholeRequests()[0].RetractedAt}
	r.Restore("it was none", "anna", storm.Add(2*time.Hour), false)
	h.lists(r)
	r.Retract("a face", "anna", storm.Add(3*time.Hour))
	h.lists(r)
	h.registry[wire.RegistryCompleteKey] = wire.RegistryComplete{Revision: 1, LegalHold: true}
	h.pulled()
	if asked := h.requests(); len(asked) != 1 {
		t.Errorf("under legal hold the archivist is asked for %q", asked)
	}
	h.registry[wire.RegistryCompleteKey] = wire.RegistryComplete{Revision: 1}
	h.pulled()
	asked := h.wholeRequests()
	if len(asked) != 2 || !asked[1].RetractedAt.Equal(*r.RetractedAt) {
		t.Errorf("the archivist is asked for %+v", asked)
	}
}
