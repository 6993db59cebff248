// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionInstrumentsSelected of a Feed and of a FeedConsumer is True while its selector
// or filter matches something, and False while it matches nothing. It is served in either
// case: an Instrument that comes later belongs to it at once. Absent while it is not
// accepted.
const ConditionInstrumentsSelected = "InstrumentsSelected"

// ConditionDeletionHeld of a Feed or a Site that is being deleted exists only while it is
// True: streams that should go with it are still there. It is gone with them, or after ten
// minutes, which an event then says.
const ConditionDeletionHeld = "DeletionHeld"

// FinalizerStream is the finalizer of a Feed with a stream of its own and deletionPolicy
// Delete, and of the Site of such Feeds.
const FinalizerStream = "substorm.dev/stream"

// Reasons of a Feed's conditions.
const (
	// ReasonFeedsRemain: the Site is deleted, and Feeds of it with deletionPolicy Delete are
	// not.
	ReasonFeedsRemain = "FeedsRemain"
	// ReasonStreamLeft: a deletion has given up, and leaves a stream behind, which an event
	// names.
	ReasonStreamLeft = "StreamLeft"
	// ReasonSelected: the selector or filter matches something.
	ReasonSelected = "Selected"
	// ReasonSelectsNothing: no Instrument of the Site matches the selector, or nothing of
	// the Feed the filter.
	ReasonSelectsNothing = "SelectsNothing"
	// ReasonImmutable: JetStream cannot make the change to a stream that exists.
	ReasonImmutable = "Immutable"
	// ReasonInvalidSelector: what spec.selector holds is no label selector.
	ReasonInvalidSelector = "InvalidSelector"
	// ReasonLeafNotFound: the Site has no leaf of that code.
	ReasonLeafNotFound = "LeafNotFound"
	// ReasonStreamRefused: JetStream refuses the Feed's own stream.
	ReasonStreamRefused = "StreamRefused"
)

