// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Sampling says how often an instrument is to observe. Gateways tell it to senders
// that take commands (substorm send with --sample-command) within a second. Data
// that comes is received whatever stands here.
// +kubebuilder:validation:XValidation:rule="!has(self.consumerRequests) || self.consumerRequests != 'Allow' || has(self.interval)",message="consumerRequests Allow needs an interval: what consumers ask for is more than that or nothing",reason=FieldValueRequired,fieldPath=".interval"
// +kubebuilder:validation:XValidation:rule="!has(self.minInterval) || (has(self.consumerRequests) && self.consumerRequests == 'Allow')",message="minInterval is of what consumers ask for: set consumerRequests Allow",reason=FieldValueForbidden,fieldPath=".minInterval"
type Sampling struct {
	// State of all channels that are not named in channels. Paused: nothing is observed.
	// +kubebuilder:default=Observing
	// +optional
	State SamplingState `json:"state,omitempty"`

	// Interval between observations, of all channels that have none of their own.
	// Without it the instrument observes as it does by itself.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('8784h')",message="interval is longer than nothing and at most 8784h"
	// +optional
	Interval *metav1.Duration `json:"interval,omitempty"`

	// Channels for which something else holds.
	// +kubebuilder:validation:MaxItems=15
	// +listType=map
	// +listMapKey=name
	// +optional
	Channels []ChannelSampling `json:"channels,omitempty"`

	// ConsumerRequests says what becomes of a FeedConsumer's request for more than is
	// declared here. Allow: of all that is asked for, the largest rate that minInterval
	// permits holds until nobody asks for it any more. Deny: the request is refused. A
	// channel that is Paused stays so.
	// +kubebuilder:default=Deny
	// +optional
	ConsumerRequests ConsumerRequests `json:"consumerRequests,omitempty"`

	// MinInterval is the shortest that consumers may ask for. Default: 1s.
	// At most 8784h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="minInterval must be longer than nothing"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('8784h')",message="minInterval is at most 8784h"
	// +optional
	MinInterval *metav1.Duration `json:"minInterval,omitempty"`
}

// ChannelSampling says how often a channel is to be observed.
type ChannelSampling struct {
	// Name of the channel.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name,omitempty"`

	// State of the channel. Paused: it is not observed.
	// +kubebuilder:default=Observing
	// +optional
	State SamplingState `json:"state,omitempty"`

	// Interval between observations; without it that of spec.sampling.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('8784h')",message="interval is longer than nothing and at most 8784h"
	// +optional
	Interval *metav1.Duration `json:"interval,omitempty"`
}

// SamplingState says whether something is observed.
// +kubebuilder:validation:Enum=Observing;Paused
type SamplingState string

// The values of SamplingState.
const (
	SamplingObserving SamplingState = "Observing"
	SamplingPaused    SamplingState = "Paused"
)

// ConsumerRequests says whether consumers may ask for more than is declared.
// +kubebuilder:validation:Enum=Allow;Deny
type ConsumerRequests string

// The values of ConsumerRequests.
const (
	ConsumerRequestsAllow ConsumerRequests = "Allow"
	ConsumerRequestsDeny  ConsumerRequests = "Deny"
)

// SamplingStatus says what an instrument is asked to do, and what it does.
type SamplingStatus struct {
	// Outcome of what the sender was asked last. Followed: it does that. NotFollowed: it
	// does something else. Absent where no sender takes commands.
	// +optional
	Outcome SamplingOutcome `json:"outcome,omitempty"`

	// Problem is why the sender does not follow.
	// +kubebuilder:validation:MaxLength=200
	// +optional
	Problem string `json:"problem,omitempty"`

	// Channels that are asked for or seen.
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	Channels []ChannelSamplingStatus `json:"channels,omitempty"`
}

// SamplingOutcome says whether a sender does what it was asked.
// +kubebuilder:validation:Enum=Followed;NotFollowed
type SamplingOutcome string

// The values of SamplingOutcome.
const (
	SamplingFollowed    SamplingOutcome = "Followed"
	SamplingNotFollowed SamplingOutcome = "NotFollowed"
)

// ChannelSamplingStatus says of a channel what is asked and what is achieved.
type ChannelSamplingStatus struct {
	// Name of the channel; absent for all that are not named.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Name string `json:"name,omitempty"`

	// State that is asked for.
	// +optional
	State SamplingState `json:"state,omitempty"`

	// Asked is the interval that is asked for; absent where the instrument is left
	// to itself.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('-2562047h') && duration(self) <= duration('2562047h')",message="asked is a duration"
	// +optional
	Asked *metav1.Duration `json:"asked,omitempty"`

	// AskedBy is the FeedConsumer for which it is so short; absent where
	// spec.sampling says so.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	AskedBy string `json:"askedBy,omitempty"`

	// Achieved is the mean interval between the files that the sender saw, or the
	// datagrams that gateways received, or how long ago the last one was where that is
	// far longer; rounded. Absent where nobody measures it.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('-2562047h') && duration(self) <= duration('2562047h')",message="achieved is a duration"
	// +optional
	Achieved *metav1.Duration `json:"achieved,omitempty"`
}

// LinkProbeStatus says how packets fare between the sender and a gateway, as the sender
// measured it over its last minutes, see spec.linkProbe of the IngestGateway. Of several
// senders it is the worst path. Figures are rounded; metrics have them exactly.
type LinkProbeStatus struct {
	// Address that answered.
	// +kubebuilder:validation:MaxLength=300
	// +optional
	Address string `json:"address,omitempty"`

	// RoundTrip is the mean of the time there and back, without what the gateway
	// took to answer. Absent, as the others, where nothing was answered.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('-2562047h') && duration(self) <= duration('2562047h')",message="roundTrip is a duration"
	// +optional
	RoundTrip *metav1.Duration `json:"roundTrip,omitempty"`
	// RoundTripP99 is what 99 of 100 packets did not exceed.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('-2562047h') && duration(self) <= duration('2562047h')",message="roundTripP99 is a duration"
	// +optional
	RoundTripP99 *metav1.Duration `json:"roundTripP99,omitempty"`
	// RoundTripMax is the longest time there and back.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('-2562047h') && duration(self) <= duration('2562047h')",message="roundTripMax is a duration"
	// +optional
	RoundTripMax *metav1.Duration `json:"roundTripMax,omitempty"`

	// JitterOut is the jitter towards the gateway, as in RFC 3550.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('-2562047h') && duration(self) <= duration('2562047h')",message="jitterOut is a duration"
	// +optional
	JitterOut *metav1.Duration `json:"jitterOut,omitempty"`
	// JitterBack is the jitter from the gateway.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('-2562047h') && duration(self) <= duration('2562047h')",message="jitterBack is a duration"
	// +optional
	JitterBack *metav1.Duration `json:"jitterBack,omitempty"`

	// LossPerMille is how many of 1000 packets the sender got no answer to.
	// +required
	LossPerMille int32 `json:"lossPerMille"`
	// LossOutPerMille is how many of 1000 packets did not reach the gateway.
	// +required
	LossOutPerMille int32 `json:"lossOutPerMille"`
	// LossBackPerMille is how many of 1000 packets reached the gateway, whose answer did not
	// reach the sender. What is in LossPerMille and in neither of these two is not known.
	// +required
	LossBackPerMille int32 `json:"lossBackPerMille"`
}
