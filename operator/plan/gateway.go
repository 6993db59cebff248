// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/observed"
	"github.com/substorm/substorm/operator/plan/workload"
)

// settleTime is how long pods may take to follow a new registry revision
// before that is worth a condition.
const settleTime = 15 * time.Second

// GatewayView is everything that an IngestGateway's status is made from.
type GatewayView struct {
	Now     time.Time
	Gateway *v1alpha1.IngestGateway
	// Site is nil where it doesn't exist.
	Site         *v1alpha1.Site
	SiteAccepted finding.Finding
	// Others are all IngestGateways that the operator sees, and OtherSets the StatefulSets of
	// those in its namespace, by name.
	Others    []v1alpha1.IngestGateway
	OtherSets map[string]*appsv1.StatefulSet
	Secrets   workload.Secrets
	// Image is the operator's image for gateways.
	Image string
	// Replicated are the Instruments that keep the pool's pods on nodes of their own, by name, see ReplicatedOn; they are not known while
	// Judged is false.
	Replicated []string
	Judged     bool

	// Scaling has the other inputs to the number of pods.
	Scaling Scaling

	// Failed is the API server's refusal, see ApplyFailed.
	Failed      *finding.Finding
	StatefulSet *appsv1.StatefulSet
	Pods        []corev1.Pod
	Bus         observed.Bus
	Reports     []observed.GatewayReport
	Registry    observed.RegistryState
	// Credentials are those of the pool's user; nil if there are none of ours.
	Credentials *bus.Credentials
}

// GatewayAccepted says whether the pool's objects may be made.
func GatewayAccepted(v GatewayView) finding.Finding {
	return finding.First(v, []finding.Check[GatewayView]{
		poolHasNoSite,
		poolsSiteIsNotAccepted,
		nodePortsOverlap,
	}, finding.Good(v1alpha1.ReasonAccepted, fmt.Sprintf("it receives for Site %q", v.Gateway.Spec.SiteRef.Name)))
}

func poolHasNoSite(v GatewayView) (finding.Finding, bool) {
	return finding.Bad(v1alpha1.ReasonSiteNotFound, fmt.Sprintf(
		"Site %q does not exist in this namespace: create it; pods that run go on", v.Gateway.Spec.SiteRef.Name)), v.Site == nil
}

func poolsSiteIsNotAccepted(v GatewayView) (finding.Finding, bool) {
	return accept.SiteIsNotAccepted(v.Site, v.SiteAccepted)
}

// nodePortsOverlap: a node port is one for the whole cluster.
func nodePortsOverlap(v GatewayView) (finding.Finding, bool) {
	if v.Gateway.Spec.Service.Type != corev1.ServiceTypeNodePort {
		return finding.Finding{}, false
	}
	own := v.Gateway.Spec.Ports
	for i := range v.Others {
		other := &v.Others[i]
		ports := other.Spec.Ports
		if other.UID == v.Gateway.UID || other.Spec.Service.Type != corev1.ServiceTypeNodePort ||
			ports.First > own.Last || own.First > ports.Last || accept.OlderFirst(v.Gateway, other) < 0 {
			continue
		}
		return finding.Bad(v1alpha1.ReasonConflict, fmt.Sprintf(
			"the node ports %d-%d overlap those of the older IngestGateway %s/%s, %d-%d: choose another range in spec.ports",
			own.First, own.Last, other.Namespace, other.Name, ports.First, ports.Last)), true
	}
	return finding.Finding{}, false
}

