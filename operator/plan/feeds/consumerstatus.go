// SPDX-License-Identifier: Apache-2.0

package feeds

import (
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/observed"
)

// ConsumerFigures are the feed servers' measurements of a FeedConsumer, all of them together: the worst state, the greatest lag, and sums.
// Bytes are nil if a pod does not know its own.
type ConsumerFigures struct {
	State       string
	Connections int32
	LagMessages int64
	LagBytes    *int64
	Lag         time.Duration
	Messages    int64
	Bytes       *int64
	Dropped     map[string]int64
	Gaps        int64
	Achieved    time.Duration
}

// badness orders the states of a consumer, as feed servers report them and as the reasons of KeepingUp: the worst of several is shown.
var badness = []string{v1alpha1.ReasonIdle, v1alpha1.ReasonFlowing, v1alpha1.ReasonSlow, v1alpha1.ReasonOverrun}

// MergeConsumer sums up the pods' reports of a consumer. Their counts stay, also those of a pod that is gone, for as long as its report is
// kept. A report describes the consumer's present state if it is not older than three intervals, or if it is older and its pod, which
// reports changes only, still reports about itself.
func MergeConsumer(reports []observed.ConsumerReport, servers []observed.FeedServerReport, now time.Time) ConsumerFigures {
	sum := ConsumerFigures{State: v1alpha1.ReasonIdle, LagBytes: new(int64), Bytes: new(int64), Dropped: map[string]int64{}}
	for _, r := range reports {
		sum.count(r)
		if now.Sub(r.Seen) > observed.ReportAge && !slices.ContainsFunc(observed.FreshServers(servers, now), r.IsOf) {
			continue
		}
		if slices.Index(badness, r.State) > slices.Index(badness, sum.State) {
			sum.State = r.State
		}
		sum.Connections += int32(r.Connections)
		if lag := time.Duration(r.LagMillis) * time.Millisecond; lag > sum.Lag || r.LagMessages > sum.LagMessages {
			sum.Lag = max(sum.Lag, lag)
			sum.LagMessages, sum.LagBytes = max(sum.LagMessages, r.LagMessages), joinKnown(sum.LagBytes, r.LagBytes, greater)
		}
		sum.Achieved = max(sum.Achieved, time.Duration(r.AchievedMillis)*time.Millisecond)
	}
	return sum
}

// count adds the counts of one pod.
func (sum *ConsumerFigures) count(r observed.ConsumerReport) {
	sum.Messages += int64(r.Messages)
	sum.Bytes = joinKnown(sum.Bytes, r.Bytes, plus)
	sum.Gaps += int64(r.Gaps)
	for reason, n := range r.Dropped {
		sum.Dropped[reason] += int64(n)
	}
}

// joinKnown joins two figures; nil if one of them is not known.
func joinKnown[T int64 | uint64](a *int64, b *T, join func(a, b int64) int64) *int64 {
	if a == nil || b == nil {
		return nil
	}
	return new(join(*a, int64(*b)))
}

func greater(a, b int64) int64 { return max(a, b) }

func plus(a, b int64) int64 { return a + b }

// ConsumerView is everything that a FeedConsumer's status is made from.
type ConsumerView struct {
	Now      time.Time
	Consumer *v1alpha1.FeedConsumer
	Verdict  accept.ConsumerVerdict
	// Site of its Feed; nil where the Feed does not exist.
	Site *v1alpha1.Site
	Bus  observed.Bus
	// Entry is the entry in the registry; nil if there is none.
	Entry *wire.ConsumerEntry
	// Failed is why its Secret could not be written.
	Failed *finding.Finding
	// Durables is what was found of them, and of the stream that is filled for it; nil if they were not checked since they were planned.
	Durables *finding.Finding
	// Server is the FeedServer whose address it gets; nil if the Site has none.
	Server *v1alpha1.FeedServer
	// Servers are the reports of all feed servers of the Site.
	Servers []observed.FeedServerReport
	Reports []observed.ConsumerReport
	URL     string
	// Credentials are those in its Secret; nil if there are none.
	Credentials *bus.Credentials
}

