// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
)

// TestOriginConsistent: a run that found that the other Site went back says so at once, a run that failed early says nothing of it, and only
// pulls from a Substorm have the condition.
func TestOriginConsistent(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 21, 17, 0, 0, 0, time.UTC)
	m := &v1alpha1.MirrorPartner{ObjectMeta: metav1.ObjectMeta{Name: "north", Namespace: "field", UID: "m-1", Generation: 1}}
	m.Spec.Direction, m.Spec.Continuous = v1alpha1.MirrorPull, &v1alpha1.MirrorContinuous{}
	m.Spec.HTTPS = &v1alpha1.MirrorHTTPS{Source: v1alpha1.MirrorSourceSubstorm, Origin: "arctic"}
	view := plan.MirrorView{Mirror: m, Site: &v1alpha1.Site{}, Verdict: plan.MirrorVerdict{Finding: plan.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted}},
		Entry: &wire.MirrorEntry{UID: "m-1", Generation: 1}, Bus: plan.Bus{Up: true}, Now: began.Add(time.Hour)}
	owed := &wire.MirrorOwed{}
	back := &wire.MirrorWentBack{Objects: 5, Days: 2, Instrument: "camera", Path: "r1/camera0.txt", Since: began}
	for name, c := range map[string]struct {
		report *wire.MirrorStatus
		want   metav1.ConditionStatus
		says   string
	}{
		"no run":           {nil, metav1.ConditionUnknown, "no run has listed all yet"},
		"a run that ended": {&wire.MirrorStatus{Result: wire.MirrorSucceeded, EndedAt: began, Owed: owed}, metav1.ConditionTrue, `"arctic" lists what it listed before`},
		"a failed run":     {&wire.MirrorStatus{Result: wire.MirrorFailed, EndedAt: began}, metav1.ConditionUnknown, "no run"},
		"it went back": {&wire.MirrorStatus{Result: wire.MirrorRunning, WentBack: back}, metav1.ConditionFalse,
			`lists other bytes under the ID of 5 objects, as "r1/camera0.txt" of instrument camera, and does not list 2 days any more, as of instrument camera`},
	} {
		view.Reports = nil
		if c.report != nil {
			c.report.Run, c.report.Generation, c.report.StartedAt = wire.MirrorRunContinuous, 1, began
			view.Reports = []plan.MirrorReport{{MirrorStatus: *c.report, Seen: view.Now}}
		}
		is, _ := plan.MirrorStatus(view)
		got := meta.FindStatusCondition(is.Conditions, v1alpha1.ConditionOriginConsistent)
		if got == nil || got.Status != c.want || !strings.Contains(got.Message, c.says) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	m.Spec.HTTPS.Source = v1alpha1.MirrorSourceWebArchive
	if is, _ := plan.MirrorStatus(view); meta.FindStatusCondition(is.Conditions, v1alpha1.ConditionOriginConsistent) != nil {
		t.Error("a web archive has the condition of a Substorm")
	}
}
