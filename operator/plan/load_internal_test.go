// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/observed"
	"github.com/substorm/substorm/operator/surge/autoscale"
)

// A pod's names of its budgets are written into events, statuses and logs, which must not contain text of any length or kind.
func TestBudgetsAreNames(t *testing.T) {
	now := time.Now()
	long := strings.Repeat("x", 40_000)
	load := &wire.Load{Fill: map[string]float64{wire.BudgetCPU: 0.3, "newer": 0.2, "a\x1b[31m": 0.9, long: 1, "": 1, "two words": 1}}
	all := FeedServerLoads("hub", []observed.FeedServerReport{{Seen: now, FeedServerStatus: wire.FeedServerStatus{Pod: "hub-1", FeedServer: "hub", Load: load}}})
	if fill := all[0].Fill; len(fill) != 2 || fill[wire.BudgetCPU] != 0.3 || fill["newer"] != 0.2 {
		t.Errorf("the budgets are %v", fill)
	}
	if sum, known := autoscale.Sum([]string{"hub-1"}, all, now); !known || sum.Because != wire.BudgetCPU {
		t.Errorf("the load is %+v", sum)
	}

	v := FeedServerView{Now: now, Server: &v1alpha1.FeedServer{}, Bus: observed.Bus{Up: true}}
	v.Server.Name = "hub"
	for _, cause := range []string{long, "CPU\x1b[2J"} {
		v.Reports = []observed.FeedServerReport{{Seen: now, FeedServerStatus: wire.FeedServerStatus{Pod: "hub-1", FeedServer: "hub", GivingWay: &wire.GivingWay{Cause: cause, Bulk: 100}}}}
		if f, is := v.givesWay(); !is || len(f.Message) > 500 || strings.Contains(f.Message, "\x1b") || !strings.Contains(f.Message, "budgets are full") {
			t.Errorf("it says %.200q", f.Message)
		}
	}
}
