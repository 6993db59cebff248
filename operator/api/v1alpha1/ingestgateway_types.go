// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionProgrammed is True once every ready gateway pod runs the registry
// revision that holds the resource's latest generation.
const ConditionProgrammed = "Programmed"

const (
	// ConditionScaleDownHeld of an IngestGateway is present and True while pods
	// stay that spec.replicas no longer asks for: their spools are not empty.
	ConditionScaleDownHeld = "ScaleDownHeld"
	// ConditionSpoolStranded of an IngestGateway is present and True while objects
	// that were receipted lie on the volume of a pod that does not report.
	ConditionSpoolStranded = "SpoolStranded"
	// ConditionSpoolQuarantined of an IngestGateway is present and True while a pod's
	// volume has files in quarantine: what was received and cannot be archived.
	ConditionSpoolQuarantined = "SpoolQuarantined"

	// ReasonSpoolNotEmpty: a pod that is to stop has something to drain.
	ReasonSpoolNotEmpty = "SpoolNotEmpty"
	// ReasonSpoolUnknown: nobody knows what the spool of such a pod holds.
	ReasonSpoolUnknown = "SpoolUnknown"
	// ReasonPodSilent: a pod with objects in its spool has ceased to report.
	ReasonPodSilent = "PodSilent"
	// ReasonRecordsKeptApart: records of a spool are damaged, or the store refused them.
	ReasonRecordsKeptApart = "RecordsKeptApart"
)

// IngestGatewaySpec declares a pool of gateway pods, which receive for a Site.
// +kubebuilder:validation:XValidation:rule="self.service.type != 'NodePort' || (self.ports.first >= 30000 && self.ports.last <= 32767)",message="with service.type NodePort the port range must lie within 30000-32767: senders use the same port on every node",fieldPath=.ports
// +kubebuilder:validation:XValidation:rule="!has(self.edge) || self.edge.port < self.ports.first || self.edge.port > self.ports.last",message="edge.port must lie outside spec.ports: those are for senders without a PROXY header",fieldPath=.edge.port
// +kubebuilder:validation:XValidation:rule="!has(self.edge) || !(self.edge.port in [8080, 8443, 8444])",message="edge.port must be none of 8080, the gateway's health and metrics, 8443, copies of spools, and 8444, what mirrors pull",fieldPath=.edge.port
// +kubebuilder:validation:XValidation:rule="[8080, 8443, 8444].all(p, p < self.ports.first || p > self.ports.last)",message="ports must hold none of 8080, the gateway's health and metrics, 8443, copies of spools, and 8444, what mirrors pull",fieldPath=.ports
// +kubebuilder:validation:XValidation:rule="!has(self.linkProbe) || self.linkProbe.port < self.ports.first || self.linkProbe.port > self.ports.last",message="linkProbe.port must lie outside spec.ports: those are for data",fieldPath=.linkProbe.port
// +kubebuilder:validation:XValidation:rule="!has(self.linkProbe) || self.service.type != 'NodePort' || (self.linkProbe.port >= 30000 && self.linkProbe.port <= 32767)",message="with service.type NodePort linkProbe.port must lie within 30000-32767: senders use the same port on every node",fieldPath=.linkProbe.port
// +kubebuilder:validation:XValidation:rule="!has(self.quarantine) || self.unknownSenders == 'Quarantine'",message="quarantine needs unknownSenders Quarantine",reason=FieldValueForbidden,fieldPath=.quarantine
// +kubebuilder:validation:XValidation:rule="!has(self.quarantine) || !has(self.quarantine.ports) || self.quarantine.ports.all(p, p >= self.ports.first && p <= self.ports.last)",message="quarantine.ports must lie within spec.ports",fieldPath=.quarantine.ports
type IngestGatewaySpec struct {
	// SiteRef names the Site that the pool receives for.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="siteRef is immutable: a pool's volumes belong to one Site"
	// +required
	SiteRef LocalReference `json:"siteRef,omitzero"`

	// Replicas is how many pods are asked for. A pod stays until its spool is
	// empty; the condition ScaleDownHeld says which and why. Leave it out where autoscaling is set: its driver
	// writes it.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=1
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// Autoscaling says who asks for pods, and how many there may be. Default: as many as replicas says, or the floor of a level
	// of space weather, whichever is more.
	// +optional
	Autoscaling Autoscaling `json:"autoscaling,omitzero"`

	// Datapath for datagrams. Auto takes the best that the nodes offer; so far
	// that is the kernel's sockets.
	// +kubebuilder:default=Auto
	// +optional
	Datapath Datapath `json:"datapath,omitempty"`

	// Ports is the range from which Instruments take their ports. All of it
	// stands in the Service from the beginning, so a new port needs no change there.
	// +kubebuilder:default={first: 30100, last: 30149}
	// +optional
	Ports PortRange `json:"ports,omitzero"`

	// Service says how senders reach the pool.
	// +kubebuilder:default={}
	// +optional
	Service GatewayService `json:"service,omitzero"`

	// TLS is the pool's certificate, for listeners with tlsMode Server or Mutual. A renewed one is taken
	// within two minutes, without a restart; connections that are open go on. caSecretRef
	// are the authorities that sign the certificates of instruments: listeners with
	// tlsMode Mutual need it.
	// +kubebuilder:validation:XValidation:rule="has(self.certificateSecretRef)",message="a server has a certificate: name its Secret in tls.certificateSecretRef",reason=FieldValueRequired,fieldPath=.certificateSecretRef
	// +optional
	TLS *TLS `json:"tls,omitempty"`

	// Edge is a port for a proxy in front of the pool.
	// +optional
	Edge *GatewayEdge `json:"edge,omitempty"`

	// LinkProbe opens a UDP port that answers senders who measure the link to the pool
	// (STAMP, RFC 8762): substorm send --link-probe. It answers the addresses that
	// Instruments name as sources, and those from which a sender reports.
	// +optional
	LinkProbe *GatewayLinkProbe `json:"linkProbe,omitempty"`

	// UnknownSenders says what becomes of data from an address that no
	// Instrument names. Refuse: it is refused and counted. Quarantine: what comes
	// over plain TCP and UDP is kept apart, bounded and unpublished, until
	// `substorm adopt` gives it to an Instrument or it is too old.
	// +kubebuilder:default=Refuse
	// +optional
	UnknownSenders UnknownSenders `json:"unknownSenders,omitempty"`

	// Quarantine bounds what is kept of unknown senders.
	// +optional
	Quarantine *Quarantine `json:"quarantine,omitempty"`

	// Memory bounds what received and not yet stored data may occupy.
	// +kubebuilder:default={}
	// +optional
	Memory GatewayMemory `json:"memory,omitzero"`

	// Storage is each pod's volume: scratch for large objects, the registry
	// last seen, counters that survive a kill. It never changes: volumes outlive
	// the pool.
	// +kubebuilder:default={}
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="storage is immutable: resize the volumes themselves, or make another IngestGateway"
	// +optional
	Storage GatewayStorage `json:"storage,omitzero"`

	// DrainTimeout is how long a pod that is told to stop may finish what it began.
	// 1s to 24h.
	// +kubebuilder:default="60s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="drainTimeout is 1s to 24h"
	// +optional
	DrainTimeout metav1.Duration `json:"drainTimeout,omitzero"`

	// PodTemplate says how the gateway pods run: where, with which resources and image.
	// +optional
	PodTemplate PodTemplate `json:"podTemplate,omitzero"`
}

