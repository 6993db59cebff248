// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/observed"
	"github.com/substorm/substorm/operator/plan/workload"
	"github.com/substorm/substorm/operator/surge/autoscale"
)

// FeedServerView is everything that a FeedServer's status is made from.
type FeedServerView struct {
	Now    time.Time
	Server *v1alpha1.FeedServer
	// Site is nil where it does not exist.
	Site         *v1alpha1.Site
	SiteAccepted finding.Finding
	Secrets      workload.Secrets
	// SiteProgramView has the findings about its pods.
	SiteProgramView
	Services []corev1.Service
	// Scaling has the other inputs to the number of pods.
	Scaling Scaling
	Bus     observed.Bus
	// Reports are the reports of all feed servers of the Site, Consumers their reports of FeedConsumers, by name.
	Reports   []observed.FeedServerReport
	Consumers map[string][]observed.ConsumerReport
}

// FeedServerAccepted says whether the FeedServer's objects may be made.
func FeedServerAccepted(v FeedServerView) finding.Finding {
	return finding.First(v, []finding.Check[FeedServerView]{
		serverHasNoSite,
		serversSiteIsNotAccepted,
	}, finding.Good(v1alpha1.ReasonAccepted, fmt.Sprintf("it serves Site %q", v.Server.Spec.SiteRef.Name)))
}

func serverHasNoSite(v FeedServerView) (finding.Finding, bool) {
	return finding.Bad(v1alpha1.ReasonSiteNotFound, fmt.Sprintf(
		"Site %q does not exist in this namespace: create it; until then nothing is served", v.Server.Spec.SiteRef.Name)), v.Site == nil
}

func serversSiteIsNotAccepted(v FeedServerView) (finding.Finding, bool) {
	return accept.SiteIsNotAccepted(v.Site, v.SiteAccepted)
}

// Replicas is how many pods there should be.
func (v FeedServerView) Replicas() int32 { return v.Scale().Replicas().Replicas }

// Tight returns whether the cluster has no space for one more pod than there should be: in a rollout one is then removed before the next
// one is created, else that would be Pending, and the rollout would not continue. The only pod stays: without it nothing is served.
func (v FeedServerView) Tight() bool {
	replicas := v.Replicas()
	return v.Scaling.Ceiling != nil && replicas > 1 && v.Scaling.Ceiling.Replicas <= replicas
}

// Scale is what the number of pods follows from. Pods that end ask their clients to move: the Deployment need not hold them.
func (v FeedServerView) Scale() autoscale.Scale {
	scale := v.pool().scale()
	if scale.Held.Replicas == 0 {
		scale.Held.Why = "pods that go tell their clients to move before they end"
	}
	return scale
}

func (v FeedServerView) pool() poolScale {
	has := int32(0)
	if v.Deployment != nil {
		has = *workload.ReplicasOf(v.Deployment.Spec.Replicas)
	}
	return poolScale{v1alpha1.SurgePoolFeedServer, v.Server, v.Site, FeedServerReplicas(v.Server), MaxFeedServers, &v.Server.Spec.Autoscaling, has, v.Scaling}
}

