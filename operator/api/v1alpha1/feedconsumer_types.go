// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionKeepingUp of a FeedConsumer is True while it gets what its flow asks for,
// False while it is Slow or Overrun, and Unknown while it is Idle, or nobody reports.
const ConditionKeepingUp = "KeepingUp"

// Reasons of a FeedConsumer's conditions.
const (
	// ReasonSlow: for ten seconds the oldest message that the consumer was not given is
	// older than five seconds, or in mode Sample than two intervals.
	ReasonSlow = "Slow"
	// ReasonOverrun: a gap record was written in the last ten minutes.
	ReasonOverrun = "Overrun"
	// ReasonIdle: nobody is connected, or (NATS) nobody has asked for a minute.
	ReasonIdle = "Idle"
	// ReasonFeedNotFound: no Feed in this namespace has the name that feedRef has.
	ReasonFeedNotFound = "FeedNotFound"
	// ReasonInvalidFlow: the flow cannot be kept with this Feed, see the message.
	ReasonInvalidFlow = "InvalidFlow"
	// ReasonNoFeedServer: the Site has no FeedServer.
	ReasonNoFeedServer = "NoFeedServer"
	// ReasonFeedNotReady: the Feed is not accepted.
	ReasonFeedNotReady = "FeedNotReady"
	// ReasonForbidden: the consumer may read none of the instruments.
	ReasonForbidden = "Forbidden"
	// ReasonNoAccountKey: delivery NATS needs users, and the Site's account key is
	// what makes them.
	ReasonNoAccountKey = "NoAccountKey"
	// ReasonNoAddress: WIS2 notifications name objects by address, and none of the Site's
	// FeedServers declares one.
	ReasonNoAddress = "NoAddress"
	// ReasonFeedServerProblem: a feed server cannot serve the consumer.
	ReasonFeedServerProblem = "FeedServerProblem"
)

