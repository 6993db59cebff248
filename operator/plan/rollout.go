// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

// A new image of the operator's goes to the pools of a Site one after the other, by name, and within a pool to one pod
// after the other, as a StatefulSet does it: a build that does not become ready stops at the first pod of the first pool.

// WaitsForTurn explains what the pool waits for before its pods get the operator's image, or "". Until then their template stays as it is:
// flags of the new build may be unknown to the old one.
func (v GatewayView) WaitsForTurn() string {
	if stands := imageOf(v.StatefulSet); stands == "" || stands == v.Image || hasItsOwnImage(v.Gateway) {
		return ""
	}
	for _, other := range v.siblings() {
		set := v.OtherSets[other.Name]
		switch is := imageOf(set); {
		case is == "":
		case is == v.Image:
			if lacks := workload.RolledOut(set, *workload.ReplicasOf(set.Spec.Replicas)); lacks != "" {
				return fmt.Sprintf("its pods keep the template that they have until IngestGateway %q runs the new image: %s there; with spec.podTemplate.image they do not wait", other.Name, lacks)
			}
		case other.Name < v.Gateway.Name && !StandsStill(other):
			return fmt.Sprintf("its pods keep the template that they have until it was the turn of IngestGateway %q; with spec.podTemplate.image they do not wait", other.Name)
		}
	}
	return ""
}

// Turn is the state of another pool's StatefulSet that pools waiting for their turn depend on: its image, and what it lacks. They are woken
// when it changes.
func Turn(set *appsv1.StatefulSet) string {
	return imageOf(set) + " " + workload.RolledOut(set, *workload.ReplicasOf(set.Spec.Replicas))
}

// HasAnotherImage says whether the pods of a StatefulSet do not run an image yet, or do not any more.
func HasAnotherImage(set *appsv1.StatefulSet, image string) bool { return imageOf(set) != image }

// hasItsOwnImage: the owner of the pool decides when its image changes.
func hasItsOwnImage(pool *v1alpha1.IngestGateway) bool { return pool.Spec.PodTemplate.Image != "" }

// siblings are the other pools of the Site that run the operator's image, by name.
func (v GatewayView) siblings() []*v1alpha1.IngestGateway {
	var all []*v1alpha1.IngestGateway
	for i := range v.Others {
		other := &v.Others[i]
		if other.UID != v.Gateway.UID && other.Namespace == v.Gateway.Namespace && other.Spec.SiteRef == v.Gateway.Spec.SiteRef && !hasItsOwnImage(other) {
			all = append(all, other)
		}
	}
	slices.SortFunc(all, func(a, b *v1alpha1.IngestGateway) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// StandsStill: nothing of the pool changes before its owner corrects it, so no pool waits for its turn.
func StandsStill(pool *v1alpha1.IngestGateway) bool {
	stalled := finding.Condition(pool.Status.Conditions, v1alpha1.ConditionStalled)
	return stalled != nil && stalled.Status == metav1.ConditionTrue || pool.DeletionTimestamp != nil
}

// imageOf is the image that the pods of a StatefulSet run, or are to run; empty if there is none.
func imageOf(set *appsv1.StatefulSet) string {
	if set == nil || len(set.Spec.Template.Spec.Containers) == 0 {
		return ""
	}
	return set.Spec.Template.Spec.Containers[0].Image
}

// TemplateAsItIs is a template of pods to apply that changes nothing of an existing one.
func TemplateAsItIs(template *corev1.PodTemplateSpec) (*coreac.PodTemplateSpecApplyConfiguration, error) {
	is := &coreac.PodTemplateSpecApplyConfiguration{}
	data, err := json.Marshal(template)
	if err == nil {
		err = json.Unmarshal(data, is)
	}
	return is, err
}

// itIsNotItsTurn: the pool's pods run an older image.
func itIsNotItsTurn(v GatewayView) (finding.Finding, bool) {
	waits := v.WaitsForTurn()
	return finding.Bad(v1alpha1.ReasonProgressing, waits), waits != ""
}
