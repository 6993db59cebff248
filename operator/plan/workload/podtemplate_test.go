// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// plannedPods is the template that is made of what a resource asks for, as the API server has it.
func plannedPods(t *testing.T, r podRules) *corev1.PodTemplateSpec {
	t.Helper()
	template := coreac.PodTemplateSpec().
		WithLabels(map[string]string{LabelName: "ours"}).
		WithAnnotations(map[string]string{AnnotationPermissions: "ours"}).
		WithSpec(coreac.PodSpec().WithContainers(coreac.Container().WithName("gateway").WithImage("operator's").WithResources(gatewayResources())))
	data, err := json.Marshal(r.apply(template))
	if err != nil {
		t.Fatal(err)
	}
	is := &corev1.PodTemplateSpec{}
	if err := json.Unmarshal(data, is); err != nil {
		t.Fatal(err)
	}
	return is
}

// An object that an API server without our rules accepted does not take the pods away from their Service.
func TestLabelsOfOursStay(t *testing.T) {
	is := plannedPods(t, podRules{asked: &v1alpha1.PodTemplate{
		Labels:      map[string]v1alpha1.LabelValue{LabelName: "theirs", "team": "field"},
		Annotations: map[string]string{AnnotationPermissions: "theirs", "note": "x"},
	}})
	if is.Labels[LabelName] != "ours" || is.Labels["team"] != "field" || is.Annotations[AnnotationPermissions] != "ours" || is.Annotations["note"] != "x" {
		t.Errorf("labels %v, annotations %v", is.Labels, is.Annotations)
	}
}

func TestPullPolicy(t *testing.T) {
	for _, c := range []struct{ operator, resource, want corev1.PullPolicy }{
		{"", "", corev1.PullIfNotPresent},
		{corev1.PullAlways, "", corev1.PullAlways},
		{corev1.PullAlways, corev1.PullNever, corev1.PullNever},
	} {
		is := plannedPods(t, podRules{asked: &v1alpha1.PodTemplate{ImagePullPolicy: c.resource}, pull: Pulling{Policy: c.operator}})
		if got := is.Spec.Containers[0].ImagePullPolicy; got != c.want {
			t.Errorf("the operator says %q, the resource %q: %s, want %s", c.operator, c.resource, got, c.want)
		}
	}
}

// Pods that are planned to be apart are found to be, whatever else is asked for; others are not.
func TestKeptApart(t *testing.T) {
	pool := PodLabels("north")
	theirs := &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
		{TopologyKey: corev1.LabelHostname}, {TopologyKey: corev1.LabelTopologyZone}}}}
	for _, asked := range []*v1alpha1.PodTemplate{{}, {Affinity: theirs}} {
		for _, apart := range []bool{true, false} {
			is := plannedPods(t, podRules{asked: asked, selector: pool, apart: apart})
			if got := KeptApart(is, pool); got != apart {
				t.Errorf("planned %v, found %v: %+v", apart, got, is.Spec.Affinity)
			}
			if KeptApart(is, PodLabels("south")) {
				t.Errorf("the pods of another pool are kept apart: %+v", is.Spec.Affinity)
			}
		}
	}
	if n := len(theirs.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution); n != 2 {
		t.Errorf("the planner changed what was asked for: %d terms", n)
	}
}