// Datapath is how datagrams are read.
// +kubebuilder:validation:Enum=Auto;Kernel
type Datapath string

// The values of Datapath.
const (
	DatapathAuto   Datapath = "Auto"
	DatapathKernel Datapath = "Kernel"
)

// PortRange is a range of TCP and UDP ports, both ends included.
// +kubebuilder:validation:XValidation:rule="self.first <= self.last && self.last - self.first < 256",message="first must not exceed last, and a range holds at most 256 ports",fieldPath=.last
// +kubebuilder:object:generate=false
type PortRange struct {
	// First port of the range.
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	// +required
	First int32 `json:"first,omitempty"`
	// Last port of the range.
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	// +required
	Last int32 `json:"last,omitempty"`
}

// GatewayService says how senders reach a pool.
type GatewayService struct {
	// Type of the Services. With NodePort, a port is the same number on every
	// node that runs a gateway pod.
	// +kubebuilder:validation:Enum=NodePort;LoadBalancer;ClusterIP
	// +kubebuilder:default=NodePort
	// +optional
	Type corev1.ServiceType `json:"type,omitempty"`

	// Annotations for the Services, as a load balancer may need.
	// +optional
	Annotations Annotations `json:"annotations,omitempty"`
}

// GatewayLinkProbe is the port on which the link to a pool is measured.
// +kubebuilder:object:generate=false
type GatewayLinkProbe struct {
	// Port over UDP, outside spec.ports. With service.type NodePort, which is the default, it
	// lies within 30000-32767: set it there.
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:default=8862
	// +optional
	Port int32 `json:"port,omitempty"`
}

// UnknownSenders says what becomes of data that no Instrument claims.
// +kubebuilder:validation:Enum=Refuse;Quarantine
type UnknownSenders string

// The values of UnknownSenders.
const (
	UnknownSendersRefuse     UnknownSenders = "Refuse"
	UnknownSendersQuarantine UnknownSenders = "Quarantine"
)

// GatewayMemory bounds received data in memory.
type GatewayMemory struct {
	// Budget in bytes for received and not yet stored data. Default: half of
	// the memory limit in podTemplate.resources. At most 1Pi.
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || !quantity(string(self)).isLessThan(quantity('4Mi'))",message="a memory budget is at least 4Mi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || !quantity(string(self)).isGreaterThan(quantity('1Pi'))",message="budget is at most 1Pi"
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('e|E')",message="write digits and a unit, such as 64Mi, and no exponent"
	// +optional
	Budget *resource.Quantity `json:"budget,omitempty"`
}

