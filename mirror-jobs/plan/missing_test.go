// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"

	"github.com/substorm/substorm/mirror-jobs/plan"
)

func TestAllowMissing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plan.Missing
		held, percent int
		allowed       bool
	}{
		"none":                        {plan.Missing{}, 3, 10, true},
		"one is deleted":              {plan.Missing{Absent: []string{"a"}}, 3, 10, true},
		"one is closed":               {plan.Missing{Closed: []string{"a"}}, 3, 10, true},
		"the only one is closed":      {plan.Missing{Closed: []string{"a"}}, 1, 10, true},
		"the only one is deleted":     {plan.Missing{Absent: []string{"a"}}, 1, 10, false},
		"one of each":                 {plan.Missing{Absent: []string{"a"}, Closed: []string{"b"}}, 3, 10, false},
		"a share that is allowed":     {plan.Missing{Closed: []string{"a", "b"}}, 20, 10, true},
		"one more":                    {plan.Missing{Closed: []string{"a", "b", "c"}}, 20, 10, false},
		"all, where all may go":       {plan.Missing{Absent: []string{"a", "b"}}, 2, 100, true},
		"all, where a run is forced":  {plan.Missing{Absent: []string{"a", "b"}}, 2, 0, true},
		"one that stopped a run":      {plan.Missing{Absent: []string{"a"}, Stopped: 1}, 3, 10, false},
		"one where any may go":        {plan.Missing{Absent: []string{"a"}, Stopped: 1}, 3, 100, true},
		"one that is accepted":        {plan.Missing{Absent: []string{"a"}, Stopped: 1}, 3, 0, true},
		"closed after it was deleted": {plan.Missing{Closed: []string{"a"}}, 0, 10, true},
	} {
		p := plan.GuestPolicy{SafetyStop: c.percent}
		if got := p.AllowMissing(c.Missing, c.held); (got == nil) != c.allowed {
			t.Errorf("%s: %v", name, got)
		}
	}
	e := &plan.VanishedError{Missing: plan.Missing{Absent: []string{"f", "e", "d"}, Closed: []string{"c", "b", "a"}}, Held: 6, Percent: 10}
	if s := e.Error(); !strings.Contains(s, "6 of 6 instruments any more (a, b, c, d, e and more): 3 are absent there, and 3 are closed") {
		t.Error(s)
	}
}