// GatewayStatus returns the status, and after how long to look again.
func GatewayStatus(v GatewayView) (v1alpha1.IngestGatewayStatus, time.Duration) {
	accepted := GatewayAccepted(v)
	programmed := finding.First(v, following, finding.Good(v1alpha1.ReasonProgrammed, "every pod that receives runs the registry"))
	c := finding.Conditions{Now: v.Now, Generation: v.Gateway.Generation, Old: v.Gateway.Status.Conditions}
	c.Set(v1alpha1.ConditionAccepted, accepted)
	c.Set(v1alpha1.ConditionProgrammed, programmed)
	for kind, look := range map[string]finding.Check[GatewayView]{
		v1alpha1.ConditionScaleDownHeld: scaleDownIsHeld, v1alpha1.ConditionSpoolStranded: spoolIsStranded,
		v1alpha1.ConditionSpoolQuarantined: spoolIsQuarantined,
		v1alpha1.ConditionNotApplied:       func(v GatewayView) (finding.Finding, bool) { return notApplied(v.Gateway) },
	} {
		if f, found := look(v); found {
			c.Set(kind, f)
		}
	}
	v.pool().setConditions(&c)
	patienceEnds := c.Finish(finding.First(v, []finding.Check[GatewayView]{
		func(GatewayView) (finding.Finding, bool) { return accepted, !accepted.OK() },
		poolLacksASecret,
		applyFailed,
		func(v GatewayView) (finding.Finding, bool) { return v.pool().noneFits() },
		podsAreNotReady,
		itIsNotItsTurn,
		func(GatewayView) (finding.Finding, bool) { return programmed, programmed.Status == "False" },
		podsAreKept,
	}, finding.Good(v1alpha1.ReasonReady, finding.Count(v.wanted(), v.wanted())+" pods receive"+scaleReason(v.Scale()))))

	status := v1alpha1.IngestGatewayStatus{
		ObservedGeneration: v.Gateway.Generation,
		Conditions:         c.All,
		Selector:           labels.Set(workload.PodLabels(v.Gateway.Name)).String(),
	}
	if v.StatefulSet != nil {
		status.Replicas, status.ReadyReplicas = new(v.StatefulSet.Status.Replicas), new(v.StatefulSet.Status.ReadyReplicas)
	}
	status.Autoscaling = scalingStatus(v.Gateway, v.Scale())
	status.Datapath, status.RegistryRevision = v.inUse()
	status.Spool = v.spool()
	status.Credentials = v.Credentials.Status()
	return status, finding.Soonest(patienceEnds, v.strandsIn(), v.Credentials.RenewsIn(v.Now), observed.FiguresEvery)
}

// poolLacksASecret: pods cannot start without the Secrets that Site and pool name.
func poolLacksASecret(v GatewayView) (finding.Finding, bool) {
	return v.Secrets.Missing(workload.GatewaySecrets(v.Site, v.Gateway))
}

func applyFailed(v GatewayView) (finding.Finding, bool) {
	if v.Failed == nil {
		return finding.Finding{}, false
	}
	return *v.Failed, true
}

// ApplyFailed says that the API server refused an object.
func ApplyFailed(kind, name, problem string) finding.Finding {
	return finding.Bad(v1alpha1.ReasonApplyFailed, fmt.Sprintf("%s %q: %s", kind, name, problem))
}

// NotOurs says that an object has a name that the pool needs.
func NotOurs(kind, name string) finding.Finding {
	return finding.Bad(v1alpha1.ReasonConflict, fmt.Sprintf(
		"a %s %q that is not this pool's stands in the way: remove it, or make this pool anew under another name", kind, name))
}

func podsAreNotReady(v GatewayView) (finding.Finding, bool) {
	lacks := workload.RolledOut(v.StatefulSet, v.Replicas())
	if lacks == "" {
		return finding.Finding{}, false
	}
	for _, problem := range []string{workload.PodsAreNotMade(v.StatefulSet), workload.PodProblem(v.Pods), v.whyNoNode()} {
		if problem != "" {
			lacks += "; " + strings.TrimSuffix(problem, ".")
		}
	}
	return finding.Bad(v1alpha1.ReasonProgressing, lacks), true
}

// Do the pods follow the registry?
var following = []finding.Check[GatewayView]{
	poolsReportsAreNotRead,
	noPodIsReady,
	podDoesNotReport,
	podIsBehind,
}

