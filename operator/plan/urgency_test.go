// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/surge"
)

// TestWhatIsHeldIsNoRescaling: what is left in the spools of pods that stay changes with each report.
func TestWhatIsHeldIsNoRescaling(t *testing.T) {
	held := func(replicas int32, message string) *v1alpha1.IngestGatewayStatus {
		return &v1alpha1.IngestGatewayStatus{Autoscaling: v1alpha1.AutoscalingStatus{Replicas: new(replicas), Message: "held: " + message,
			Held: v1alpha1.ReplicaCount{Replicas: new(replicas), Message: message}}}
	}
	was := held(3, "pool-2 has 7 objects")
	if got := plan.GatewayUrgency(was, held(3, "pool-2 has 6 objects")); got != plan.UrgencyFigures {
		t.Errorf("fewer objects: urgency %d", got)
	}
	if got := plan.GatewayUrgency(was, held(2, "pool-1 has 6 objects")); got != plan.UrgencyCondition {
		t.Errorf("fewer pods: urgency %d", got)
	}
}

func TestASitesCountsAreNoMereFigures(t *testing.T) {
	site := func(counts v1alpha1.InstrumentSummary, silent string, revision int64) *v1alpha1.SiteStatus {
		return &v1alpha1.SiteStatus{InstrumentSummary: &counts, RegistryRevision: revision, Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionDataFlowing, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNeverSeen, Message: silent}}}
	}
	was := site(v1alpha1.InstrumentSummary{TotalCount: 2, SilentCount: 1, FlowingCount: 1}, "camera", 7)
	for name, c := range map[string]struct {
		is   *v1alpha1.SiteStatus
		want plan.Urgency
	}{
		"only the revision":    {site(*was.InstrumentSummary, "camera", 8), plan.UrgencyDetail},
		"one more":             {site(v1alpha1.InstrumentSummary{TotalCount: 3, SilentCount: 1, FlowingCount: 1}, "camera", 7), plan.UrgencyCondition},
		"one began to flow":    {site(v1alpha1.InstrumentSummary{TotalCount: 2, FlowingCount: 2}, "camera", 7), plan.UrgencyCondition},
		"another one is quiet": {site(*was.InstrumentSummary, "magnetometer", 7), plan.UrgencyCondition},
		"nothing was counted":  {&v1alpha1.SiteStatus{Conditions: was.Conditions}, plan.UrgencyCondition},
	} {
		if got := plan.SiteUrgency(was, c.is); got != c.want {
			t.Errorf("%s: urgency %d, not %d", name, got, c.want)
		}
	}
}

// TestWordsOfAConditionAreDetails: the message of a condition is more urgent than a count, and so are which pod is slowest and where a
// consumer's durable continues.
func TestWordsOfAConditionAreDetails(t *testing.T) {
	says := func(message string) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonProgressing, Message: message}}
	}
	for name, c := range map[string]struct{ got, want plan.Urgency }{
		"received today": {plan.InstrumentUrgency(&v1alpha1.InstrumentStatus{Conditions: says("a")},
			&v1alpha1.InstrumentStatus{Conditions: says("a"), ReceivedToday: &v1alpha1.DayCounts{ObjectCount: 1}}), plan.UrgencyFigures},
		"another message": {plan.InstrumentUrgency(&v1alpha1.InstrumentStatus{Conditions: says("a")}, &v1alpha1.InstrumentStatus{Conditions: says("b")}), plan.UrgencyDetail},
		"messages":        {plan.FeedUrgency(&v1alpha1.FeedStatus{}, &v1alpha1.FeedStatus{MessageCount: new(int64(1))}), plan.UrgencyFigures},
		"slowest":         {plan.FeedUrgency(&v1alpha1.FeedStatus{}, &v1alpha1.FeedStatus{Slowest: &v1alpha1.SlowestConsumer{Name: "a"}}), plan.UrgencyDetail},
		"lag of the slowest": {plan.FeedUrgency(&v1alpha1.FeedStatus{Slowest: &v1alpha1.SlowestConsumer{Name: "a"}},
			&v1alpha1.FeedStatus{Slowest: &v1alpha1.SlowestConsumer{Name: "a"}, MessageCount: new(int64(1))}), plan.UrgencyFigures},
		"the first connection": {plan.ConsumerUrgency(&v1alpha1.FeedConsumerStatus{}, &v1alpha1.FeedConsumerStatus{ConnectionCount: new(int32(1))}), plan.UrgencyDetail},
		"another connection":   {plan.ConsumerUrgency(&v1alpha1.FeedConsumerStatus{ConnectionCount: new(int32(1))}, &v1alpha1.FeedConsumerStatus{ConnectionCount: new(int32(2))}), plan.UrgencyFigures},
		"the archivist's credentials": {plan.SiteUrgency(&v1alpha1.SiteStatus{Archivist: &v1alpha1.ArchivistState{}},
			&v1alpha1.SiteStatus{Archivist: &v1alpha1.ArchivistState{Credentials: &v1alpha1.CredentialsStatus{User: "another"}}}), plan.UrgencyCondition},
	} {
		if c.got != c.want {
			t.Errorf("%s: urgency %d, not %d", name, c.got, c.want)
		}
	}
}

