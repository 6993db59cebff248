// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// JetStream is a NATS server or cluster with JetStream.
// +kubebuilder:validation:XValidation:rule="has(self.accountKeySecretRef) != has(self.credentialsSecretRef)",message="set exactly one of accountKeySecretRef and credentialsSecretRef",fieldPath=.accountKeySecretRef
// +kubebuilder:validation:XValidation:rule="!has(self.consumerAccountKeySecretRef) || !has(self.accountKeySecretRef) || self.consumerAccountKeySecretRef.name != self.accountKeySecretRef.name",message="consumers need an account of their own: consumerAccountKeySecretRef and accountKeySecretRef name two Secrets",fieldPath=.consumerAccountKeySecretRef
// +kubebuilder:validation:XValidation:rule="!has(self.commandAccountKeySecretRef) || (!has(self.accountKeySecretRef) || self.accountKeySecretRef.name != self.commandAccountKeySecretRef.name) && (!has(self.consumerAccountKeySecretRef) || self.consumerAccountKeySecretRef.name != self.commandAccountKeySecretRef.name)",message="commands need an account of their own: commandAccountKeySecretRef names a Secret that no other field names",fieldPath=.commandAccountKeySecretRef
// +kubebuilder:validation:XValidation:rule="!has(self.leafAccountKeySecretRef) || has(self.accountKeySecretRef) && self.leafAccountKeySecretRef.name != self.accountKeySecretRef.name && (!has(self.consumerAccountKeySecretRef) || self.leafAccountKeySecretRef.name != self.consumerAccountKeySecretRef.name) && (!has(self.commandAccountKeySecretRef) || self.leafAccountKeySecretRef.name != self.commandAccountKeySecretRef.name)",message="leaves need an account of their own: leafAccountKeySecretRef goes with accountKeySecretRef, and names a Secret that no other field names",fieldPath=.leafAccountKeySecretRef
type JetStream struct {
	// Servers are NATS URLs: tls://nats.substorm.svc:4222.
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=9
	// +kubebuilder:validation:items:Pattern=`^(tls|nats)://[^/]+$`
	// +listType=set
	// +required
	Servers []string `json:"servers,omitempty"`

	// AccountKeySecretRef names a Secret with account.seed, a signing key of
	// the account, and account.id, its public key. With it the operator issues
	// every program a user of its own that may do only what it needs.
	// +optional
	AccountKeySecretRef *LocalReference `json:"accountKeySecretRef,omitempty"`

	// ConsumerAccountKeySecretRef names a Secret with account.seed, a signing key of
	// the account of consumers, and account.id, its public key. That account imports
	// from the account of the streams what reads a durable, and has no JetStream of its
	// own. FeedConsumers with delivery NATS need it: within the account of the streams
	// whoever may ask for a message may also have a stream deleted.
	// +optional
	ConsumerAccountKeySecretRef *LocalReference `json:"consumerAccountKeySecretRef,omitempty"`

	// CommandAccountKeySecretRef names a Secret with account.seed, a signing key of
	// the account of commands, and account.id, its public key. That account imports
	// from the account of the streams what reads single messages and what requests
	// changes of the archivist, and has no JetStream of its own. The commands of
	// substorm that ask JetStream and only read or request need it where
	// accountKeySecretRef is set: whoever runs them need not read the key of the
	// account of the streams.
	// +optional
	CommandAccountKeySecretRef *LocalReference `json:"commandAccountKeySecretRef,omitempty"`

	// LeafAccountKeySecretRef names a Secret with account.seed, a signing key of the
	// account of leaves, and account.id, its public key. The NATS servers of leaves link
	// into that account, which has streams with copies of what they sent and nothing
	// else; the account of the streams sources from there. A Site with spec.leaves and
	// accountKeySecretRef needs it: a leaf can have our server publish to any subject of
	// the account that it links into.
	// +optional
	LeafAccountKeySecretRef *LocalReference `json:"leafAccountKeySecretRef,omitempty"`

	// CredentialsSecretRef names a Secret with user.creds, used by every program
	// where the account's key cannot be had.
	// +optional
	CredentialsSecretRef *LocalReference `json:"credentialsSecretRef,omitempty"`

	// TLS for tls:// servers whose certificate no public authority signed
	// (caSecretRef), or that ask for ours (certificateSecretRef).
	// +optional
	TLS *TLS `json:"tls,omitempty"`

	// Durability is what the server's acknowledgement is worth. Synced: it
	// comes after fsync (sync_interval: always). Flushed: a power cut may take
	// the last minutes. It limits what receipts may claim.
	// +kubebuilder:default=Unknown
	// +optional
	Durability Durability `json:"durability,omitempty"`

	// Replicas of each stream: 1, 3 or 5, never more than there are servers.
	// +kubebuilder:validation:Enum=1;3;5
	// +kubebuilder:default=1
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// Observations bounds the base stream of telemetry. What is archived makes
	// space; when nothing more is archived and the stream is full, new telemetry
	// is refused and counted rather than old telemetry lost.
	// +kubebuilder:default={}
	// +optional
	Observations StreamLimits `json:"observations,omitzero"`

	// Notices bounds the base stream of notices.
	// +kubebuilder:default={}
	// +optional
	Notices StreamLimits `json:"notices,omitzero"`
}

// StreamLimits bound one base stream.
type StreamLimits struct {
	// MaxSize of the stream on disk. At most 1Pi.
	// +kubebuilder:default="4Gi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || !quantity(string(self)).isLessThan(quantity('1Mi'))",message="a stream's maxSize is at least 1Mi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || !quantity(string(self)).isGreaterThan(quantity('1Pi'))",message="maxSize is at most 1Pi"
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('e|E')",message="write digits and a unit, such as 64Mi, and no exponent"
	// +optional
	MaxSize resource.Quantity `json:"maxSize,omitzero"`

	// Retention is how long archived messages stay for consumers: 1m to 876000h.
	// +kubebuilder:default="72h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('876000h')",message="retention is 1m to 876000h"
	// +optional
	Retention metav1.Duration `json:"retention,omitzero"`
}

// Durability is what a JetStream acknowledgement is worth.
// +kubebuilder:validation:Enum=Synced;Flushed;Unknown
type Durability string

// The values of Durability.
const (
	DurabilitySynced  Durability = "Synced"
	DurabilityFlushed Durability = "Flushed"
	DurabilityUnknown Durability = "Unknown"
)
