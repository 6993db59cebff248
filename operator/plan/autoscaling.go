// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
	"github.com/substorm/substorm/operator/surge"
	"github.com/substorm/substorm/operator/surge/autoscale"
)

// The greatest spec.replicas: no report, whatever it says, makes a pool larger.
const (
	MaxGateways    = 100
	MaxFeedServers = 64
)

// GatewayReplicas is how many pods are asked for.
func GatewayReplicas(gateway *v1alpha1.IngestGateway) int32 {
	return *workload.ReplicasOf(gateway.Spec.Replicas)
}

// FeedServerReplicas is how many pods are asked for.
func FeedServerReplicas(server *v1alpha1.FeedServer) int32 {
	if server.Spec.Replicas == nil {
		return v1alpha1.DefaultFeedServerReplicas
	}
	return *server.Spec.Replicas
}

// Scaling are the inputs to the number of a pool's pods, beside its spec, its Site and its pods' reports.
type Scaling struct {
	// Loop is what the operator's own loop requests; nil if it does not run, or has not begun.
	Loop *Loop `json:"loop,omitempty"`
	// Ceiling is what the cluster can give (surge/ceiling); nil: it was not determined.
	Ceiling *autoscale.Count `json:"ceiling,omitempty"`
}

// Loop is the request of the operator's own loop.
type Loop struct {
	Asked autoscale.Count `json:"asked"`
	// Unknown says why the load is not known; empty: it is.
	Unknown string `json:"unknown,omitempty"`
}

// poolScale is a pool of either kind, with the fields that determine the number of its pods.
type poolScale struct {
	kind v1alpha1.SurgePoolKind
	pool metav1.Object
	site *v1alpha1.Site
	// replicas is spec.replicas, and most the greatest that it may be.
	replicas, most int32
	// spec has no driver where the number of pods is fixed.
	spec *v1alpha1.Autoscaling
	// has is how many pods the workload currently specifies.
	has int32
	Scaling
}

// scale returns the inputs to the number of pods, if no spool holds any.
func (p poolScale) scale() autoscale.Scale {
	scale := autoscale.Scale{Asked: p.asked(), Floor: p.floor(), Ceiling: p.ceiling(), Held: autoscale.Count{Why: "no pod has to stay"}}
	// A cluster with less space than before, as a node went, removes no pod: those that wait for a node get the next one that comes.
	if stay := min(p.has, p.maxBySpec().Replicas, max(scale.Asked.Replicas, scale.Floor.Replicas)); stay > scale.Ceiling.Replicas {
		scale.Held = autoscale.Count{Replicas: stay, Why: fmt.Sprintf("there are to be %d already, and none is taken away because the cluster has space for fewer", stay)}
	}
	return scale
}

// asked is spec.replicas. While the loop knows the load, it is the loop's request: a manifest that has just set spec.replicas again must
// not remove pods until the loop writes its number, a second later.
func (p poolScale) asked() autoscale.Count {
	n := autoscale.Count{Replicas: p.replicas, Why: "spec.replicas"}
	switch {
	case p.spec.Driver == "":
	case p.spec.Driver != v1alpha1.DriverOperator:
		n.Why = fmt.Sprintf("spec.replicas, which driver %s writes", p.spec.Driver)
	case p.Loop == nil:
		n.Why = "spec.replicas, until pods have reported their load"
	case p.Loop.Unknown == "", p.Loop.Asked.Replicas == p.replicas:
		return p.Loop.Asked
	}
	return n
}

func (p poolScale) floor() autoscale.Count {
	n := autoscale.Count{Why: "no level of space weather has a floor for it"}
	if p.spec.Driver != "" {
		n = autoscale.Count{Replicas: p.spec.MinReplicas, Why: "spec.autoscaling.minReplicas"}
	}
	if floor, level := SurgeFloor(p.site, p.kind, p.pool); floor > n.Replicas {
		n = autoscale.Count{Replicas: floor, Why: fmt.Sprintf("level %s of the Site's surge", level)}
	}
	return n
}

// maxBySpec is the ceiling where the cluster has space for any number.
func (p poolScale) maxBySpec() autoscale.Count {
	if p.spec.Driver != "" {
		return autoscale.Count{Replicas: p.spec.MaxReplicas, Why: "spec.autoscaling.maxReplicas"}
	}
	return autoscale.Count{Replicas: p.most, Why: "no " + string(p.kind) + " has more"}
}

func (p poolScale) ceiling() autoscale.Count {
	if most := p.maxBySpec(); p.Ceiling == nil || p.Ceiling.Replicas >= most.Replicas {
		return most
	}
	return *p.Ceiling
}

// setConditions reports whether the loop knows the load, and whether the ceiling limits the number of pods.
func (p poolScale) setConditions(c *finding.Conditions) {
	if f, found := p.active(); found {
		c.Set(v1alpha1.ConditionScalingActive, f)
	}
	if f, found := p.limited(); found {
		c.Set(v1alpha1.ConditionScalingLimited, f)
	}
	if f, found := p.hardwareLimited(); found {
		c.Set(v1alpha1.ConditionHardwareLimited, f)
	}
}

