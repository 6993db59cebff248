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
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/observed"
)

// TestOriginConsistent: a run that found that the other Site went back reports it at once, a run that failed early reports nothing about
// it, and only pulls from a Substorm have the condition.
func TestOriginConsistent(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 21, 17, 0, 0, 0, time.UTC)
	m := &v1alpha1.MirrorPartner{ObjectMeta: metav1.ObjectMeta{Name: "north", Namespace: "field", UID: "m-1", Generation: 1}}
	m.Spec.Direction, m.Spec.Continuous = v1alpha1.MirrorPull, &v1alpha1.MirrorContinuous{}
	m.Spec.HTTPS = &v1alpha1.MirrorHTTPS{Source: v1alpha1.MirrorSourceSubstorm, Origin: "arctic"}
	view := plan.MirrorView{Mirror: m, Site: &v1alpha1.Site{}, Verdict: accept.MirrorVerdict{Finding: finding.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted}},
		Entry: &wire.MirrorEntry{UID: "m-1", Generation: 1}, Bus: observed.Bus{Up: true}, Now: began.Add(time.Hour)}
	owed := &wire.MirrorOwed{}
	less := &wire.MirrorWentBack{Unlisted: 1, Instrument: "camera", Path: "a.txt", Since: began}
	retracted := &wire.MirrorWentBack{Retracted: 2, Instrument: "camera", Since: began}
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
		"it does not list an object": {&wire.MirrorStatus{Result: wire.MirrorSucceeded, EndedAt: began, Owed: owed, WentBack: less, OriginClock: "its clock shows 1970"}, metav1.ConditionFalse,
			`does not list 1 object any more that is here, as of instrument camera, among the others of their days`},
		"it does not list retractions": {&wire.MirrorStatus{Result: wire.MirrorSucceeded, EndedAt: began, Owed: owed, WentBack: retracted}, metav1.ConditionFalse,
			`does not list 2 retractions or purges any more, as of instrument camera, which stand here: it was`},
		"its clock is wrong": {&wire.MirrorStatus{Result: wire.MirrorRunning, OriginClock: "its clock shows 1970"}, metav1.ConditionFalse, "its clock shows 1970"},
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
	if got := reasonOfClock(view, began); got != v1alpha1.ReasonClockOff {
		t.Errorf("the reason of a wrong clock is %s", got)
	}
	m.Spec.HTTPS.Source = v1alpha1.MirrorSourceWebArchive
	if is, _ := plan.MirrorStatus(view); meta.FindStatusCondition(is.Conditions, v1alpha1.ConditionOriginConsistent) != nil {
		t.Error("a web archive has the condition of a Substorm")
	}
}

// reasonOfClock returns the reason of the condition if the clock of the other Site is wrong.
func reasonOfClock(view plan.MirrorView, began time.Time) string {
	view.Reports = []plan.MirrorReport{{Seen: view.Now, MirrorStatus: wire.MirrorStatus{Run: wire.MirrorRunContinuous, Generation: 1, StartedAt: began, OriginClock: "its clock shows 1970"}}}
	is, _ := plan.MirrorStatus(view)
	return meta.FindStatusCondition(is.Conditions, v1alpha1.ConditionOriginConsistent).Reason
}

// TestOriginWaits: the message says what to write where, and a run of a part reports nothing about it.
func TestOriginWaits(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 21, 17, 0, 0, 0, time.UTC)
	m := &v1alpha1.MirrorPartner{ObjectMeta: metav1.ObjectMeta{Name: "north", Namespace: "field", UID: "m-1", Generation: 1}}
	m.Spec.Direction, m.Spec.Continuous = v1alpha1.MirrorPull, &v1alpha1.MirrorContinuous{}
	m.Spec.HTTPS = &v1alpha1.MirrorHTTPS{Source: v1alpha1.MirrorSourceSubstorm, Origin: "arctic"}
	view := plan.MirrorView{Mirror: m, Site: &v1alpha1.Site{}, Verdict: accept.MirrorVerdict{Finding: finding.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted}},
		Entry: &wire.MirrorEntry{UID: "m-1", Generation: 1}, Bus: observed.Bus{Up: true}, Now: began.Add(time.Hour)}
	ended := wire.MirrorStatus{Result: wire.MirrorSucceeded, EndedAt: began, Owed: &wire.MirrorOwed{}}
	with := func(u *wire.MirrorUnawaited) *wire.MirrorStatus {
		is := ended
		is.Unawaited = u
		return &is
	}
	part := ended
	part.Part = true
	for name, c := range map[string]struct {
		report *wire.MirrorStatus
		want   metav1.ConditionStatus
		reason string
		says   string
	}{
		"no run":       {nil, metav1.ConditionUnknown, v1alpha1.ReasonNotRun, "no run"},
		"a part":       {&part, metav1.ConditionUnknown, v1alpha1.ReasonNotRun, "no run"},
		"awaited":      {&ended, metav1.ConditionTrue, v1alpha1.ReasonAwaited, `Site "arctic" waits`},
		"not declared": {with(&wire.MirrorUnawaited{Reader: "hub"}), metav1.ConditionFalse, v1alpha1.ReasonNotAwaited, `write "pulledBy: [{reader: hub}]" into the spec of its Site`},
		"no token":     {with(&wire.MirrorUnawaited{}), metav1.ConditionFalse, v1alpha1.ReasonNotAwaited, "show the token of a reader there (spec.https.tokenSecretKeyRef)"},
		"no reader":    {with(&wire.MirrorUnawaited{Reader: "consumer:hub"}), metav1.ConditionFalse, v1alpha1.ReasonNotAwaited, `"consumer:hub" is none`},
		"refused":      {with(&wire.MirrorUnawaited{Refused: "403 Forbidden: not you"}), metav1.ConditionFalse, v1alpha1.ReasonConfirmationRefused, "403 Forbidden: not you"},
		"old":          {with(&wire.MirrorUnawaited{Old: true}), metav1.ConditionFalse, v1alpha1.ReasonOriginTooOld, "ask who runs it to update it"},
	} {
		view.Reports = nil
		if c.report != nil {
			c.report.Run, c.report.Generation, c.report.StartedAt = wire.MirrorRunContinuous, 1, began
			view.Reports = []plan.MirrorReport{{MirrorStatus: *c.report, Seen: view.Now}}
		}
		is, _ := plan.MirrorStatus(view)
		got := meta.FindStatusCondition(is.Conditions, v1alpha1.ConditionOriginWaits)
		if got == nil || got.Status != c.want || got.Reason != c.reason || !strings.Contains(got.Message, c.says) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
