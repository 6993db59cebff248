// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan"
)

// TestMirrorReportProblem: what a status could not hold is no report.
func TestMirrorReportProblem(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 21, 17, 0, 0, 0, time.UTC)
	for problem, report := range map[string]wire.MirrorStatus{
		"":                       {Run: strings.Repeat("a", 63), StartedAt: began},
		"does not say when":      {Run: "uni-mirror-1"},
		"a name of 64 character": {Run: strings.Repeat("a", 64), StartedAt: began},
	} {
		err := plan.MirrorReportProblem(report)
		if (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v", problem, err)
		}
	}
}
