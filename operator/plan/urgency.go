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
func SiteUrgency(was, is *v1alpha1.SiteStatus) Urgency {
	return urgency(was.ObservedGeneration != is.ObservedGeneration, was.Conditions, is.Conditions,
		recounted(was, is) || reclosed(was.Ledger, is.Ledger) || reread(was.Archive, is.Archive) ||
			!equality.Semantic.DeepEqual(was.RecreatedStreams, is.RecreatedStreams) || !equality.Semantic.DeepEqual(was.JetStream, is.JetStream) ||
			reissued(ofArchivist(was), ofArchivist(is)) || surged(was, is), siteRest(was, is))
}

// surged: levels or floors changed, or whether the level is fulfilled. The values from the sources change all the time, and are figures.
func surged(before, now *v1alpha1.SiteStatus) bool {
	was, is := before.Surge, now.Surge
	if was == nil || is == nil {
		return was != is
	}
	return was.Level != is.Level || !equality.Semantic.DeepEqual(was.LevelTime, is.LevelTime) ||
		!equality.Semantic.DeepEqual(was.Levels, is.Levels) || !equality.Semantic.DeepEqual(was.Floors, is.Floors) ||
		finding.Of(before.Conditions, v1alpha1.ConditionSurging) != finding.Of(now.Conditions, v1alpha1.ConditionSurging)
}

// siteRest is the urgency of any other change: UrgencyFigures if it is in the data of space weather, else UrgencyDetail.
func siteRest(was, is *v1alpha1.SiteStatus) Urgency {
	other := *was
	other.Surge = is.Surge
	if was.Surge != nil && equality.Semantic.DeepEqual(&other, is) {
		return UrgencyFigures
	}
	return UrgencyDetail
}

// reclosed: other days of the ledger are closed, as happens once a day.
func reclosed(was, is *v1alpha1.LedgerState) bool {
	if was == nil || is == nil {
		return was != is
	}
	return was.ClosedTo != is.ClosedTo || !slices.Equal(was.Reopened, is.Reopened)
}

// reread: more or less of the archive is known to be damaged, or another pass has begun or
// ended. How far a pass has come is a figure.
func reread(was, is *v1alpha1.ArchiveState) bool {
	if was == nil || is == nil {
		return was != is
	}
	return was.DamagedCount != is.DamagedCount || was.MissingCount != is.MissingCount || was.UnconfirmedCount != is.UnconfirmedCount ||
		(was.Pass == nil) != (is.Pass == nil) || !equality.Semantic.DeepEqual(was.LastPass, is.LastPass)
}

// recounted: a Site's summary must not contradict its instruments, neither in
// numbers nor in the names of those that are silent.
func recounted(was, is *v1alpha1.SiteStatus) bool {
	return !ptr.Equal(was.InstrumentSummary, is.InstrumentSummary) ||
		finding.Of(was.Conditions, v1alpha1.ConditionDataFlowing) != finding.Of(is.Conditions, v1alpha1.ConditionDataFlowing)
}

// GatewayUrgency compares the current status with the planned one.
func GatewayUrgency(was, is *v1alpha1.IngestGatewayStatus) Urgency {
	return urgency(was.ObservedGeneration != is.ObservedGeneration, was.Conditions, is.Conditions,
		!ptr.Equal(was.Replicas, is.Replicas) || !ptr.Equal(was.ReadyReplicas, is.ReadyReplicas) || was.Selector != is.Selector || was.Datapath != is.Datapath ||
			(was.Spool == nil) != (is.Spool == nil) || rescaled(was.Autoscaling, is.Autoscaling) || reissued(was.Credentials, is.Credentials), gatewayRest(was, is))
}

// gatewayRest is the urgency of any other change: UrgencyFigures if it is in the load that the loop reports, else UrgencyDetail.
func gatewayRest(was, is *v1alpha1.IngestGatewayStatus) Urgency {
	other := *was
	other.Autoscaling = is.Autoscaling
	if equality.Semantic.DeepEqual(&other, is) {
		return UrgencyFigures
	}
	return UrgencyDetail
}

// FeedServerUrgency compares the current status with the planned one.
func FeedServerUrgency(was, is *v1alpha1.FeedServerStatus) Urgency {
	rest := UrgencyFigures
	if some(was.ConnectionCount) != some(is.ConnectionCount) || some(was.ConsumerCount) != some(is.ConsumerCount) {
		rest = UrgencyDetail
	}
	return urgency(was.ObservedGeneration != is.ObservedGeneration, was.Conditions, is.Conditions,
		!equality.Semantic.DeepEqual(was.Replicas, is.Replicas) || !equality.Semantic.DeepEqual(was.ReadyReplicas, is.ReadyReplicas) ||
			was.Selector != is.Selector || was.URL != is.URL || (was.ConnectionCount == nil) != (is.ConnectionCount == nil) ||
			rescaled(was.Autoscaling, is.Autoscaling) || reissued(was.Credentials, is.Credentials), rest)
}

// some: there is at least one.
func some(n *int32) bool { return n != nil && *n > 0 }