// GatewayStorage is the volume of a gateway pod.
type GatewayStorage struct {
	// Size of the volume. At most 1Pi.
	// +kubebuilder:default="10Gi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || !quantity(string(self)).isLessThan(quantity('64Mi'))",message="a gateway's volume has at least 64Mi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || !quantity(string(self)).isGreaterThan(quantity('1Pi'))",message="size is at most 1Pi"
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('e|E')",message="write digits and a unit, such as 64Mi, and no exponent"
	// +optional
	Size resource.Quantity `json:"size,omitzero"`
	// StorageClassName of the volume; the cluster's default where unset.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`
}

// IngestGatewayStatus answers: how many pods, doing what, since which revision?
type IngestGatewayStatus struct {
	// ObservedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: Ready, Accepted, Programmed, Reconciling, Stalled, ScalingActive, ScalingLimited, ScaleDownHeld,
	// SpoolStranded, SpoolQuarantined, HardwareLimited, and NotApplied where substorm up runs the Site.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Replicas is the number of pods that exist.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// ReadyReplicas is the number of pods that receive.
	// +optional
	ReadyReplicas *int32 `json:"readyReplicas,omitempty"`

	// Selector of the pods, for /scale.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Selector string `json:"selector,omitempty"`

	// Autoscaling is how many pods there are to be, and why; absent where substorm up runs the Site.
	// +optional
	Autoscaling AutoscalingStatus `json:"autoscaling,omitzero"`

	// Datapath is how datagrams are really read.
	// +optional
	Datapath Datapath `json:"datapath,omitempty"`

	// RegistryRevision is the oldest registry revision that a ready pod runs.
	// +optional
	RegistryRevision int64 `json:"registryRevision,omitempty"`

	// Spool is what waits on the pods' volumes for the object store or
	// JetStream; absent where nothing has waited for a minute.
	// +optional
	Spool *IngestGatewaySpool `json:"spool,omitempty"`

	// Credentials are the NATS credentials that the pods have; absent where the
	// Site gives the operator no account key.
	// +optional
	Credentials *CredentialsStatus `json:"credentials,omitempty"`
}

// IngestGatewaySpool says what is receipted and not yet archived.
type IngestGatewaySpool struct {
	// ObjectCount is how many objects wait, at all pods that report.
	// +required
	ObjectCount int64 `json:"objectCount"`

	// Bytes of those objects.
	// +required
	Bytes int64 `json:"bytes"`

	// OldestTime is when the oldest of them was received.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +required
	OldestTime metav1.Time `json:"oldestTime"`
}

// IngestGateway is a pool of gateway pods: they receive what Instruments send,
// archive it and announce it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:categories=substorm,shortName=igw
// +kubebuilder:selectablefield:JSONPath=`.spec.siteRef.name`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 40",message="an IngestGateway's name is a DNS label of at most 40 characters: pods and volumes append to it"
// +kubebuilder:printcolumn:name="Site",type=string,JSONPath=`.spec.siteRef.name`,description="Site the pool receives for"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True once all pods receive"
// +kubebuilder:printcolumn:name="Pods",type=integer,JSONPath=`.status.readyReplicas`,description="Pods that receive"
// +kubebuilder:printcolumn:name="Asked",type=integer,JSONPath=`.spec.replicas`,description="Pods asked for"
// +kubebuilder:printcolumn:name="Floor",type=integer,JSONPath=`.status.autoscaling.floor.replicas`,description="Pods that there are at least"
// +kubebuilder:printcolumn:name="Ceiling",type=integer,JSONPath=`.status.autoscaling.ceiling.replicas`,description="Pods that there may be"
// +kubebuilder:printcolumn:name="Datapath",type=string,priority=1,JSONPath=`.status.datapath`,description="How datagrams are really read"
// +kubebuilder:printcolumn:name="Spooled",type=integer,JSONPath=`.status.spool.objectCount`,description="Objects that are receipted and wait for the object store or JetStream"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why Ready has its value"
// +kubebuilder:printcolumn:name="Scale",type=string,priority=1,JSONPath=`.status.autoscaling.message`,description="Why there are to be as many pods"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What Ready says, and what to do"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
type IngestGateway struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what you declare.
	// +required
	Spec IngestGatewaySpec `json:"spec,omitzero"`
	// The default of status: kstatus takes an IngestGateway that no operator has seen for one in progress, not for ready.

	// Status is what the operator found: nobody else writes it.
	// +kubebuilder:default={"observedGeneration":-1}
	// +optional
	Status IngestGatewayStatus `json:"status,omitzero"`
}

// IngestGatewayList is a list of IngestGateways.
//
// +kubebuilder:object:root=true
type IngestGatewayList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IngestGateway `json:"items"`
}