func poolsReportsAreNotRead(v GatewayView) (finding.Finding, bool) {
	if v.Bus.Up {
		return finding.Finding{}, false
	}
	was := finding.Condition(v.Gateway.Status.Conditions, v1alpha1.ConditionProgrammed)
	if was != nil && v.Now.Sub(v.Bus.Since) <= observed.ReportAge+observed.ReportGrace {
		return finding.From(was), true
	}
	return finding.Unknown(v1alpha1.ReasonUnreachable, fmt.Sprintf(
		"the operator does not reach JetStream, see the conditions of Site %q", v.Gateway.Spec.SiteRef.Name)), true
}

func noPodIsReady(v GatewayView) (finding.Finding, bool) {
	return finding.Bad(v1alpha1.ReasonNotReported, "no pod is ready"), v.Replicas() > 0 && len(v.ready()) == 0
}

func podDoesNotReport(v GatewayView) (finding.Finding, bool) {
	for _, pod := range v.ready() {
		if r := v.report(pod); r == nil && v.Now.Sub(readySince(pod)) > settleTime {
			return finding.Bad(v1alpha1.ReasonNotReported, fmt.Sprintf("pod %s is ready and does not report: see its log", pod.Name)), true
		}
	}
	return finding.Finding{}, false
}

func podIsBehind(v GatewayView) (finding.Finding, bool) {
	for _, pod := range v.ready() {
		r := v.report(pod)
		if r != nil && r.Revision < v.Registry.Revision && v.Now.Sub(v.Registry.WrittenAt) > settleTime {
			return finding.Bad(v1alpha1.ReasonProgressing, fmt.Sprintf(
				"pod %s runs registry revision %d, and %d stands: see its log", pod.Name, r.Revision, v.Registry.Revision)), true
		}
	}
	return finding.Finding{}, false
}

func (v GatewayView) ready() []*corev1.Pod {
	var ready []*corev1.Pod
	for i := range v.Pods {
		if workload.PodReady(&v.Pods[i]) {
			ready = append(ready, &v.Pods[i])
		}
	}
	return ready
}

// report returns a pod's recent report.
func (v GatewayView) report(pod *corev1.Pod) *observed.GatewayReport {
	alive, _ := observed.Fresh(v.Reports, v.Gateway.Name, v.Now)
	for i := range alive {
		if alive[i].Gateway == pod.Name {
			return &alive[i]
		}
	}
	return nil
}

func readySince(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// inUse returns the datapath of the pods, empty if they differ, and the oldest registry revision that a ready pod runs.
func (v GatewayView) inUse() (v1alpha1.Datapath, int64) {
	var datapaths []v1alpha1.Datapath
	var revisions []int64
	for _, pod := range v.ready() {
		if r := v.report(pod); r != nil {
			datapaths = append(datapaths, v1alpha1.Datapath(r.Datapath))
			revisions = append(revisions, r.Revision)
		}
	}
	if len(revisions) == 0 {
		return "", 0
	}
	datapath := datapaths[0]
	if slices.ContainsFunc(datapaths, func(d v1alpha1.Datapath) bool { return d != datapath }) {
		datapath = ""
	}
	return datapath, slices.Min(revisions)
}

// waitsLongest is how long an object may wait in a spool before that is shown:
// with acknowledge Spooled each passes through it.
const waitsLongest = time.Minute

// spool adds up what waits in the spools of the pods that report, in figures that stay the same as long as nothing changes.
func (v GatewayView) spool() *v1alpha1.IngestGatewaySpool {
	alive, _ := observed.Fresh(v.Reports, v.Gateway.Name, v.Now)
	var sum v1alpha1.IngestGatewaySpool
	for _, r := range alive {
		if r.Spool == nil || r.Spool.Oldest == nil {
			continue
		}
		sum.ObjectCount += r.Spool.Objects
		sum.Bytes += r.Spool.Bytes
		if oldest := metav1.NewTime(r.Spool.Oldest.UTC().Truncate(time.Second)); sum.OldestTime.IsZero() || oldest.Before(&sum.OldestTime) {
			sum.OldestTime = oldest
		}
	}
	if sum.OldestTime.IsZero() || v.Now.Sub(sum.OldestTime.Time) < waitsLongest {
		return nil
	}
	return &sum
}