// ConsumerStatus returns the status, and after how long to look again.
func ConsumerStatus(v ConsumerView) (v1alpha1.FeedConsumerStatus, time.Duration) {
	sum := MergeConsumer(v.Reports, v.Servers, v.Now)
	keepingUp, wait := v.keepingUp(sum)
	c := finding.Conditions{Now: v.Now, Generation: v.Consumer.Generation, Old: v.Consumer.Status.Conditions}
	c.Set(v1alpha1.ConditionAccepted, v.Verdict.Finding)
	if v.Verdict.OK() {
		c.Set(v1alpha1.ConditionInstrumentsSelected, v.Verdict.Selected)
	}
	if v.Site != nil && accept.NATSWithoutPort(v.Site, v.Consumer) {
		c.Set(v1alpha1.ConditionNotApplied, finding.Good(v1alpha1.ReasonStandalone, accept.NoNATSPort))
	}
	c.Set(v1alpha1.ConditionKeepingUp, keepingUp)
	patienceEnds := c.Finish(finding.First(v, consumerReadiness, finding.Good(v1alpha1.ReasonReady, "it can connect with what Secret "+
		fmt.Sprintf("%q", bus.ConsumerSecretName(v.Consumer))+" holds: "+v.Verdict.Message)))
	status := v1alpha1.FeedConsumerStatus{
		ObservedGeneration: v.Consumer.Generation, Conditions: c.All,
		SecretName: v.Consumer.Status.SecretName, URL: v.URL, Credentials: v.Credentials.Status(),
	}
	if v.Verdict.Served && v.Failed == nil && v.Site != nil {
		status.SecretName = bus.ConsumerSecretName(v.Consumer)
	}
	v.figures(&status, sum)
	return status, finding.Soonest(patienceEnds, wait, v.Credentials.RenewsIn(v.Now), observed.FiguresEvery)
}

// figures fills in what was measured. While no pod reports, the last figures stay.
func (v ConsumerView) figures(status *v1alpha1.FeedConsumerStatus, sum ConsumerFigures) {
	if len(v.Reports) == 0 || !v.Bus.Up || len(observed.FreshServers(v.Servers, v.Now)) == 0 {
		was := &v.Consumer.Status
		status.Lag, status.Delivered, status.Dropped = was.Lag, was.Delivered, was.Dropped
		status.GapCount, status.AchievedInterval = was.GapCount, was.AchievedInterval
		return
	}
	status.ConnectionCount = new(sum.Connections)
	status.Lag = &v1alpha1.ConsumerLag{MessageCount: new(sum.LagMessages), Bytes: sum.LagBytes, Seconds: new(int64(sum.Lag / time.Second))}
	status.Delivered = &v1alpha1.ConsumerDelivered{MessageCount: new(sum.Messages), Bytes: sum.Bytes}
	for _, reason := range slices.Sorted(maps.Keys(sum.Dropped)) {
		status.Dropped = append(status.Dropped, v1alpha1.ConsumerDropped{Reason: reason, Count: sum.Dropped[reason]})
	}
	status.GapCount = new(sum.Gaps)
	if sum.Achieved > 0 {
		status.AchievedInterval = &metav1.Duration{Duration: sum.Achieved}
	}
}

// Can the consumer connect, and is it served?
var consumerReadiness = []finding.Check[ConsumerView]{
	func(v ConsumerView) (finding.Finding, bool) { return v.Verdict.Finding, !v.Verdict.OK() },
	siteHasNoFeedServer,
	func(v ConsumerView) (finding.Finding, bool) {
		if v.Failed == nil {
			return finding.Finding{}, false
		}
		return *v.Failed, true
	},
	consumerIsAsItWas,
	consumerIsNotWritten,
	durablesAreAmiss,
	noFeedServerReports,
	feedServerHasProblem,
	feedServerIsBehind,
}

func siteHasNoFeedServer(v ConsumerView) (finding.Finding, bool) {
	return finding.Bad(v1alpha1.ReasonNoFeedServer, fmt.Sprintf(
			"Site %q has no FeedServer, which serves consumers and tells them of gaps: create one whose siteRef names it", v.Site.Name)),
		v.Server == nil
}

func consumerIsAsItWas(v ConsumerView) (finding.Finding, bool) {
	was := finding.Condition(v.Consumer.Status.Conditions, v1alpha1.ConditionReady)
	if v.Bus.Up || was == nil || was.ObservedGeneration != v.Consumer.Generation {
		return finding.Finding{}, false
	}
	return finding.From(was), true
}

