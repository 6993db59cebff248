// SPDX-License-Identifier: Apache-2.0

package site_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/site"
)

// Where the other Site retracts or purges more than the declared share of what was pulled, the archivist is asked for none of it, whatever
// spec.retractions says, until somebody forces it.
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
	h.becomes(all[2], wire.StateRetracted)
	if _, err := h.pull(h.URL, stops); err == nil {
		t.Error("two that are not purged yet and one more go")
	}
	for _, r := range h.records[:2] {
		r.State = wire.StatePurged
	}
	if _, err := h.pull(h.URL, stops); err != nil {
		t.Error(err)
	}
	if got := countActions(h.requests(), wire.ActionRetract); got != 1 {
		t.Errorf("the archivist is asked to retract %d", got)
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
