// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import corev1 "k8s.io/api/core/v1"

// PodTemplate is what may be said of the pods of a program, with the names of a Pod's
// fields. What it leaves out is as the operator plans it. A change replaces the pods
// one by one.
type PodTemplate struct {
	// Labels of the pods, beside those that the operator gives them.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.matches('^([^/]*[.])?(substorm[.]dev|app[.]kubernetes[.]io)/'))",message="labels below substorm.dev/ and app.kubernetes.io/ are the operator's",reason=FieldValueForbidden
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="a label's key is a name of at most 63 letters, digits, dashes, underscores and dots, after a DNS name and a slash or nothing"
	// +optional
	Labels map[string]LabelValue `json:"labels,omitempty"`

	// Annotations of the pods, beside those that the operator gives them.
	// +optional
	Annotations Annotations `json:"annotations,omitempty"`

	// ServiceAccountAnnotations are those of the pods' ServiceAccount: clouds give a
	// workload its identity by them.
	// +optional
	ServiceAccountAnnotations Annotations `json:"serviceAccountAnnotations,omitempty"`

	// Image that the container runs: registry/name, with :tag or @digest. It must be of the
	// operator's version or the one before it. Default: the one that the operator is told for
	// this program.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:[0-9]+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@[a-z0-9]+:[0-9a-f]{32,128})?$`
	// +optional
	Image string `json:"image,omitempty"`

	// ImagePullPolicy says when nodes pull the image. Default: as the operator is told
	// (--image-pull-policy), which is IfNotPresent.
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// Resources of the container. Default: a request of 100m and 256Mi; a limit of 512Mi
	// for a gateway, of 1Gi for an archivist, a feed server and a mirror.
	// +optional
	Resources *Resources `json:"resources,omitempty"`

	// NodeSelector has the labels of the nodes that pods may run on.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="a label's key is a name of at most 63 letters, digits, dashes, underscores and dots, after a DNS name and a slash or nothing"
	// +optional
	NodeSelector map[string]LabelValue `json:"nodeSelector,omitempty"`

	// Affinity of the pods to nodes and to other pods. What the operator requires of a pool
	// with Instruments that say acknowledge: Replicated, no two pods on one node, is added.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// Tolerations of the pods.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// TopologySpreadConstraints spread the pods over nodes and zones. One without a
	// labelSelector counts the pods that this template is for. Default: evenly over
	// kubernetes.io/hostname and over topology.kubernetes.io/zone, as well as can be.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=topologyKey
	// +listMapKey=whenUnsatisfiable
	// +optional
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	// PriorityClassName says which pods the scheduler prefers, and which may be evicted for
	// others. The PriorityClass must exist. Default: the cluster's own default, if it has one.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
}

// LabelValue is the value of a label.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
type LabelValue string