// FeedConsumerSpec declares one consumer of a Feed: what it gets, how fast, and
// over what. What one consumer declares, or does, never changes what another gets.
// +kubebuilder:validation:XValidation:rule="!has(self.flow.window) || (self.delivery.type == 'NATS' && self.flow.mode == 'All')",message="flow.window counts messages that wait for an acknowledgement: only delivery NATS with mode All has them",reason=FieldValueForbidden,fieldPath=.flow.window
// +kubebuilder:validation:XValidation:rule="self.delivery.type != 'NATS' || self.flow.mode != 'All' || !has(self.flow.maxBytesPerSecond) && !has(self.flow.maxLag)",message="with delivery NATS and mode All the client pulls from the stream itself, and nobody can pace it: set flow.window instead of maxBytesPerSecond and maxLag",reason=FieldValueForbidden,fieldPath=.flow
// +kubebuilder:validation:XValidation:rule="self.delivery.type != 'NATS' || !has(self.flow.priority) || self.flow.priority == 'Normal'",message="priority Urgent orders what feed servers send, and clients of delivery NATS pull: choose another delivery",fieldPath=.flow.priority
// +kubebuilder:validation:XValidation:rule="!has(self.delivery.notices) || self.delivery.notices == 'Record' || self.delivery.type == 'NATS' && self.flow.mode == 'All' && has(self.filter.messageTypes) && self.filter.messageTypes == ['Notices']",fieldPath=".delivery.notices",message="delivery.notices WIS2 needs delivery NATS, flow.mode All and filter.messageTypes: [Notices]. Over Server-Sent Events every Feed gives WIS2 notifications, at /wis2/<feed>/events"
// +kubebuilder:validation:XValidation:rule="has(self.secretName) == has(oldSelf.secretName) && (!has(self.secretName) || self.secretName == oldSelf.secretName)",message="secretName is immutable: make another FeedConsumer",fieldPath=.secretName
type FeedConsumerSpec struct {
	// FeedRef names the Feed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="feedRef is immutable: make another FeedConsumer"
	// +required
	FeedRef LocalReference `json:"feedRef,omitzero"`

	// Filter narrows what the Feed carries.
	// +kubebuilder:default={}
	// +optional
	Filter FeedFilter `json:"filter,omitzero"`

	// Flow says what happens when messages come faster than the consumer takes them.
	// +kubebuilder:default={mode: All}
	// +optional
	Flow Flow `json:"flow,omitzero"`

	// Delivery is how messages reach the consumer.
	// +required
	Delivery Delivery `json:"delivery,omitzero"`

	// MaxConnections that each feed server takes of the consumer at a time, of which a
	// quarter is kept for who shows a token or certificate. It says nothing about
	// delivery NATS.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +kubebuilder:default=1000
	// +optional
	MaxConnections int32 `json:"maxConnections,omitempty"`

	// SecretName is the Secret that the operator writes for the consumer, with all
	// that it needs to connect and nothing else: <name>-consumer by default. It ends
	// with -consumer, so that it takes no name which a Secret for another purpose has
	// later. It is not written while another object refers to a Secret of that name.
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?-consumer$`
	// +kubebuilder:validation:MaxLength=253
	// +optional
	SecretName string `json:"secretName,omitempty"`
}

// FeedFilter selects messages of a Feed. Empty lists select all. A consumer whose filter
// matches nothing is Ready, and its condition InstrumentsSelected says so.
// +kubebuilder:validation:XValidation:rule="!has(self.channels) || size(self.channels) == 0 || !has(self.messageTypes) || size(self.messageTypes) == 0 || self.messageTypes.exists(m, m == 'Telemetry')",fieldPath=".channels",message="channels select telemetry: add Telemetry to messageTypes, or leave channels out"
type FeedFilter struct {
	// InstrumentNames are the Instruments whose messages are selected. Empty means all that the
	// Feed carries.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	// +listType=set
	// +optional
	InstrumentNames []string `json:"instrumentNames,omitempty"`

	// Channels of telemetry that are selected. Empty means all that the Feed carries.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	// +listType=set
	// +optional
	Channels []string `json:"channels,omitempty"`

	// MessageTypes that are selected: notices of stored objects, telemetry, or both. Empty means
	// what the Feed carries.
	// +kubebuilder:validation:MaxItems=2
	// +listType=set
	// +optional
	MessageTypes []MessageType `json:"messageTypes,omitempty"`
}

// Flow is the flow control of one consumer. The limits combine with the modes so:
//
//	                    All                     Latest              Sample
//	interval            no                      no                  needed
//	maxBytesPerSecond   paced; not with NATS    paced               paced
//	maxLag              beyond it as Latest,    no                  no
//	                    until caught up;
//	                    not with NATS
//	window              NATS only               no                  no
//	priority: Urgent    not with NATS           not with NATS       no
//
// +kubebuilder:validation:XValidation:rule="has(self.interval) == (self.mode == 'Sample')",message="mode Sample needs an interval, such as 200ms, and no other mode has one",fieldPath=.interval
// +kubebuilder:validation:XValidation:rule="!has(self.maxLag) || self.mode == 'All'",message="maxLag says when mode All falls back to Latest: the other modes have no lag to bound",reason=FieldValueForbidden,fieldPath=.maxLag
// +kubebuilder:validation:XValidation:rule="!has(self.priority) || self.priority != 'Urgent' || self.mode != 'Sample'",message="priority Urgent sends at once, mode Sample waits for its interval: choose one",fieldPath=.priority
type Flow struct {
	// Mode says what a consumer that is too slow gets. All: everything that the
	// stream still holds, and a gap record for what it does not. Latest: the newest
	// message of each instrument and channel, and how many it replaced. Sample: the
	// newest of each interval, and the rate that was achieved. The newest notice is that of
	// what was observed last, or received last where no observation time is known; of
	// telemetry it is the datagram that the gateway received last.
	// +kubebuilder:default=All
	// +optional
	Mode FlowMode `json:"mode,omitempty"`

	// Interval of mode Sample, which needs it: 10ms to 24h. Other modes have none.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('24h')",message="interval is 10ms to 24h"
	// +optional
	Interval *metav1.Duration `json:"interval,omitempty"`

	// MaxBytesPerSecond is what the consumer is sent at most over each of its
	// connections: 100 to 1Pi. It does not go with delivery NATS and mode All. Default: no limit.
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || !quantity(string(self)).isLessThan(quantity('100'))",message="maxBytesPerSecond is at least 100"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || !quantity(string(self)).isGreaterThan(quantity('1Pi'))",message="maxBytesPerSecond is at most 1Pi"
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('e|E')",message="write digits and a unit, such as 64Mi, and no exponent"
	// +optional
	MaxBytesPerSecond *resource.Quantity `json:"maxBytesPerSecond,omitempty"`

	// MaxLag is how old the next message of mode All may be. A consumer that is
	// further behind gets the newest of each instrument and channel instead, as with mode
	// Latest, and a gap record that says what was skipped, until it has caught up. 1s to 8784h.
	// It does not go with delivery NATS. Default: no limit.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="maxLag is at least 1s"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('8784h')",message="maxLag is at most 8784h"
	// +optional
	MaxLag *metav1.Duration `json:"maxLag,omitempty"`

	// Window is how many messages may wait for their acknowledgement, with delivery NATS and
	// mode All; others have none. Default: 1000.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	Window *int32 `json:"window,omitempty"`

	// Priority: Urgent is sent before all that is Normal, from a queue of at most 256
	// messages and 1 MiB; what does not fit is dropped and counted.
	// +kubebuilder:default=Normal
	// +optional
	Priority Priority `json:"priority,omitempty"`
}

// FlowMode is what a consumer that is too slow gets.
// +kubebuilder:validation:Enum=All;Latest;Sample
type FlowMode string

// The values of FlowMode.
const (
	FlowAll    FlowMode = "All"
	FlowLatest FlowMode = "Latest"
	FlowSample FlowMode = "Sample"
)

// Priority of a consumer: whose messages a feed server sends first.
// +kubebuilder:validation:Enum=Normal;Urgent
type Priority string

// The values of Priority.
const (
	PriorityNormal Priority = "Normal"
	PriorityUrgent Priority = "Urgent"
)

// Delivery is how messages reach a consumer.
// +kubebuilder:object:generate=false
type Delivery struct {
	// Type: NATS, for any NATS client; WebSocket; ServerSentEvents.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="delivery.type is immutable: make another FeedConsumer"
	// +required
	Type DeliveryType `json:"type,omitempty"`

	// Notices says in which shape notices come. Record: as docs/reference/wire-protocols.md has them.
	// WIS2: as WIS2 notifications of the WMO's, with the objects' addresses, which needs
	// a FeedServer of the Site with spec.url. They lie in a stream of the consumer's own: up to
	// a day, and up to 64Mi, where it does not take them.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="delivery.notices is immutable: make another FeedConsumer"
	// +kubebuilder:default=Record
	// +optional
	Notices NoticeShape `json:"notices,omitempty"`
}

// NoticeShape is a shape of notices.
// +kubebuilder:validation:Enum=Record;WIS2
type NoticeShape string

// The values of NoticeShape.
const (
	NoticeRecord NoticeShape = "Record"
	NoticeWIS2   NoticeShape = "WIS2"
)

// DeliveryType is how messages reach a consumer.
// +kubebuilder:validation:Enum=NATS;WebSocket;ServerSentEvents
type DeliveryType string

// The values of DeliveryType.
const (
	DeliveryNATS             DeliveryType = "NATS"
	DeliveryWebSocket        DeliveryType = "WebSocket"
	DeliveryServerSentEvents DeliveryType = "ServerSentEvents"
)

// FeedConsumerStatus answers: does the consumer get what it asked for?
type FeedConsumerStatus struct {
	// ObservedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: Ready, Accepted, InstrumentsSelected, KeepingUp, Reconciling, Stalled, and NotApplied where substorm up runs the Site. The
	// reason of KeepingUp says how the consumer does. Idle: nobody is connected, or (NATS) nobody has asked for
	// a minute. Overrun: a gap record was written in the last ten minutes. Slow: for ten
	// seconds the oldest message that it was not given is older than five seconds, or in
	// mode Sample than two intervals. Flowing: else.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Lag is what lies between the consumer and the newest message.
	// +optional
	Lag *ConsumerLag `json:"lag,omitempty"`

	// Delivered messages and bytes by the feed servers that reported within a day,
	// since each of them started.
	// +optional
	Delivered *ConsumerDelivered `json:"delivered,omitempty"`

	// Dropped messages, by reason, counted like Delivered.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=reason
	// +optional
	Dropped []ConsumerDropped `json:"dropped,omitempty"`

	// GapCount is how many gap records the consumer was sent, counted like Delivered;
	// absent until a feed server has reported.
	// +optional
	GapCount *int64 `json:"gapCount,omitempty"`

	// AchievedInterval between samples, mode Sample.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('-2562047h') && duration(self) <= duration('2562047h')",message="achievedInterval is a duration"
	// +optional
	AchievedInterval *metav1.Duration `json:"achievedInterval,omitempty"`

	// ConnectionCount is how many connections are open; absent while nobody reports.
	// +optional
	ConnectionCount *int32 `json:"connectionCount,omitempty"`

	// SecretName is the Secret with what the consumer needs to connect.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	SecretName string `json:"secretName,omitempty"`

	// Credentials are the NATS credentials in that Secret, with delivery NATS.
	// +optional
	Credentials *CredentialsStatus `json:"credentials,omitempty"`

	// URL to connect to; empty where the Secret alone says it.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	URL string `json:"url,omitempty"`
}

// ConsumerLag is what a consumer was not given yet.
type ConsumerLag struct {
	// MessageCount is how many messages that its filter selects it was not given.
	// +optional
	MessageCount *int64 `json:"messageCount,omitempty"`
	// Bytes of them; of many taken from the sizes of the first. Absent where nobody
	// knows: with delivery NATS, where JetStream counts messages, and for what lies
	// further back than feed servers hold in memory.
	// +optional
	Bytes *int64 `json:"bytes,omitempty"`
	// Seconds since the oldest of them came.
	// +optional
	Seconds *int64 `json:"seconds,omitempty"`
}

// ConsumerDelivered is what a consumer was given.
type ConsumerDelivered struct {
	// MessageCount is how many messages were handed over.
	// +optional
	MessageCount *int64 `json:"messageCount,omitempty"`
	// Bytes of them. Absent with delivery NATS and mode All: the consumer takes them
	// from JetStream, which counts messages.
	// +optional
	Bytes *int64 `json:"bytes,omitempty"`
}

// ConsumerDropped is what a consumer was not given, for one reason.
// +kubebuilder:object:generate=false
type ConsumerDropped struct {
	// Reason: Replaced (mode Latest) and Sampled (mode Sample): newer ones were given in their
	// place. The others are those of gap records. Retention: they left the stream first.
	// StreamRecreated and ConsumerDeleted: the stream, or the durable with its place, was
	// deleted. MaxLag: the consumer was further behind than flow.maxLag. Overflow: a queue
	// was full.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Reason string `json:"reason,omitempty"`
	// Count of messages; of telemetry in modes Latest and Sample, of datagrams.
	// +optional
	Count int64 `json:"count,omitempty"`
}

// FeedConsumer is one consumer of a Feed, with a flow control of its own.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=substorm,shortName=fc
// +kubebuilder:selectablefield:JSONPath=`.spec.feedRef.name`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 63",message="a FeedConsumer's name is a DNS label of at most 63 characters: streams and subjects carry it"
// +kubebuilder:printcolumn:name="Feed",type=string,JSONPath=`.spec.feedRef.name`,description="Feed that is consumed"
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.flow.mode`,description="What a consumer that is too slow gets"
// +kubebuilder:printcolumn:name="Delivery",type=string,JSONPath=`.spec.delivery.type`,description="How messages reach it"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True once it can connect"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why Ready has its value"
// +kubebuilder:printcolumn:name="Keeping-Up",type=string,JSONPath=`.status.conditions[?(@.type=="KeepingUp")].reason`,description="Flowing, Slow, Overrun or Idle"
// +kubebuilder:printcolumn:name="Lag",type=integer,JSONPath=`.status.lag.seconds`,description="Seconds since the oldest message came that it was not given"
// +kubebuilder:printcolumn:name="Gaps",type=integer,JSONPath=`.status.gapCount`,description="Gap records that it was sent"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What Ready says, and what to do"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
type FeedConsumer struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what you declare.
	// +required
	Spec FeedConsumerSpec `json:"spec,omitzero"`
	// The default of status: kstatus takes a FeedConsumer that no operator has seen for one in progress, not for ready.

	// Status is what the operator found: nobody else writes it.
	// +kubebuilder:default={"observedGeneration":-1}
	// +optional
	Status FeedConsumerStatus `json:"status,omitzero"`
}

// FeedConsumerList is a list of FeedConsumers.
//
// +kubebuilder:object:root=true
type FeedConsumerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []FeedConsumer `json:"items"`
}
