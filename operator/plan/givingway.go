// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/observed"
)

// givesWay: pods answer some of their clients 503, because others have priority. While reports are not read, the earlier condition stays.
func (v FeedServerView) givesWay() (finding.Finding, bool) {
	if !v.Bus.Up {
		was := finding.Condition(v.Server.Status.Conditions, v1alpha1.ConditionGivingWay)
		if was == nil {
			return finding.Finding{}, false
		}
		return finding.From(was), true
	}
	own := slices.DeleteFunc(observed.FreshServers(v.Reports, v.Now), func(r observed.FeedServerReport) bool { return r.FeedServer != v.Server.Name })
	var robots, bulk int
	var causes []string
	for _, r := range own {
		if r.GivingWay == nil {
			continue
		}
		robots++
		if r.GivingWay.Bulk < 100 {
			bulk++
		}
		if wire.IsBudget(r.GivingWay.Cause) {
			causes = append(causes, r.GivingWay.Cause)
		}
	}
	if robots == 0 {
		return finding.Finding{}, false
	}
	if len(causes) == 0 {
		causes = []string{"budgets"}
	}
	slices.Sort(causes)
	also := ""
	if bulk > 0 {
		also = fmt.Sprintf(", and bundles, mirrors and rsync at %d", bulk)
	}
	next := "more pods, or a larger CPU and memory limit in spec.podTemplate.resources, would serve all"
	if f, limited := v.pool().hardwareLimited(); limited && f.Reason == v1alpha1.ReasonPodsDoNotFit {
		next = "it may not have more pods, see HardwareLimited"
	}
	return finding.Good(v1alpha1.ReasonBudgetFull, fmt.Sprintf("programs that show no token are answered 503 at %s pods%s: %s are full, and people go first; %s",
		finding.Count(int32(robots), int32(len(own))), also, finding.List(slices.Compact(causes)), next)), true
}
