// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// Urgency of writing a status: changes that a person waits for come first.
type Urgency int

// The values of Urgency, most urgent first.
const (
	// UrgencySpec: the status is of a newer generation.
	UrgencySpec Urgency = iota
	// UrgencyCondition: a condition came, went, or changed status or reason; pods, addresses, a Site's counts or the request to an
	// instrument changed.
	UrgencyCondition
	// UrgencyDetail: the words of a condition, or something that occurs rarely.
	UrgencyDetail
	// UrgencyFigures: frequent counts and times that change all the time.
	UrgencyFigures
)

// SiteUrgency compares the current status with the planned one.
func SiteUrgency(before, after *v1alpha1.SiteStatus) Urgency {
	return urgency(before.ObservedGeneration != after.ObservedGeneration, before.Conditions, after.Conditions,
		summaryChanged(before, after) || ledgerChanged(before.Ledger, after.Ledger) || archiveChanged(before.Archive, after.Archive) ||
			!equality.Semantic.DeepEqual(before.RecreatedStreams, after.RecreatedStreams) || !equality.Semantic.DeepEqual(before.JetStream, after.JetStream) ||
			credentialsChanged(ofArchivist(before), ofArchivist(after)) || surgeChanged(before, after), siteRest(before, after))
}

// surgeChanged: levels or floors changed, or whether the level is fulfilled. The values from the sources change all the time, and are figures.
func surgeChanged(before, now *v1alpha1.SiteStatus) bool {
	surgeBefore, surgeNow := before.Surge, now.Surge
	if surgeBefore == nil || surgeNow == nil {
		return surgeBefore != surgeNow
	}
	return surgeBefore.Level != surgeNow.Level || !equality.Semantic.DeepEqual(surgeBefore.LevelTime, surgeNow.LevelTime) ||
		!equality.Semantic.DeepEqual(surgeBefore.Levels, surgeNow.Levels) || !equality.Semantic.DeepEqual(surgeBefore.Floors, surgeNow.Floors) ||
		finding.Of(before.Conditions, v1alpha1.ConditionSurging) != finding.Of(now.Conditions, v1alpha1.ConditionSurging)
}

// siteRest is the urgency of any other change: UrgencyFigures if it is in the data of space weather, else UrgencyDetail.
func siteRest(before, after *v1alpha1.SiteStatus) Urgency {
	other := *before
	other.Surge = after.Surge
	if before.Surge != nil && equality.Semantic.DeepEqual(&other, after) {
		return UrgencyFigures
	}
	return UrgencyDetail
}

// ledgerChanged: other days of the ledger are closed, as happens once a day.
func ledgerChanged(before, after *v1alpha1.LedgerState) bool {
	if before == nil || after == nil {
		return before != after
	}
	return before.ClosedTo != after.ClosedTo || !slices.Equal(before.Reopened, after.Reopened)
}

// archiveChanged: more or less of the archive is known to be damaged, or another pass has begun or
// ended. How far a pass has come is a figure.
func archiveChanged(before, after *v1alpha1.ArchiveState) bool {
	if before == nil || after == nil {
		return before != after
	}
	return before.DamagedCount != after.DamagedCount || before.MissingCount != after.MissingCount || before.UnconfirmedCount != after.UnconfirmedCount ||
		(before.Pass == nil) != (after.Pass == nil) || !equality.Semantic.DeepEqual(before.LastPass, after.LastPass)
}

// summaryChanged: a Site's summary must not contradict its instruments, neither in
// numbers nor in the names of those that are silent.
func summaryChanged(before, after *v1alpha1.SiteStatus) bool {
	return !ptr.Equal(before.InstrumentSummary, after.InstrumentSummary) ||
		finding.Of(before.Conditions, v1alpha1.ConditionDataFlowing) != finding.Of(after.Conditions, v1alpha1.ConditionDataFlowing)
}