// InstrumentUrgency compares the current status with the planned one.
func InstrumentUrgency(was, is *v1alpha1.InstrumentStatus) Urgency {
	return urgency(was.ObservedGeneration != is.ObservedGeneration, was.Conditions, is.Conditions,
		!slices.EqualFunc(was.Listeners, is.Listeners, sameListener) || resampled(was.Sampling, is.Sampling), UrgencyFigures)
}

// sameListener: it is the same one, with the same addresses, and gateways receive there as they did.
func sameListener(was, is v1alpha1.ListenerStatus) bool {
	return was.Name == is.Name && slices.Equal(was.Addresses, is.Addresses) && len(Changed(was.Conditions, is.Conditions)) == 0
}

// InstrumentPasses returns whether a status is of a state that ends by itself within moments, while an accepted Instrument's entry is
// written and gateways follow. An Instrument that had no status yet gets it at once.
func InstrumentPasses(was, is *v1alpha1.InstrumentStatus) bool {
	accepted, programmed := finding.Of(is.Conditions, v1alpha1.ConditionAccepted), finding.Of(is.Conditions, v1alpha1.ConditionProgrammed)
	return len(was.Conditions) > 0 && accepted.OK() && programmed.Status == metav1.ConditionFalse &&
		(programmed.Reason == v1alpha1.ReasonProgressing || programmed.Reason == v1alpha1.ReasonReconciling)
}

// FeedUrgency compares the current status with the planned one.
func FeedUrgency(was, is *v1alpha1.FeedStatus) Urgency {
	rest := UrgencyFigures
	if slowest(was) != slowest(is) {
		rest = UrgencyDetail
	}
	return urgency(was.ObservedGeneration != is.ObservedGeneration, was.Conditions, is.Conditions,
		!equality.Semantic.DeepEqual(was.InstrumentCount, is.InstrumentCount) || !equality.Semantic.DeepEqual(was.ConsumerCount, is.ConsumerCount) || !slices.Equal(was.Streams, is.Streams) ||
			(was.First == nil) != (is.First == nil), rest)
}

// slowest names the consumer that is furthest behind; empty for none.
func slowest(s *v1alpha1.FeedStatus) string {
	if s.Slowest == nil {
		return ""
	}
	return s.Slowest.Name
}

// ConsumerUrgency compares the current status with the planned one.
func ConsumerUrgency(was, is *v1alpha1.FeedConsumerStatus) Urgency {
	rest := UrgencyFigures
	connected := (ptr.Deref(was.ConnectionCount, 0) == 0) != (ptr.Deref(is.ConnectionCount, 0) == 0) || (handedOver(was) == 0) != (handedOver(is) == 0)
	if connected {
		rest = UrgencyDetail
	}
	return urgency(was.ObservedGeneration != is.ObservedGeneration, was.Conditions, is.Conditions,
		was.SecretName != is.SecretName || was.URL != is.URL || reissued(was.Credentials, is.Credentials), rest)
}

// MirrorUrgency compares the current status with the planned one. A continuous mirror begins a run with each notice: that it does, and what
// it owes meanwhile, are figures.
func MirrorUrgency(was, is *v1alpha1.MirrorPartnerStatus) Urgency {
	rest := UrgencyFigures
	if ((was.Progress == nil) != (is.Progress == nil) || owes(was) != owes(is)) && !slices.ContainsFunc(is.Runs, continuous) {
		rest = UrgencyDetail
	}
	return urgency(was.ObservedGeneration != is.ObservedGeneration, was.Conditions, is.Conditions,
		!slices.EqualFunc(was.Runs, is.Runs, sameRun) || !was.NextRunTime.Equal(is.NextRunTime) || reissued(was.Credentials, is.Credentials), rest)
}

// sameRun: it is the same run, with the same end. For a continuous run, conditions report how it ended, or how it does.
func sameRun(was, is v1alpha1.MirrorRun) bool {
	return was.Name == is.Name && (continuous(is) || was.Result == is.Result && was.Reason == is.Reason)
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

// reissued: credentials are of another user, or valid until another time, as happens
// once in ten days.
func reissued(was, is *v1alpha1.CredentialsStatus) bool {
	if was == nil || is == nil {
		return was != is
	}
	return was.User != is.User || !was.ExpirationTime.Equal(is.ExpirationTime)
}

// urgency returns rest for a status in which nothing more urgent has changed.
func urgency(spec bool, was, is []metav1.Condition, moved bool, rest Urgency) Urgency {
	switch {
	case spec:
		return UrgencySpec
	case moved, len(was) != len(is), len(Changed(was, is)) > 0:
		return UrgencyCondition
	case !equality.Semantic.DeepEqual(was, is):
		return UrgencyDetail
	default:
		return rest
	}
}

// Changed returns the conditions that are new or have another status or reason.
func Changed(was, is []metav1.Condition) []metav1.Condition {
	var changed []metav1.Condition
	for _, c := range is {
		old := finding.Condition(was, c.Type)
		if old == nil || old.Status != c.Status || old.Reason != c.Reason {
			changed = append(changed, c)
		}
	}
	return changed
}