// TestWhatALevelDoesIsNoFigure: that a level is fulfilled, held or unknown is written at once, in a condition whose message has nothing
// that was measured since it began; values that are measured meanwhile are figures.
func TestWhatALevelDoesIsNoFigure(t *testing.T) {
	now := time.Date(2026, 11, 21, 15, 0, 0, 0, time.UTC)
	threshold := func(q v1alpha1.SpaceWeatherQuantity, atLeast, atMost string) v1alpha1.SurgeRule {
		return v1alpha1.SurgeRule{AllOf: []v1alpha1.SurgeThreshold{{Quantity: q, AtLeast: atLeast, AtMost: atMost}}}
	}
	site := &v1alpha1.Site{Spec: v1alpha1.SiteSpec{Surge: v1alpha1.Surge{Levels: []v1alpha1.SurgeLevel{
		{Name: "storm", AnyOf: []v1alpha1.SurgeRule{threshold("Kp", "5", ""), threshold("Bz", "", "-10")}, Floors: []v1alpha1.SurgeFloor{{Kind: "FeedServer", Replicas: 4}}}}}}}
	signals := surge.Signals{{Quantity: surge.Kp, Source: "rec", StaleAfter: time.Hour}, {Quantity: surge.Bz, Source: "rec", StaleAfter: time.Hour}}
	for _, step := range []struct {
		name    string
		after   time.Duration
		kp, bz  float64
		want    plan.Urgency
		surging string
		message string
	}{
		{"calm", 0, 2, 0, plan.UrgencyCondition, "False/NoLevel", "space weather asks for no more pods"},
		{"a storm", time.Minute, 7.7, 0, plan.UrgencyCondition, "True/LevelFulfilled", "level storm began with Kp 7.7 (rec) ≥ 5"},
		{"another value", time.Minute, 6, 0, plan.UrgencyFigures, "True/LevelFulfilled", "level storm began with Kp 7.7 (rec) ≥ 5"},
		{"Bz is not told", time.Minute, 2.3, math.NaN(), plan.UrgencyCondition, "True/LevelHeld",
			"level storm stays: it began with Kp 7.7 (rec) ≥ 5, and nobody knows whether it is fulfilled now"},
		{"nor a minute later", time.Minute, 2.3, math.NaN(), plan.UrgencyFigures, "True/LevelHeld",
			"level storm stays: it began with Kp 7.7 (rec) ≥ 5, and nobody knows whether it is fulfilled now"},
		{"Bz is told", time.Minute, 2.3, 0, plan.UrgencyCondition, "True/LevelHeld",
			"level storm is held until 2026-11-22T03:05:00Z: it began with Kp 7.7 (rec) ≥ 5, and is fulfilled no more"},
		{"another value below", time.Minute, 2, 0, plan.UrgencyFigures, "True/LevelHeld",
			"level storm is held until 2026-11-22T03:05:00Z: it began with Kp 7.7 (rec) ≥ 5, and is fulfilled no more"},
		{"over", 13 * time.Hour, 2, 0, plan.UrgencyCondition, "False/NoLevel", "space weather asks for no more pods"},
		{"Bz is not told in calm", time.Minute, 2, math.NaN(), plan.UrgencyCondition, "False/NoLevel", "space weather asks for no more pods, as far as is known"},
	} {
		now = now.Add(step.after)
		for i, value := range []float64{step.kp, step.bz} {
			signals[i].Samples = []surge.Sample{{From: now.Add(-3 * time.Hour), To: now.Add(-time.Second), Value: value}}
		}
		is, _ := plan.SiteStatus(plan.SiteView{Now: now, Site: site, Sites: []v1alpha1.Site{*site}, Weather: &plan.Weather{Signals: signals}})
		if got := plan.SiteUrgency(&site.Status, &is); got != step.want {
			t.Errorf("%s: urgency %d, want %d", step.name, got, step.want)
		}
		if f := finding.Of(is.Conditions, v1alpha1.ConditionSurging); string(f.Status)+"/"+f.Reason != step.surging || f.Message != step.message {
			t.Errorf("%s: %+v, want %s, %q", step.name, f, step.surging, step.message)
		}
		site.Status = is
	}
}
