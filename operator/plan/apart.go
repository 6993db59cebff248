// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/workload"
)

// A receipt with acknowledge Replicated says that the object is in the spools of two pods on different nodes. Pods that share a node have
// no peer to copy to: a pool that such an Instrument sends to never has two pods on one node.

// ReplicatedOn is the pool whose pods an Instrument keeps on nodes of their own, or "". Temporary reasons why it is not programmed (a
// missing Secret, a Site that is not accepted) change nothing: pods must not move for that.
func ReplicatedOn(inst *v1alpha1.Instrument, v accept.Verdict) string {
	if inst.Spec.Acknowledge != v1alpha1.AcknowledgeReplicated || inst.Spec.State == v1alpha1.InstrumentRetired || !v.Stands() && !v.Absent {
		return ""
	}
	return v.Gateway
}

// PodsApart returns whether no two of the pool's pods may run on one node. Until the Site's Instruments are judged, for example after the
// operator has started, it stays as it was.
func (v GatewayView) PodsApart() bool {
	if !v.Judged {
		return v.StatefulSet != nil && workload.KeptApart(&v.StatefulSet.Spec.Template, workload.PodLabels(v.Gateway.Name))
	}
	return len(v.Replicated) > 0
}

// whyNoNode explains the scheduler's message for pods that have no node because another pod of the pool is there; "" for others.
func (v GatewayView) whyNoNode() string {
	var waiting []string
	for i := range v.Pods {
		if unscheduled(&v.Pods[i]) {
			waiting = append(waiting, v.Pods[i].Name)
		}
	}
	if len(waiting) == 0 || !v.PodsApart() {
		return ""
	}
	why := "an Instrument has acknowledge Replicated"
	if len(v.Replicated) > 0 {
		why = fmt.Sprintf("Instrument %q has acknowledge Replicated", v.Replicated[0])
	}
	return fmt.Sprintf("no two pods of this pool may run on one node, since %s, and %s found none: add a node that spec.podTemplate allows, or ask for fewer pods; "+
		"where the volume of a pod is bound to a node that another one is on, give it a new one (docs/how-to/pods.md)", why, strings.Join(waiting, ", "))
}

// unscheduled: the scheduler has looked, and found no node.
func unscheduled(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		}
	}
	return false
}
