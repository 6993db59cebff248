// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// Pulling is how nodes get the images of the operator.
type Pulling struct {
	// Policy where a resource says none; empty: IfNotPresent.
	Policy corev1.PullPolicy
	// Secrets name those, in the pods' namespace, with which images are pulled.
	Secrets []string
}

// podRules decide where the pods of a program run, and how.
type podRules struct {
	asked *v1alpha1.PodTemplate
	pull  Pulling
	// selector are the labels by which the pods are found.
	selector map[string]string
	// apart keeps any two of the pods on two nodes.
	apart bool
}

// apply completes a template of pods with one container, which has the program's own image and
// resources. If both set a label or annotation, ours stays.
func (r podRules) apply(template *coreac.PodTemplateSpecApplyConfiguration) *coreac.PodTemplateSpecApplyConfiguration {
	template.WithLabels(without(plain(r.asked.Labels), template.Labels))
	template.WithAnnotations(without(r.asked.Annotations, template.Annotations))
	r.container(&template.Spec.Containers[0])
	pod := template.Spec
	for _, name := range r.pull.Secrets {
		pod.WithImagePullSecrets(coreac.LocalObjectReference().WithName(name))
	}
	if len(r.asked.NodeSelector) > 0 {
		pod.WithNodeSelector(plain(r.asked.NodeSelector))
	}
	for i := range r.asked.Tolerations {
		pod.WithTolerations(applied[coreac.TolerationApplyConfiguration](&r.asked.Tolerations[i]))
	}
	if r.asked.PriorityClassName != "" {
		pod.WithPriorityClassName(r.asked.PriorityClassName)
	}
	r.spread(pod)
	return template
}

func (r podRules) container(c *coreac.ContainerApplyConfiguration) {
	policy := corev1.PullIfNotPresent
	for _, p := range []corev1.PullPolicy{r.pull.Policy, r.asked.ImagePullPolicy} {
		if p != "" {
			policy = p
		}
	}
	c.WithImagePullPolicy(policy)
	if r.asked.Image != "" {
		c.WithImage(r.asked.Image)
	}
	if r.asked.Resources != nil {
		c.WithResources(resourcesOf(r.asked.Resources))
	}
}

// spread says which nodes pods take with regard to other pods.
func (r podRules) spread(pod *coreac.PodSpecApplyConfiguration) {
	affinity := coreac.Affinity()
	if r.asked.Affinity != nil {
		affinity = applied[coreac.AffinityApplyConfiguration](r.asked.Affinity)
	}
	others := affinity.PodAntiAffinity
	if others == nil {
		others = coreac.PodAntiAffinity()
	}
	if r.apart {
		others.WithRequiredDuringSchedulingIgnoredDuringExecution(r.sameNode())
	}
	if len(r.asked.TopologySpreadConstraints) == 0 {
		pod.WithTopologySpreadConstraints(r.evenlyOver(corev1.LabelHostname), r.evenlyOver(corev1.LabelTopologyZone))
	}
	// The scheduler does not score a node that lacks the label of one of the constraints. If nodes are in no zone, this spreads pods.
	if len(r.asked.TopologySpreadConstraints) == 0 && !r.apart {
		others.WithPreferredDuringSchedulingIgnoredDuringExecution(
			coreac.WeightedPodAffinityTerm().WithWeight(100).WithPodAffinityTerm(r.sameNode()))
	}
	for i := range r.asked.TopologySpreadConstraints {
		c := applied[coreac.TopologySpreadConstraintApplyConfiguration](&r.asked.TopologySpreadConstraints[i])
		if c.LabelSelector == nil {
			c.WithLabelSelector(r.ours())
		}
		pod.WithTopologySpreadConstraints(c)
	}
	if len(others.RequiredDuringSchedulingIgnoredDuringExecution)+len(others.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
		affinity.WithPodAntiAffinity(others)
	}
	if affinity.NodeAffinity != nil || affinity.PodAffinity != nil || affinity.PodAntiAffinity != nil {
		pod.WithAffinity(affinity)
	}
}

func (r podRules) ours() *metaac.LabelSelectorApplyConfiguration {
	return metaac.LabelSelector().WithMatchLabels(r.selector)
}

// sameNode are pods of ours on one node.
func (r podRules) sameNode() *coreac.PodAffinityTermApplyConfiguration {
	return coreac.PodAffinityTerm().WithTopologyKey(corev1.LabelHostname).WithLabelSelector(r.ours())
}

func (r podRules) evenlyOver(topology string) *coreac.TopologySpreadConstraintApplyConfiguration {
	return coreac.TopologySpreadConstraint().
		WithMaxSkew(1).
		WithTopologyKey(topology).
		WithWhenUnsatisfiable(corev1.ScheduleAnyway).
		WithLabelSelector(r.ours())
}

// KeptApart says whether a template of pods keeps any two of those with these labels on two nodes.
func KeptApart(template *corev1.PodTemplateSpec, selector map[string]string) bool {
	affinity := template.Spec.Affinity
	if affinity == nil || affinity.PodAntiAffinity == nil {
		return false
	}
	for _, term := range affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		if term.TopologyKey == corev1.LabelHostname && term.LabelSelector != nil && maps.Equal(term.LabelSelector.MatchLabels, selector) {
			return true
		}
	}
	return false
}

// annotated gives a ServiceAccount the requested annotations.
func annotated(account *coreac.ServiceAccountApplyConfiguration, asked *v1alpha1.PodTemplate) *coreac.ServiceAccountApplyConfiguration {
	if len(asked.ServiceAccountAnnotations) > 0 {
		account.WithAnnotations(asked.ServiceAccountAnnotations)
	}
	return account
}

// applied is a value as it is applied, which has the same fields in JSON.
func applied[A, T any](value *T) *A {
	is := new(A)
	data, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(data, is)
	}
	if err != nil { // both are strings, numbers, lists and maps of these
		panic(err)
	}
	return is
}

// plain are labels as Kubernetes' own types have them.
func plain(labels map[string]v1alpha1.LabelValue) map[string]string {
	all := make(map[string]string, len(labels))
	for key, value := range labels {
		all[key] = string(value)
	}
	return all
}

// without is a copy of a map that lacks the keys of another one.
func without(all, keys map[string]string) map[string]string {
	rest := maps.Clone(all)
	maps.DeleteFunc(rest, func(key, _ string) bool { _, taken := keys[key]; return taken })
	return rest
}
