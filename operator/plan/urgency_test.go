// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
)

func TestASitesCountsAreNoMereFigures(t *testing.T) {
	site := func(counts v1alpha1.InstrumentCounts, silent string, revision int64) *v1alpha1.SiteStatus {
		return &v1alpha1.SiteStatus{Instruments: &counts, RegistryRevision: revision, Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionDataFlowing, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNeverSeen, Message: silent}}}
	}
	was := site(v1alpha1.InstrumentCounts{Total: 2, Silent: 1, Flowing: 1}, "camera", 7)
	for name, c := range map[string]struct {
		is   *v1alpha1.SiteStatus
		want plan.Urgency
	}{
		"only the revision":    {site(*was.Instruments, "camera", 8), plan.UrgencyFigures},
		"one more":             {site(v1alpha1.InstrumentCounts{Total: 3, Silent: 1, Flowing: 1}, "camera", 7), plan.UrgencyCondition},
		"one began to flow":    {site(v1alpha1.InstrumentCounts{Total: 2, Flowing: 2}, "camera", 7), plan.UrgencyCondition},
		"another one is quiet": {site(*was.Instruments, "magnetometer", 7), plan.UrgencyCondition},
		"nothing was counted":  {&v1alpha1.SiteStatus{Conditions: was.Conditions}, plan.UrgencyCondition},
	} {
		if got := plan.SiteUrgency(was, c.is); got != c.want {
			t.Errorf("%s: urgency %d, not %d", name, got, c.want)
		}
	}
}