// FeedSpec declares which of a Site's messages belong together: a selection over
// the Site's base streams.
// +kubebuilder:validation:XValidation:rule="has(self.stream) == has(oldSelf.stream)",message="a stream of the Feed's own can neither be added nor removed: its consumers would lose their places. Make another Feed",reason=FieldValueForbidden,fieldPath=.stream
// +kubebuilder:validation:XValidation:rule="!has(self.channels) || size(self.channels) == 0 || self.messageTypes.exists(m, m == 'Telemetry')",fieldPath=".channels",message="channels select telemetry: add Telemetry to messageTypes, or leave channels out"
// +kubebuilder:validation:XValidation:rule="!has(self.backfill) || self.backfill != 'Include' || !has(self.messageTypes) || self.messageTypes.exists(m, m == 'Notices')",fieldPath=".backfill",message="backfill says which notices are carried: add Notices to messageTypes, or leave backfill out"
type FeedSpec struct {
	// SiteRef names the Site whose messages these are.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="siteRef is immutable: make another Feed"
	// +required
	SiteRef LocalReference `json:"siteRef,omitzero"`

	// Selector selects Instruments of the Site by their labels. Empty selects
	// all. An Instrument that comes to match later belongs to the Feed from then on,
	// with what the base streams still hold of it. A Feed that selects nothing is Ready, and
	// its condition InstrumentsSelected says so.
	// +kubebuilder:default={}
	// +optional
	Selector metav1.LabelSelector `json:"selector,omitzero"`

	// Leaves are codes of spec.leaves of the Site: the Feed carries what all of their
	// Instruments send, too, for all readers of the Site. Who may read the leaf's
	// Instruments there is not known here.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=16
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	// +listType=set
	// +optional
	Leaves []string `json:"leaves,omitempty"`

	// MessageTypes says what is carried: notices of stored objects, telemetry, or both.
	// +kubebuilder:default={Notices,Telemetry}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +listType=set
	// +optional
	MessageTypes []MessageType `json:"messageTypes,omitempty"`

	// Channels of telemetry that are carried. Empty means all.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	// +listType=set
	// +optional
	Channels []string `json:"channels,omitempty"`

	// Backfill says whether the Feed carries notices of what came later than
	// cadence.lateAfter after it was observed. The archive has it in either case, and
	// telemetry is carried as it comes.
	// +kubebuilder:default=Exclude
	// +optional
	Backfill FeedBackfill `json:"backfill,omitempty"`

	// Stream gives the Feed a stream of its own, which sources from the base
	// streams, where it is to be kept for another time, on other storage or with
	// other replicas. Without it consumers read the base streams.
	// +optional
	Stream *FeedStream `json:"stream,omitempty"`

	// Access narrows who may read what the instruments allow. It never widens it.
	// +optional
	Access *FeedAccess `json:"access,omitempty"`

	// DeletionPolicy says what becomes of the Feed's own stream when the Feed is
	// deleted. The base streams and the archive stay in either case. With Delete the Feed has
	// a finalizer, and is gone when its stream is; where that takes more than ten minutes,
	// as while JetStream is away, it is gone without, and an event names the stream.
	// +kubebuilder:default=Retain
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// FeedBackfill says whether a Feed carries notices of late data.
// +kubebuilder:validation:Enum=Exclude;Include
type FeedBackfill string

// The values of FeedBackfill. Include: consumers of flow mode All are given every late
// notice, those of modes Latest and Sample none that is older than what they were given.
const (
	BackfillExclude FeedBackfill = "Exclude"
	BackfillInclude FeedBackfill = "Include"
)

// MessageType is a kind of message that Feeds carry.
// +kubebuilder:validation:Enum=Notices;Telemetry
type MessageType string

// The values of MessageType.
const (
	MessageNotices   MessageType = "Notices"
	MessageTelemetry MessageType = "Telemetry"
)

// FeedAccess narrows who may read a Feed.
// +kubebuilder:object:generate=false
type FeedAccess struct {
	// Live is who may follow at most. Public narrows nothing; with Restricted each
	// instrument's messages are for the readers that it names.
	// +required
	Live AccessLevel `json:"live,omitempty"`
}

// FeedStream is a stream of a Feed's own. Its messages are those of the base
// streams, unchanged. When it is full the oldest go.
type FeedStream struct {
	// Retention is how long messages stay. At most 876000h.
	// +kubebuilder:default="24h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="a stream's retention is at least 1m"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('876000h')",message="a stream's retention is at most 876000h"
	// +optional
	Retention metav1.Duration `json:"retention,omitzero"`

	// MaxSize of the stream. At most 1Pi.
	// +kubebuilder:default="1Gi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || !quantity(string(self)).isLessThan(quantity('1Mi'))",message="a stream's maxSize is at least 1Mi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || !quantity(string(self)).isGreaterThan(quantity('1Pi'))",message="maxSize is at most 1Pi"
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('e|E')",message="write digits and a unit, such as 64Mi, and no exponent"
	// +optional
	MaxSize resource.Quantity `json:"maxSize,omitzero"`

	// Replicas of the stream: 1, 3 or 5, never more than there are servers.
	// +kubebuilder:validation:Enum=1;3;5
	// +kubebuilder:default=1
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// Storage: File survives a restart of the server, Memory does not, and costs
	// no disk. It cannot be changed: JetStream would have to copy the stream.
	// +kubebuilder:default=File
	// +optional
	Storage StreamStorage `json:"storage,omitempty"`
}

// StreamStorage is where a stream lies.
// +kubebuilder:validation:Enum=File;Memory
type StreamStorage string

// The values of StreamStorage.
const (
	StorageFile   StreamStorage = "File"
	StorageMemory StreamStorage = "Memory"
)

// DeletionPolicy says what deleting a resource does to what it made.
// +kubebuilder:validation:Enum=Retain;Delete
type DeletionPolicy string

// The values of DeletionPolicy.
const (
	DeletionRetain DeletionPolicy = "Retain"
	DeletionDelete DeletionPolicy = "Delete"
)

// FeedStatus answers: what does the Feed hold, and who is behind?
type FeedStatus struct {
	// ObservedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: Ready, Accepted, InstrumentsSelected, Reconciling, Stalled, and DeletionHeld
	// while its deletion waits.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// InstrumentCount is how many Instruments are selected; a leaf counts as one.
	// +optional
	InstrumentCount *int32 `json:"instrumentCount,omitempty"`

	// Streams are those that the Feed's messages lie in.
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=255
	// +listType=set
	// +optional
	Streams []string `json:"streams,omitempty"`

	// First is the oldest message that the streams hold of the Feed.
	// +optional
	First *FeedPosition `json:"first,omitempty"`

	// Last is the newest message that the streams hold of the Feed.
	// +optional
	Last *FeedPosition `json:"last,omitempty"`

	// MessageCount is how many messages the streams hold of the Feed; absent until they
	// were counted.
	// +optional
	MessageCount *int64 `json:"messageCount,omitempty"`

	// Bytes of the Feed's own stream. Absent where the Feed is a selection of the
	// base streams: JetStream counts the bytes of whole streams only.
	// +optional
	Bytes *int64 `json:"bytes,omitempty"`

	// EstimatedBytes of the messages of a Feed that is a selection, without headers:
	// what they would be if all were as large as some of the oldest, and of those of
	// the last minute, are in the mean.
	// +optional
	EstimatedBytes *int64 `json:"estimatedBytes,omitempty"`

	// MessagesPerMinute is how many messages came in the last minute; absent until they
	// were counted.
	// +optional
	MessagesPerMinute *int64 `json:"messagesPerMinute,omitempty"`

	// ConsumerCount is how many FeedConsumers name the Feed.
	// +optional
	ConsumerCount *int32 `json:"consumerCount,omitempty"`

	// Slowest is the consumer with the greatest lag.
	// +optional
	Slowest *SlowestConsumer `json:"slowest,omitempty"`
}

// FeedPosition is a message of a Feed.
type FeedPosition struct {
	// Stream that the message lies in.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +required
	Stream string `json:"stream,omitempty"`
	// Sequence of the message in it.
	// +required
	Sequence int64 `json:"sequence"`
	// Time at which the stream took the message.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +required
	Time metav1.Time `json:"time"`
}

// SlowestConsumer is the FeedConsumer with the greatest lag.
// +kubebuilder:object:generate=false
type SlowestConsumer struct {
	// Name of the FeedConsumer.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name,omitempty"`
	// LagSeconds since the oldest message that it was not given yet came.
	// +optional
	LagSeconds int64 `json:"lagSeconds,omitempty"`
}

// Feed is a selection of a Site's notices and telemetry that consumers follow.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=substorm,shortName=sfeed
// +kubebuilder:selectablefield:JSONPath=`.spec.siteRef.name`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 63",message="a Feed's name is a DNS label of at most 63 characters: streams and URLs carry it"
// +kubebuilder:printcolumn:name="Site",type=string,JSONPath=`.spec.siteRef.name`,description="Site whose messages these are"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True once the Feed can be consumed"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why Ready has its value"
// +kubebuilder:printcolumn:name="Instruments",type=integer,JSONPath=`.status.instrumentCount`,description="Instruments that are selected"
// +kubebuilder:printcolumn:name="Messages",type=integer,JSONPath=`.status.messageCount`,description="Messages that the streams hold"
// +kubebuilder:printcolumn:name="Per-Minute",type=integer,JSONPath=`.status.messagesPerMinute`,description="Messages in the last minute"
// +kubebuilder:printcolumn:name="Consumers",type=integer,JSONPath=`.status.consumerCount`,description="FeedConsumers of the Feed"
// +kubebuilder:printcolumn:name="Slowest",type=string,JSONPath=`.status.slowest.name`,description="Consumer with the greatest lag"
// +kubebuilder:printcolumn:name="Lag",type=integer,JSONPath=`.status.slowest.lagSeconds`,description="Its lag in seconds"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What Ready says, and what to do"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
type Feed struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what you declare.
	// +required
	Spec FeedSpec `json:"spec,omitzero"`
	// The default of status: kstatus takes a Feed that no operator has seen for one in progress, not for ready.

	// Status is what the operator found: nobody else writes it.
	// +kubebuilder:default={"observedGeneration":-1}
	// +optional
	Status FeedStatus `json:"status,omitzero"`
}

// FeedList is a list of Feeds.
//
// +kubebuilder:object:root=true
type FeedList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Feed `json:"items"`
}
