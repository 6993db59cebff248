// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ConditionLeavesReachable: the NATS servers of all leaves are linked to ours. Absent
// where the Site names no leaf. Ready does not wait for it: a leaf may be away for weeks.
const ConditionLeavesReachable = "LeavesReachable"

// ReasonLeafAway: a leaf's NATS server is not heard, or refuses to be sourced from.
const ReasonLeafAway = "LeafAway"

// Leaf is a Site elsewhere, with NATS servers and an archive of its own, whose
// notices and telemetry this Site carries too. Its server opens the link
// (docs/how-to/leaf.md); this Site asks for what it hasn't yet, so that a link may be down
// for as long as the leaf's streams hold what comes meanwhile.
// +kubebuilder:validation:XValidation:rule="has(self.domain) == has(oldSelf.domain) && (!has(self.domain) || self.domain == oldSelf.domain)",message="a leaf's domain is immutable: from another one everything would come a second time",fieldPath=.domain
// +kubebuilder:object:generate=false
type Leaf struct {
	// Code of the leaf's Site. Its messages keep it in their subjects.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	// +required
	Code string `json:"code,omitempty"`

	// Domain is the JetStream domain of the leaf's NATS servers. Default: its code.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_-]+$`
	// +optional
	Domain string `json:"domain,omitempty"`
}

// LeafLink says whether a leaf is heard.
// +kubebuilder:validation:Enum=Connected;Disconnected
type LeafLink string

// The values of LeafLink.
const (
	LeafConnected    LeafLink = "Connected"
	LeafDisconnected LeafLink = "Disconnected"
)

// LeafStatus is what a Site knows of a leaf.
type LeafStatus struct {
	// Code of the leaf's Site.
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:MinLength=1
	// +required
	Code string `json:"code,omitempty"`

	// Link to the leaf. Connected: both of the leaf's base streams were heard in the last half
	// minute. Disconnected: at least one was not.
	// +required
	Link LeafLink `json:"link,omitempty"`

	// LastSeenTime is when they were heard last, to ten minutes while they are.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	LastSeenTime *metav1.Time `json:"lastSeenTime,omitempty"`

	// LagMessageCount is how many messages the leaf's streams hold that ours don't yet, as of
	// lastSeenTime; absent where nobody has said.
	// +optional
	LagMessageCount *int64 `json:"lagMessageCount,omitempty"`

	// Problem is why JetStream cannot copy the leaf's messages.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Problem string `json:"problem,omitempty"`
}
