// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

const (
	// ConditionScalingActive of an IngestGateway or a FeedServer says whether the load is known from which the operator decides how
	// many pods to ask for. Present with driver Operator. While it is not True, as many are asked for as before.
	ConditionScalingActive = "ScalingActive"
	// ConditionScalingLimited of an IngestGateway or a FeedServer is present and True while the ceiling leaves it fewer pods than are
	// asked for, or would leave it fewer than a level of space weather has as its floor.
	ConditionScalingLimited = "ScalingLimited"
	// ConditionHardwareLimited of an IngestGateway or a FeedServer is present and True while the cluster cannot give the pods that there
	// are to be, or could not give those that a level of space weather has as its floor. It is True before pods are Pending if the operator
	// may read nodes, and otherwise once a ResourceQuota is used up or a pod finds no node.
	ConditionHardwareLimited = "HardwareLimited"
	// ConditionGivingWay of a FeedServer is present and True while pods answer some of their clients 503, because a budget of the pod
	// is full and others go first: robots give way to bulk readers, and these to people. What instruments send, and FeedConsumers, never give way.
	ConditionGivingWay = "GivingWay"

	// ReasonLoadKnown: pods report their load.
	ReasonLoadKnown = "LoadKnown"
	// ReasonLoadUnknown: no pod has reported its load yet, or none does any more.
	ReasonLoadUnknown = "LoadUnknown"
	// ReasonAskedAboveCeiling: more pods are asked for than there may be.
	ReasonAskedAboveCeiling = "AskedAboveCeiling"
	// ReasonRescaled is of an event: the operator asks for another number of pods.
	ReasonRescaled = "Rescaled"
	// ReasonFloorAboveCeiling: a level of space weather has a floor above what there may be.
	ReasonFloorAboveCeiling = "FloorAboveCeiling"
	// ReasonPodsDoNotFit: the cluster has no space for pods that there are to be.
	ReasonPodsDoNotFit = "PodsDoNotFit"
	// ReasonFloorDoesNotFit: the cluster has no space for the floor of a level of space weather that does not hold now.
	ReasonFloorDoesNotFit = "FloorDoesNotFit"
	// ReasonBudgetFull: a budget of pods is full.
	ReasonBudgetFull = "BudgetFull"
)

// AutoscalingDriver is who asks for pods.
// +kubebuilder:validation:Enum=Operator;HorizontalPodAutoscaler;External
type AutoscalingDriver string

// The drivers.
const (
	DriverOperator                AutoscalingDriver = "Operator"
	DriverHorizontalPodAutoscaler AutoscalingDriver = "HorizontalPodAutoscaler"
	DriverExternal                AutoscalingDriver = "External"
)

// Autoscaling says who asks for the pods of a pool, and between which numbers. Every driver asks in spec.replicas, through the
// subresource /scale: leave spec.replicas out of manifests then. There are as many pods as are asked for, but not fewer than the
// floor, which is minReplicas or that of a level of space weather, and not more than the ceiling, maxReplicas at most.
// +kubebuilder:validation:XValidation:rule="self.minReplicas <= self.maxReplicas",message="minReplicas must not exceed maxReplicas",fieldPath=.minReplicas
// +kubebuilder:validation:XValidation:rule="self.driver == 'Operator' || !has(self.operator)",message="operator is of driver Operator",reason=FieldValueForbidden,fieldPath=.operator
type Autoscaling struct {
	// Driver: with Operator the operator itself asks, from what the pods report of their load each second. With
	// HorizontalPodAutoscaler one does that targets this resource; with External something else does, such as KEDA
	// or `kubectl scale`.
	// +required
	Driver AutoscalingDriver `json:"driver,omitempty"`

	// MinReplicas is how many pods there are at least.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=1
	// +optional
	MinReplicas int32 `json:"minReplicas,omitempty"`

	// MaxReplicas is how many pods there are at most, whatever asks for more: a level of space weather, too. Pods of an
	// IngestGateway that have something in their spools stay all the same.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +required
	MaxReplicas int32 `json:"maxReplicas,omitempty"`

	// Operator says how the operator decides, with driver Operator.
	// +optional
	Operator OperatorAutoscaling `json:"operator,omitzero"`
}

// OperatorAutoscaling says how the operator decides how many pods to ask for.
// +kubebuilder:validation:MinProperties=1
type OperatorAutoscaling struct {
	// TargetUtilizationPercentage is how full the fullest budget of pods is to be on the average. Default: 70.
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=90
	// +optional
	TargetUtilizationPercentage int32 `json:"targetUtilizationPercentage,omitempty"`

	// ScaleDownDelay is for how long fewer pods have to be enough before there are fewer, 0s to 24h. Default: 5m.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="scaleDownDelay is 0s to 24h"
	// +optional
	ScaleDownDelay *metav1.Duration `json:"scaleDownDelay,omitempty"`
}

// AutoscalingStatus says how many pods a pool is to have, and what that follows from: as many as are asked for, not fewer than the
// floor, not more than the ceiling, and not fewer than are held.
type AutoscalingStatus struct {
	// Replicas is how many pods there are to be.
	// +kubebuilder:validation:Minimum=0
	// +required
	Replicas *int32 `json:"replicas,omitempty"`
	// Message says which of the four numbers decided that, in a sentence.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +required
	Message string `json:"message,omitempty"`
	// Asked is how many pods a driver asks for, or the manifest does: spec.replicas.
	// +required
	Asked ReplicaCount `json:"asked,omitzero"`
	// Floor is how many pods there are at least: minReplicas, or the floor of a level of space weather, whichever is more.
	// +required
	Floor ReplicaCount `json:"floor,omitzero"`
	// Ceiling is how many pods there may be: maxReplicas, or what the cluster can give, whichever is less.
	// +required
	Ceiling ReplicaCount `json:"ceiling,omitzero"`
	// Held is how many pods have to stay, whatever is asked for: those with something in their spools; and those that there are already,
	// where the cluster has space for fewer: a ceiling adds no pod, and takes none away. Pods of feed servers tell their clients to
	// move to another one before they go, and hold nothing.
	// +required
	Held ReplicaCount `json:"held,omitzero"`
}

// ReplicaCount is a number of pods, and why it is this one.
type ReplicaCount struct {
	// Replicas is the number.
	// +kubebuilder:validation:Minimum=0
	// +required
	Replicas *int32 `json:"replicas,omitempty"`
	// Message says why, in a sentence. Of a load, it is brought up to date every ten minutes: metrics are exact.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +required
	Message string `json:"message,omitempty"`
}
