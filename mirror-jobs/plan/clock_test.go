// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/mirror-jobs/plan"
)

func TestCheckClock(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	year := now.AddDate(1, 0, 0)
	for name, c := range map[string]struct {
		says, before, latest time.Time
		err                  string
	}{
		"first run":              {now.Add(time.Minute), time.Time{}, now.Add(time.Minute), ""},
		"an hour off":            {now.Add(-time.Hour), now.Add(-2 * time.Hour), now.Add(-time.Hour), ""},
		"a year ahead":           {year, now, now, "off by 8760h0m0s"},
		"1970":                   {time.Unix(0, 0), now, now, "shows 1970-01-01T00:00:00Z"},
		"nothing":                {time.Time{}, now, now, ""},
		"back by a minute":       {now, now.Add(time.Minute), now.Add(time.Minute), ""},
		"back by two hours":      {now, now.Add(2 * time.Hour), now.Add(2 * time.Hour), "showed 2026-11-28T14:00:00Z in an earlier run"},
		"this one was set right": {now, year, now, ""},
	} {
		latest, err := plan.CheckClock(c.says, c.before, now)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || !latest.Equal(c.latest) {
			t.Errorf("%s: %v, %v", name, latest, err)
		}
	}
}