// FeedServerStatus returns the status, and after how long to look again.
func FeedServerStatus(v FeedServerView) (v1alpha1.FeedServerStatus, time.Duration) {
	accepted, asked := FeedServerAccepted(v), v.Replicas()
	c := finding.Conditions{Now: v.Now, Generation: v.Server.Generation, Old: v.Server.Status.Conditions}
	c.Set(v1alpha1.ConditionAccepted, accepted)
	if f, found := notApplied(v.Server); found {
		c.Set(v1alpha1.ConditionNotApplied, f)
	}
	v.pool().setConditions(&c)
	if f, found := v.givesWay(); found {
		c.Set(v1alpha1.ConditionGivingWay, f)
	}
	patienceEnds := c.Finish(finding.First(v, []finding.Check[FeedServerView]{
		func(FeedServerView) (finding.Finding, bool) { return accepted, !accepted.OK() },
		func(v FeedServerView) (finding.Finding, bool) {
			return v.Secrets.Missing(workload.FeedServerSecrets(v.Site, v.Server))
		},
		func(v FeedServerView) (finding.Finding, bool) { return v.refused() },
		func(v FeedServerView) (finding.Finding, bool) { return v.pool().noneFits() },
		func(v FeedServerView) (finding.Finding, bool) {
			return programIsNotRolledOut("feed servers", v.SiteProgramView, asked)
		},
	}, finding.Good(v1alpha1.ReasonReady, finding.Count(asked, asked)+" feed servers are ready"+scaleReason(v.Scale()))))

	status := v1alpha1.FeedServerStatus{
		ObservedGeneration: v.Server.Generation, Conditions: c.All,
		Selector: labels.Set(workload.FeedServerOf(v.Site, v.Server).Selector()).String(),
		Replicas: new(v.replicas()), ReadyReplicas: new(v.readyReplicas()),
		Credentials: v.Credentials.Status(), Autoscaling: scalingStatus(v.Server, v.Scale()),
	}
	if v.Site != nil {
		status.URL = workload.FeedServerURL(v.Server, v.Services)
	}
	v.figures(&status)
	return status, finding.Soonest(patienceEnds, v.Credentials.RenewsIn(v.Now), observed.FiguresEvery)
}

// figures fills in what the pods report. While reports are not read, the last figures stay.
func (v FeedServerView) figures(status *v1alpha1.FeedServerStatus) {
	if !v.Bus.Up {
		was := &v.Server.Status
		status.ConnectionCount, status.ConsumerCount = was.ConnectionCount, was.ConsumerCount
		status.EventStreamCount, status.BytesPerSecond = was.EventStreamCount, was.BytesPerSecond
		return
	}
	FeedServerFigures(status, v.Server.Name, v.Reports, v.Consumers, v.Now)
}

// FeedServerFigures are the figures in the present reports of a FeedServer's pods, from the reports of all feed servers of its Site and
// their reports of FeedConsumers; a status has none while no pod reports.
func FeedServerFigures(status *v1alpha1.FeedServerStatus, server string, reports []observed.FeedServerReport, said map[string][]observed.ConsumerReport, now time.Time) {
	own := slices.DeleteFunc(observed.FreshServers(reports, now), func(r observed.FeedServerReport) bool { return r.FeedServer != server })
	if len(own) == 0 {
		status.ConnectionCount, status.ConsumerCount, status.EventStreamCount, status.BytesPerSecond = nil, nil, nil, nil
		return
	}
	var connections, eventStreams, consumers int32
	var bytes int64
	for _, r := range own {
		connections += int32(r.Connections)
		eventStreams += int32(r.EventStreams)
		bytes += r.BytesPerSecond
	}
	for _, of := range said {
		if slices.ContainsFunc(of, func(r observed.ConsumerReport) bool { return r.Connections > 0 && slices.ContainsFunc(own, r.IsOf) }) {
			consumers++
		}
	}
	status.ConnectionCount, status.ConsumerCount, status.EventStreamCount, status.BytesPerSecond = &connections, &consumers, &eventStreams, &bytes
}

// ServerObjectNotOurs says that an object has a name that a FeedServer needs.
func ServerObjectNotOurs(kind, name string) finding.Finding {
	return finding.Bad(v1alpha1.ReasonConflict, fmt.Sprintf(
		"a %s %q that is not this FeedServer's has a name that it needs: remove it, or make this FeedServer anew under another name", kind, name))
}

// SiteObjectNotOurs says that an object has a name that one of a Site's programs needs.
func SiteObjectNotOurs(kind, name string) finding.Finding {
	return finding.Bad(v1alpha1.ReasonConflict, fmt.Sprintf("a %s %q that is not this Site's has a name that the Site needs: remove it", kind, name))
}

// ConsumerSecretNotOurs says that a FeedConsumer's Secret has the name of another.
func ConsumerSecretNotOurs(name string) finding.Finding {
	return finding.Bad(v1alpha1.ReasonConflict, fmt.Sprintf(
		"a Secret %q that is not this FeedConsumer's stands in the way: remove it, or make the FeedConsumer anew with another spec.secretName", name))
}