// GatewayUrgency compares the current status with the planned one.
func GatewayUrgency(before, after *v1alpha1.IngestGatewayStatus) Urgency {
	return urgency(before.ObservedGeneration != after.ObservedGeneration, before.Conditions, after.Conditions,
		!ptr.Equal(before.Replicas, after.Replicas) || !ptr.Equal(before.ReadyReplicas, after.ReadyReplicas) || before.Selector != after.Selector || before.Datapath != after.Datapath ||
			(before.Spool == nil) != (after.Spool == nil) || scalingChanged(before.Autoscaling, after.Autoscaling) || credentialsChanged(before.Credentials, after.Credentials),
		gatewayRest(before, after))
}

// gatewayRest is the urgency of any other change: UrgencyFigures if it is in the load that the loop reports, else UrgencyDetail.
func gatewayRest(before, after *v1alpha1.IngestGatewayStatus) Urgency {
	other := *before
	other.Autoscaling = after.Autoscaling
	if equality.Semantic.DeepEqual(&other, after) {
		return UrgencyFigures
	}
	return UrgencyDetail
}

// FeedServerUrgency compares the current status with the planned one.
func FeedServerUrgency(before, after *v1alpha1.FeedServerStatus) Urgency {
	rest := UrgencyFigures
	if some(before.ConnectionCount) != some(after.ConnectionCount) || some(before.ConsumerCount) != some(after.ConsumerCount) {
		rest = UrgencyDetail
	}
	return urgency(before.ObservedGeneration != after.ObservedGeneration, before.Conditions, after.Conditions,
		!equality.Semantic.DeepEqual(before.Replicas, after.Replicas) || !equality.Semantic.DeepEqual(before.ReadyReplicas, after.ReadyReplicas) ||
			before.Selector != after.Selector || before.URL != after.URL || (before.ConnectionCount == nil) != (after.ConnectionCount == nil) ||
			scalingChanged(before.Autoscaling, after.Autoscaling) || credentialsChanged(before.Credentials, after.Credentials), rest)
}

// some: there is at least one.
func some(n *int32) bool { return n != nil && *n > 0 }

// InstrumentUrgency compares the current status with the planned one.
func InstrumentUrgency(before, after *v1alpha1.InstrumentStatus) Urgency {
	return urgency(before.ObservedGeneration != after.ObservedGeneration, before.Conditions, after.Conditions,
		!slices.EqualFunc(before.Listeners, after.Listeners, sameListener) || samplingChanged(before.Sampling, after.Sampling), UrgencyFigures)
}

// sameListener: it is the same one, with the same addresses, and gateways receive there as they did.
func sameListener(before, after v1alpha1.ListenerStatus) bool {
	return before.Name == after.Name && slices.Equal(before.Addresses, after.Addresses) && len(Changed(before.Conditions, after.Conditions)) == 0
}

// InstrumentPasses returns whether a status is of a state that ends by itself within moments, while an accepted Instrument's entry is
// written and gateways follow. An Instrument that had no status yet gets it at once.
func InstrumentPasses(before, after *v1alpha1.InstrumentStatus) bool {
	accepted, programmed := finding.Of(after.Conditions, v1alpha1.ConditionAccepted), finding.Of(after.Conditions, v1alpha1.ConditionProgrammed)
	return len(before.Conditions) > 0 && accepted.OK() && programmed.Status == metav1.ConditionFalse &&
		(programmed.Reason == v1alpha1.ReasonProgressing || programmed.Reason == v1alpha1.ReasonReconciling)
}

// FeedUrgency compares the current status with the planned one.
func FeedUrgency(before, after *v1alpha1.FeedStatus) Urgency {
	rest := UrgencyFigures
	if slowest(before) != slowest(after) {
		rest = UrgencyDetail
	}
	return urgency(before.ObservedGeneration != after.ObservedGeneration, before.Conditions, after.Conditions,
		!equality.Semantic.DeepEqual(before.InstrumentCount, after.InstrumentCount) ||
			!equality.Semantic.DeepEqual(before.ConsumerCount, after.ConsumerCount) || !slices.Equal(before.Streams, after.Streams) ||
			(before.First == nil) != (after.First == nil), rest)
}

// slowest names the consumer that is furthest behind; empty for none.
func slowest(s *v1alpha1.FeedStatus) string {
	if s.Slowest == nil {
		return ""
	}
	return s.Slowest.Name
}