func (p poolScale) active() (finding.Finding, bool) {
	switch {
	case p.spec.Driver != v1alpha1.DriverOperator:
		return finding.Finding{}, false
	case p.Loop == nil:
		return finding.Unknown(v1alpha1.ReasonLoadUnknown, "no pod has reported its load yet: as many pods are asked for as before; if it stays so, see whether pods are ready, and their logs"), true
	case p.Loop.Unknown != "":
		return finding.Unknown(v1alpha1.ReasonLoadUnknown, p.Loop.Unknown+": as many pods are asked for as before; see whether pods are ready, and their logs"), true
	default:
		return finding.Good(v1alpha1.ReasonLoadKnown, "the pods report their load"), true
	}
}

// limited reports a floor above the ceiling before a storm too, as long as something can be done about it.
func (p poolScale) limited() (finding.Finding, bool) {
	scale := p.scale()
	floor, level := p.highestFloor()
	if scale.Floor.Replicas > floor { // of a level that was declared before
		floor, level = scale.Floor.Replicas, ""
	}
	switch ceiling := scale.Ceiling; {
	case floor > ceiling.Replicas && level != "":
		return finding.Good(v1alpha1.ReasonFloorAboveCeiling, fmt.Sprintf("level %s of the Site's surge has a floor of %d, and there may be %d pods: %s; raise that, or lower the floor in the Site",
			level, floor, ceiling.Replicas, ceiling.Why)), true
	case floor > ceiling.Replicas:
		return finding.Good(v1alpha1.ReasonFloorAboveCeiling, fmt.Sprintf("the floor is %d, and there may be %d pods: %s", floor, ceiling.Replicas, ceiling.Why)), true
	case scale.Asked.Replicas > ceiling.Replicas:
		return finding.Good(v1alpha1.ReasonAskedAboveCeiling, fmt.Sprintf("%d pods are asked for, and there may be %d: %s", scale.Asked.Replicas, ceiling.Replicas, ceiling.Why)), true
	}
	return finding.Finding{}, false
}

// hardwareLimited: the cluster limits the number of pods, or would at a level that does not hold yet.
func (p poolScale) hardwareLimited() (finding.Finding, bool) {
	if p.Ceiling == nil {
		return finding.Finding{}, false
	}
	most := p.most
	if p.spec.Driver != "" {
		most = min(most, p.spec.MaxReplicas)
	}
	has := p.Ceiling.Replicas
	if wanted := min(most, max(p.asked().Replicas, p.floor().Replicas)); wanted > has {
		return finding.Good(v1alpha1.ReasonPodsDoNotFit, fmt.Sprintf("there are to be %d pods, and the cluster has space for %d: %s", wanted, has, p.Ceiling.Why)), true
	}
	if floor, level := p.highestFloor(); min(most, floor) > has {
		return finding.Good(v1alpha1.ReasonFloorDoesNotFit, fmt.Sprintf("level %s of the Site's surge has a floor of %d, and the cluster has space for %d: %s", level, floor, has, p.Ceiling.Why)), true
	}
	return finding.Finding{}, false
}

// noneFits: a pool that has no pod at all is not ready. One that has fewer than it should says so in HardwareLimited.
func (p poolScale) noneFits() (finding.Finding, bool) {
	f, limited := p.hardwareLimited()
	return finding.Bad(f.Reason, f.Message), limited && f.Reason == v1alpha1.ReasonPodsDoNotFit && p.scale().Replicas().Replicas == 0
}

// highestFloor is that which the Site's levels declare for the pool, whether they hold or not.
func (p poolScale) highestFloor() (replicas int32, level string) {
	if p.site == nil || finding.IsStandalone(p.pool) {
		return 0, ""
	}
	for _, l := range SurgeLevels(p.site) {
		if floor := l.Floor(surge.Pool{Kind: string(p.kind), Name: p.pool.GetName()}); floor > replicas {
			replicas, level = floor, l.Name
		}
	}
	return replicas, level
}

// scaleReason explains what else than spec.replicas decides how many pods there are; empty: nothing does.
func scaleReason(scale autoscale.Scale) string {
	if is := scale.Replicas(); is.Replicas != scale.Asked.Replicas {
		return "; " + is.Why
	}
	return ""
}

// scalingStatus shows the inputs to the number of pods; empty if one process runs the Site.
func scalingStatus(pool metav1.Object, scale autoscale.Scale) v1alpha1.AutoscalingStatus {
	if finding.IsStandalone(pool) {
		return v1alpha1.AutoscalingStatus{}
	}
	is := scale.Replicas()
	return v1alpha1.AutoscalingStatus{Replicas: new(is.Replicas), Message: bounded(is.Why, maxSurgeMessage),
		Asked: replicaCount(scale.Asked), Floor: replicaCount(scale.Floor), Ceiling: replicaCount(scale.Ceiling), Held: replicaCount(scale.Held)}
}

func replicaCount(n autoscale.Count) v1alpha1.ReplicaCount {
	return v1alpha1.ReplicaCount{Replicas: new(n.Replicas), Message: bounded(n.Why, maxSurgeMessage)}
}

// scalingChanged: the planned number of pods changed, or its inputs did. The load in messages is a figure, and so are the ceiling, and the
// objects left in the spools of pods that are held.
func scalingChanged(before, after v1alpha1.AutoscalingStatus) bool {
	for _, s := range []*v1alpha1.AutoscalingStatus{&before, &after} {
		s.Message, s.Asked.Message, s.Held.Message = "", "", ""
	}
	before.Ceiling, after.Ceiling = v1alpha1.ReplicaCount{}, v1alpha1.ReplicaCount{} // conditions report it where it matters
	return !equality.Semantic.DeepEqual(before, after)
}
