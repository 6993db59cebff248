// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/observed"
)

// TestContinuousMirrorsWriteWhatChanges: a continuous mirror that moves what is announced every few seconds changes figures alone; that it
// fails, and that it works again, is written at once.
func TestContinuousMirrorsWriteWhatChanges(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 21, 17, 0, 0, 0, time.UTC)
	m := &v1alpha1.MirrorPartner{ObjectMeta: metav1.ObjectMeta{Name: "uni", Namespace: "field", UID: "m-1", Generation: 1}}
	m.Spec.Direction, m.Spec.Continuous = v1alpha1.MirrorPush, &v1alpha1.MirrorContinuous{}
	view := plan.MirrorView{Mirror: m, Site: &v1alpha1.Site{}, Verdict: accept.MirrorVerdict{Finding: finding.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted}},
		Entry: &wire.MirrorEntry{UID: "m-1", Generation: 1}, Bus: observed.Bus{Up: true}}
	failure := &wire.MirrorProblem{Reason: wire.MirrorReasonUnreachable, Message: "connection refused", Since: began}
	for i, step := range []struct {
		result    string
		unreached *wire.MirrorProblem
		want      plan.Urgency
	}{
		{wire.MirrorSucceeded, nil, plan.UrgencySpec},
		{wire.MirrorRunning, nil, plan.UrgencyFigures},
		{wire.MirrorSucceeded, nil, plan.UrgencyFigures},
		{wire.MirrorRunning, nil, plan.UrgencyFigures},
		{wire.MirrorFailed, failure, plan.UrgencyCondition},
		{wire.MirrorRunning, nil, plan.UrgencyFigures},
		{wire.MirrorFailed, failure, plan.UrgencyFigures},
		{wire.MirrorRunning, nil, plan.UrgencyFigures},
		{wire.MirrorSucceeded, nil, plan.UrgencyCondition},
	} {
		view.Now = began.Add(time.Duration(i) * 3 * time.Second)
		report := wire.MirrorStatus{Run: wire.MirrorRunContinuous, Generation: 1, Trigger: wire.MirrorContinuously, StartedAt: view.Now, Result: step.result, Unreached: step.unreached,
			Reached: view.Now.Add(-time.Second), Progress: wire.MirrorProgress{Objects: int64(i)}}
		if step.result == wire.MirrorRunning {
			report.Owed = &wire.MirrorOwed{Objects: 1}
		} else {
			report.EndedAt = view.Now
			report.Reason = map[bool]string{true: wire.MirrorReasonUnreachable}[step.unreached != nil]
		}
		if step.result == wire.MirrorSucceeded {
			report.Reached, report.VerifiedTo = view.Now, view.Now
		}
		view.Reports = []plan.MirrorReport{{MirrorStatus: report, Seen: view.Now}}
		is, _ := plan.MirrorStatus(view)
		if got := plan.MirrorUrgency(&m.Status, &is); got != step.want {
			t.Errorf("step %d, %s: urgency %d, not %d", i, step.result, got, step.want)
		}
		m.Status = is
	}
}
