// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
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

// TestWordsOfAConditionAreDetails: what a condition says is more than a count, and who is
// slowest, or where a consumer's durable goes on, too.
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