func consumerIsNotWritten(v ConsumerView) (finding.Finding, bool) {
	if v.Entry != nil && v.Entry.UID == string(v.Consumer.UID) && v.Entry.Generation == v.Consumer.Generation {
		return finding.Finding{}, false
	}
	return notWritten(v.Consumer.Generation, v.Bus, v.Site.Name), true
}

func durablesAreAmiss(v ConsumerView) (finding.Finding, bool) {
	switch {
	case v.Consumer.Spec.Delivery.Type != v1alpha1.DeliveryNATS:
		return finding.Finding{}, false
	case v.Durables == nil:
		return finding.Bad(v1alpha1.ReasonReconciling, "its durables in JetStream are being made"), true
	default:
		return *v.Durables, !v.Durables.OK()
	}
}

func noFeedServerReports(v ConsumerView) (finding.Finding, bool) {
	return finding.Bad(v1alpha1.ReasonNotReported, fmt.Sprintf("no feed server of Site %q reports: see its condition %s",
		v.Site.Name, v1alpha1.ConditionFeedServerAvailable)), len(observed.FreshServers(v.Servers, v.Now)) == 0
}

func feedServerHasProblem(v ConsumerView) (finding.Finding, bool) {
	for _, s := range observed.FreshServers(v.Servers, v.Now) {
		if problem := s.Problems[v.Consumer.Name]; problem != "" {
			return finding.Bad(v1alpha1.ReasonFeedServerProblem, fmt.Sprintf("feed server %s: %s", s.Pod, problem)), true
		}
	}
	return finding.Finding{}, false
}

func feedServerIsBehind(v ConsumerView) (finding.Finding, bool) {
	for _, s := range observed.FreshServers(v.Servers, v.Now) {
		if s.Revision < v.Entry.Revision && s.Revision > 0 && !s.Draining {
			return finding.Bad(v1alpha1.ReasonProgressing, fmt.Sprintf("feed server %s does not run registry revision %d yet", s.Pod, v.Entry.Revision)), true
		}
	}
	return finding.Finding{}, false
}

// keepingUp also says when the answer may change without a report.
func (v ConsumerView) keepingUp(sum ConsumerFigures) (finding.Finding, time.Duration) {
	was := finding.Condition(v.Consumer.Status.Conditions, v1alpha1.ConditionKeepingUp)
	latest := time.Time{}
	for _, s := range v.Servers {
		if s.Seen.After(latest) {
			latest = s.Seen
		}
	}
	if !v.Bus.Up {
		latest = v.Bus.Since
	}
	silent := v.Now.Sub(latest) > observed.ReportAge+observed.ReportGrace
	switch {
	case !v.Verdict.OK():
		return finding.Unknown(v1alpha1.ReasonNotAccepted, "it gets nothing until it is accepted: "+v.Verdict.Message), 0
	case silent:
		return finding.Unknown(v1alpha1.ReasonNoReport, "no feed server reports about it: see the conditions of the Site"), 0
	case (!v.Bus.Up || len(observed.FreshServers(v.Servers, v.Now)) == 0) && was != nil:
		return finding.From(was), latest.Add(observed.ReportAge+observed.ReportGrace).Sub(v.Now) + time.Second
	default:
		return sum.finding(), 0
	}
}

func (sum ConsumerFigures) finding() finding.Finding {
	behind := fmt.Sprintf("it is %s behind, with %d messages to go", sum.Lag.Truncate(time.Second), sum.LagMessages)
	if sum.LagBytes != nil {
		behind = fmt.Sprintf("it is %s behind, with %d messages of %d bytes to go", sum.Lag.Truncate(time.Second), sum.LagMessages, *sum.LagBytes)
	}
	switch sum.State {
	case v1alpha1.ReasonFlowing:
		return finding.Good(sum.State, "it gets what its flow asks for")
	case v1alpha1.ReasonSlow:
		return finding.Bad(sum.State, behind+": read faster, narrow spec.filter, or choose flow mode Latest or Sample")
	case v1alpha1.ReasonOverrun:
		return finding.Bad(sum.State, fmt.Sprintf(
			"it was sent a gap record in the last ten minutes, %d in all; %s: what it missed is in the archive", sum.Gaps, behind))
	default:
		return finding.Unknown(v1alpha1.ReasonIdle, "nobody is connected, or asks for messages")
	}
}