// ConsumerUrgency compares the current status with the planned one.
func ConsumerUrgency(before, after *v1alpha1.FeedConsumerStatus) Urgency {
	rest := UrgencyFigures
	connected := (ptr.Deref(before.ConnectionCount, 0) == 0) != (ptr.Deref(after.ConnectionCount, 0) == 0) || (handedOver(before) == 0) != (handedOver(after) == 0)
	if connected {
		rest = UrgencyDetail
	}
	return urgency(before.ObservedGeneration != after.ObservedGeneration, before.Conditions, after.Conditions,
		before.SecretName != after.SecretName || before.URL != after.URL || credentialsChanged(before.Credentials, after.Credentials), rest)
}

// MirrorUrgency compares the current status with the planned one. A continuous mirror begins a run with each notice: that it does, and what
// it owes meanwhile, are figures.
func MirrorUrgency(before, after *v1alpha1.MirrorPartnerStatus) Urgency {
	rest := UrgencyFigures
	if ((before.Progress == nil) != (after.Progress == nil) || owes(before) != owes(after)) && !slices.ContainsFunc(after.Runs, continuous) {
		rest = UrgencyDetail
	}
	return urgency(before.ObservedGeneration != after.ObservedGeneration, before.Conditions, after.Conditions,
		!slices.EqualFunc(before.Runs, after.Runs, sameRun) || !before.NextRunTime.Equal(after.NextRunTime) || credentialsChanged(before.Credentials, after.Credentials), rest)
}

// sameRun: it is the same run, with the same end. For a continuous run, conditions report how it ended, or how it does.
func sameRun(before, after v1alpha1.MirrorRun) bool {
	return before.Name == after.Name && (continuous(after) || before.Result == after.Result && before.Reason == after.Reason)
}

func continuous(run v1alpha1.MirrorRun) bool { return run.Trigger == v1alpha1.MirrorTriggerContinuous }

func owes(s *v1alpha1.MirrorPartnerStatus) bool { return s.Owed != nil && s.Owed.ObjectCount > 0 }

func handedOver(s *v1alpha1.FeedConsumerStatus) int64 {
	if s.Delivered == nil {
		return 0
	}
	return ptr.Deref(s.Delivered.MessageCount, 0)
}

func ofArchivist(s *v1alpha1.SiteStatus) *v1alpha1.CredentialsStatus {
	if s.Archivist == nil {
		return nil
	}
	return s.Archivist.Credentials
}

// credentialsChanged: credentials are of another user, or valid until another time, as happens
// once in ten days.
func credentialsChanged(before, after *v1alpha1.CredentialsStatus) bool {
	if before == nil || after == nil {
		return before != after
	}
	return before.User != after.User || !before.ExpirationTime.Equal(after.ExpirationTime)
}

// urgency returns rest for a status in which nothing more urgent has changed.
func urgency(spec bool, before, after []metav1.Condition, moved bool, rest Urgency) Urgency {
	switch {
	case spec:
		return UrgencySpec
	case moved, len(before) != len(after), len(Changed(before, after)) > 0:
		return UrgencyCondition
	case !equality.Semantic.DeepEqual(before, after):
		return UrgencyDetail
	default:
		return rest
	}
}

// Changed returns the conditions that are new or have another status or reason.
func Changed(before, after []metav1.Condition) []metav1.Condition {
	var changed []metav1.Condition
	for _, c := range after {
		old := finding.Condition(before, c.Type)
		if old == nil || old.Status != c.Status || old.Reason != c.Reason {
			changed = append(changed, c)
		}
	}
	return changed
}

// samplingChanged says whether something else is asked, or followed, than before.
func samplingChanged(before, after *v1alpha1.SamplingStatus) bool {
	if before == nil || after == nil {
		return before != after
	}
	follows := func(s *v1alpha1.SamplingStatus) bool { return s.Outcome == v1alpha1.SamplingFollowed }
	return follows(before) != follows(after) || before.Problem != after.Problem || !slices.EqualFunc(before.Channels, after.Channels, func(a, b v1alpha1.ChannelSamplingStatus) bool {
		return a.Name == b.Name && a.State == b.State && a.AskedBy == b.AskedBy && (a.Asked == nil) == (b.Asked == nil) && (a.Asked == nil || *a.Asked == *b.Asked)
	})
}
