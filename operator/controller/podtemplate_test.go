// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The API server accepts everything that a podTemplate may say in a StatefulSet and a Deployment. If our kinds let
// something through that the API server does not accept, the condition says so in the API server's words.
func TestPodTemplates(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.applySite("hub", "hub")
	pool := func(template string) { w.applyPool("pool", ", service: {type: ClusterIP}, podTemplate: "+template) }
	pool(`{labels: {team: field, app: x}, annotations: {note: "any text"}, serviceAccountAnnotations: {cloud.example/role: gateway}, image: "example.org/gateway:v9",
  imagePullPolicy: Always, resources: {limits: {memory: 1Gi}}, nodeSelector: {role: edge},
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: In, values: [ssd]}]}]}},
    podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 10, podAffinityTerm: {topologyKey: rack, namespaceSelector: {}, labelSelector: {matchLabels: {a: b}}}}]}},
  tolerations: [{operator: Exists}, {key: edge, value: "yes", effect: NoExecute, tolerationSeconds: 60}],
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule, minDomains: 2, matchLabelKeys: [app]}],
  priorityClassName: system-cluster-critical}`)
	set := made(w, "pool", "pool", &appsv1.StatefulSet{})
	is := &set.Spec.Template
	c := &is.Spec.Containers[0]
	if is.Labels["team"] != "field" || is.Annotations["note"] != "any text" || c.Image != "example.org/gateway:v9" || c.ImagePullPolicy != corev1.PullAlways ||
		is.Spec.NodeSelector["role"] != "edge" || len(is.Spec.Tolerations) != 2 || is.Spec.TopologySpreadConstraints[0].LabelSelector == nil ||
		is.Spec.Affinity.NodeAffinity == nil || is.Spec.PriorityClassName != "system-cluster-critical" {
		t.Errorf("the template is %+v", is)
	}
	if account := made(w, "pool", "pool", &corev1.ServiceAccount{}); account.Annotations["cloud.example/role"] != "gateway" {
		t.Errorf("the ServiceAccount has the annotations %v", account.Annotations)
	}
	w.admits(set)

	for template, words := range map[string]string{
		`{tolerations: [{operator: Exists, value: x}]}`: "must be empty when",
		`{affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1000, podAffinityTerm: {topologyKey: rack}}]}}}`: "1-100",
		`{topologySpreadConstraints: [{maxSkew: 0, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}]}`:                                     "must be greater than zero",
		`{resources: {requests: {memory: 2Gi}, limits: {memory: 1Gi}}}`:                                                                        "must be less than or equal to memory limit",
	} {
		pool(template)
		w.awaits("IngestGateway", "pool", "Ready", "False/ApplyFailed", "StatefulSet", words)
		pool(`{}`)
		w.awaits("IngestGateway", "pool", "Ready", "False/Progressing")
	}

	w.patchSite(`{"spec":{"archivist":{"podTemplate":{"labels":{"team":"archive"},"nodeSelector":{"role":"disk"}}}}}`)
	eventually(t, "the archivist's pods should run as the Site says", func() error {
		d := &appsv1.Deployment{}
		if err := w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "hub-archivist"}, d); err != nil {
			return err
		}
		if p := &d.Spec.Template; p.Labels["team"] != "archive" || p.Spec.NodeSelector["role"] != "disk" {
			return fmt.Errorf("labels %v, nodes %v", p.Labels, p.Spec.NodeSelector)
		}
		return nil
	})
}

// The first Instrument with acknowledge Replicated has the pool's pods move to nodes of their own, and the last that
// goes lets them share nodes.
func TestReplicatedKeepsPodsApart(t *testing.T) {
	w := newWorld(t)
	w.start()
	first, _, ports := w.ports()
	w.applySite("hub", "hub")
	w.applyPool("pool", ports+", replicas: 2")
	apart := func(want bool) {
		t.Helper()
		eventually(t, fmt.Sprintf("pods should be kept apart: %v", want), func() error {
			set := &appsv1.StatefulSet{}
			if err := w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "pool"}, set); err != nil {
				return err
			}
			a := set.Spec.Template.Spec.Affinity
			if is := a != nil && a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) == 1; is != want {
				return errors.New("they are not what they should be")
			}
			return nil
		})
	}
	w.applyInstrument("plain", first, "")
	w.awaits("Instrument", "plain", "Accepted", "True/Accepted")
	apart(false)
	w.applyInstrument("twice", first+1, ", acknowledge: Replicated")
	apart(true)
	w.applyInstrument("twice", first+1, ", acknowledge: Replicated, state: Retired")
	apart(false)
	w.applyInstrument("plain", first, ", acknowledge: Replicated")
	apart(true)
	w.remove(w.object("Instrument", "plain"))
	apart(false)
}
