// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Archivist is how a Site's archivist runs.
type Archivist struct {
	// PodTemplate says how the archivist's pods run: where, with which resources and image.
	// Half of the memory limit is for what is remembered of the archive.
	// +optional
	PodTemplate PodTemplate `json:"podTemplate,omitzero"`

	// ScratchSize is how much of the node's disk a pod may take for what it is writing.
	// Default: 20Gi.
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || (!quantity(string(self)).isLessThan(quantity('1Gi')) && !quantity(string(self)).isGreaterThan(quantity('1Pi')))",message="scratchSize is 1Gi to 1Pi"
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('e|E')",message="write digits and a unit, such as 64Mi, and no exponent"
	// +optional
	ScratchSize *resource.Quantity `json:"scratchSize,omitempty"`

	// ScrubBytesPerSecond is how many bytes a second of the archive are read and compared with
	// their digests, all of it again and again; 0: none. Default: 1Mi.
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || (!quantity(string(self)).isLessThan(quantity('0')) && !quantity(string(self)).isGreaterThan(quantity('1Ti')))",message="scrubBytesPerSecond is 0 to 1Ti"
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('e|E')",message="write digits and a unit, such as 64Mi, and no exponent"
	// +optional
	ScrubBytesPerSecond *resource.Quantity `json:"scrubBytesPerSecond,omitempty"`

	// PartInterval is how often the open part of each manifest is closed. Readers find an object
	// in the manifest after this time at the latest. Default: 1m.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="partInterval is 1s to 1h"
	// +optional
	PartInterval *metav1.Duration `json:"partInterval,omitempty"`

	// CompactAfter is how long after its end a day is compacted. Default: 24h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('8784h')",message="compactAfter is 1m to 8784h"
	// +optional
	CompactAfter *metav1.Duration `json:"compactAfter,omitempty"`

	// CompactGrace is how long readers may use what a compaction replaced. Default: 24h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('8784h')",message="compactGrace is 1m to 8784h"
	// +optional
	CompactGrace *metav1.Duration `json:"compactGrace,omitempty"`

	// ForwardNetworks are networks, as CIDRs, to which copies for old servers may go
	// (spec.forward of Instruments), beside public addresses. Without it no copy goes to a
	// loopback, link-local or private address, as those of the cluster are. Of a name each
	// address that it resolves to is checked when the connection is made.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="a network is a CIDR such as 192.168.7.0/24"
	// +kubebuilder:validation:items:MaxLength=64
	// +listType=set
	// +optional
	ForwardNetworks []string `json:"forwardNetworks,omitempty"`
}

// ArchivistState is how a Site's archivist does.
type ArchivistState struct {
	// ReadyReplicas is how many pods are ready: one works, the other waits.
	// +required
	ReadyReplicas int32 `json:"readyReplicas"`

	// Credentials are the NATS credentials that it has; absent where the Site gives the
	// operator no account key.
	// +optional
	Credentials *CredentialsStatus `json:"credentials,omitempty"`
}
