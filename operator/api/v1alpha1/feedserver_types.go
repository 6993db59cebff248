// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultFeedServerReplicas is how many pods a FeedServer has that does not say it.
const DefaultFeedServerReplicas = 2

// FeedServerSpec declares a pool of feed servers: the read path of a Site.
type FeedServerSpec struct {
	// SiteRef names the Site whose Feeds and archive the feed servers serve. It never
	// changes. A Site may have several FeedServers: one for everybody and one for the
	// institute's own network, say.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="siteRef is immutable: make another FeedServer for another Site"
	// +required
	SiteRef LocalReference `json:"siteRef,omitzero"`

	// Replicas is how many pods are asked for. They are interchangeable: with two, the
	// clients of one that is gone go on at the other. Leave it out where autoscaling is set, or something else
	// scales, such as `kubectl scale`.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=64
	// +kubebuilder:default=2
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// Autoscaling says who asks for pods, and how many there may be. Default: as many as replicas says, or the floor of a level
	// of space weather, whichever is more.
	// +kubebuilder:validation:XValidation:rule="self.maxReplicas <= 64",message="a FeedServer has 64 pods at most: lower maxReplicas",fieldPath=.maxReplicas
	// +optional
	Autoscaling Autoscaling `json:"autoscaling,omitzero"`

	// URL at which others reach the feed servers, https://archive.example.org: what
	// sitemaps, notifications and the Secrets of FeedConsumers name. Without it links name
	// what a request was sent to.
	// +kubebuilder:validation:Pattern=`^https?://[^/?#]+$`
	// +kubebuilder:validation:MaxLength=256
	// +optional
	URL string `json:"url,omitempty"`

	// Proxies are the addresses, as CIDRs, of proxies in front of the feed servers:
	// what they say about a client's address is believed (X-Forwarded-For).
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="a CIDR, such as 10.0.0.0/8"
	// +listType=set
	// +optional
	Proxies []string `json:"proxies,omitempty"`

	// Limits on how often one client may ask for something of the archive. Each replica
	// counts by itself.
	// +optional
	Limits RequestLimits `json:"limits,omitzero"`

	// TLS is the certificate of the feed servers, as cert-manager makes them. With it they listen
	// on port 8443 over TLS; without it on port 8080 in plain text, which is for behind an edge
	// that has a certificate. caSecretRef are the authorities that sign the certificates of
	// readers. With it a client may show a certificate: one that bears a name of one of the Site's
	// readers makes its client that reader, and one that another authority signed is refused.
	// Clients without a certificate are served, too.
	// +kubebuilder:validation:XValidation:rule="has(self.certificateSecretRef)",message="a server has a certificate: name its Secret in tls.certificateSecretRef",reason=FieldValueRequired,fieldPath=.certificateSecretRef
	// +optional
	TLS *TLS `json:"tls,omitempty"`

	// Rsync has the feed servers serve what everybody may read of the archive to rsync, too, at
	// a port of its own: rsync://HOST/CODE/, CODE being spec.code of the Site. Readers cannot show
	// tokens there, and rsync's protocol encrypts nothing. Without it there is no such port.
	// +optional
	Rsync *FeedServerRsync `json:"rsync,omitempty"`

	// Service by which consumers reach the feed servers.
	// +kubebuilder:default={}
	// +optional
	Service FeedServerService `json:"service,omitzero"`

	// PodTemplate says how the feed servers run: where, with which resources and image.
	// Memory bounds how many connections a pod takes.
	// +optional
	PodTemplate PodTemplate `json:"podTemplate,omitzero"`
}

// FeedServerRsync is the anonymous service for rsync: read only, and of rsync 3.0.0 and newer.
type FeedServerRsync struct {
	// Port of the Service at which clients connect. Pods listen at the same, or at 8873 where
	// it is below 1024, as they have no rights to such a port.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:validation:XValidation:rule="!(self in [80, 443, 8080, 8443, 9090])",message="feed servers listen at 80, 443, 8080, 8443 and 9090 for others: choose another port"
	// +kubebuilder:default=873
	// +optional
	Port int32 `json:"port,omitempty"`

	// Window is how far back the module reaches, by time of receipt: what was received before is
	// not in it. Default: 1440h, which is 60 days.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1h') && duration(self) <= duration('87840h')",message="window is 1h to 87840h"
	// +optional
	Window *metav1.Duration `json:"window,omitempty"`

	// Limits on what rsync's clients take together. How often one of them may connect is said in
	// spec.limits.robot: a transfer counts as one request.
	// +optional
	Limits RsyncLimits `json:"limits,omitzero"`
}

// RsyncLimits bound the transfers of rsync.
type RsyncLimits struct {
	// MaxTransfers is how many transfers each replica has at a time, at most: one address has
	// half of them, and more are told to come again. Default: as many as fit in the memory that
	// rsync has, five in a pod of 1Gi; at least two.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	MaxTransfers int32 `json:"maxTransfers,omitempty"`
}

// RequestLimits say how often one client may ask, by its class: a client is a reader at
// an address (of IPv6, at a network of 64 bits).
type RequestLimits struct {
	// Person is whoever looks with a browser. Default: 200 requests a second, a burst of
	// 2000.
	// +optional
	Person RequestRate `json:"person,omitzero"`

	// Robot is a program that fetches, a partner's mirror too. Default: 100 requests a
	// second, a burst of 1000.
	// +optional
	Robot RequestRate `json:"robot,omitzero"`
}

// RequestRate bounds the requests of one client. What comes a little too early waits for
// its turn; what comes far too early is answered 429 with Retry-After.
type RequestRate struct {
	// RequestsPerSecond is how many requests it may make on the average.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	RequestsPerSecond *int32 `json:"requestsPerSecond,omitempty"`

	// Burst is how many it may make at once, after it made none for a while.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	Burst *int32 `json:"burst,omitempty"`
}

// FeedServerService is the Service of the feed servers.
type FeedServerService struct {
	// Type of the Service.
	// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer
	// +kubebuilder:default=ClusterIP
	// +optional
	Type corev1.ServiceType `json:"type,omitempty"`

	// Annotations of the Service, for load balancers.
	// +optional
	Annotations Annotations `json:"annotations,omitempty"`
}

// FeedServerStatus answers: how many pods serve, where, and whom?
type FeedServerStatus struct {
	// ObservedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: Ready, Accepted, Reconciling, Stalled, ScalingActive, ScalingLimited, HardwareLimited, GivingWay, and
	// NotApplied where substorm up runs the Site.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Replicas is the number of pods that exist.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// ReadyReplicas is the number of pods that serve.
	// +optional
	ReadyReplicas *int32 `json:"readyReplicas,omitempty"`

	// Selector of the pods, for /scale.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Selector string `json:"selector,omitempty"`

	// Autoscaling is how many pods there are to be, and why; absent where substorm up runs the Site.
	// +optional
	Autoscaling AutoscalingStatus `json:"autoscaling,omitzero"`

	// URL at which clients reach the feed servers: spec.url, else the address of the load
	// balancer, else that of the Service inside the cluster.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	URL string `json:"url,omitempty"`

	// ConnectionCount is how many live connections of consumers are open at the pods that
	// report. What follows is brought up to date every ten minutes; metrics are exact.
	// +optional
	ConnectionCount *int32 `json:"connectionCount,omitempty"`

	// ConsumerCount is how many FeedConsumers have such a connection, or are served over
	// NATS by these pods: all pods of all FeedServers of a Site share those out.
	// +optional
	ConsumerCount *int32 `json:"consumerCount,omitempty"`

	// EventStreamCount is how many event streams of the archive are open: pages that show
	// what is new, and programs that wait for it.
	// +optional
	EventStreamCount *int32 `json:"eventStreamCount,omitempty"`

	// BytesPerSecond is what the pods sent to consumers and readers together, on the
	// average of the last minute.
	// +optional
	BytesPerSecond *int64 `json:"bytesPerSecond,omitempty"`

	// Credentials are the NATS credentials that the pods have; absent where the Site gives
	// the operator no account key.
	// +optional
	Credentials *CredentialsStatus `json:"credentials,omitempty"`
}

// FeedServer is a pool of feed servers: they serve a Site's Feeds to their consumers, and
// its archive to readers. Without one no FeedConsumer is Ready.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:categories=substorm,shortName=fsrv
// +kubebuilder:selectablefield:JSONPath=.spec.siteRef.name
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 40",message="a FeedServer's name is a DNS label of at most 40 characters: the names of its objects append to it"
// +kubebuilder:printcolumn:name="Site",type=string,JSONPath=`.spec.siteRef.name`,description="Site whose Feeds and archive are served"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True once all pods serve"
// +kubebuilder:printcolumn:name="Pods",type=integer,JSONPath=`.status.readyReplicas`,description="Pods that serve"
// +kubebuilder:printcolumn:name="Asked",type=integer,JSONPath=`.spec.replicas`,description="Pods asked for"
// +kubebuilder:printcolumn:name="Floor",type=integer,JSONPath=`.status.autoscaling.floor.replicas`,description="Pods that there are at least"
// +kubebuilder:printcolumn:name="Ceiling",type=integer,JSONPath=`.status.autoscaling.ceiling.replicas`,description="Pods that there may be"
// +kubebuilder:printcolumn:name="Connections",type=integer,JSONPath=`.status.connectionCount`,description="Live connections of consumers that are open"
// +kubebuilder:printcolumn:name="Consumers",type=integer,JSONPath=`.status.consumerCount`,description="FeedConsumers that are connected, or served over NATS"
// +kubebuilder:printcolumn:name="URL",type=string,priority=1,JSONPath=`.status.url`,description="Where clients reach it"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why Ready has its value"
// +kubebuilder:printcolumn:name="Scale",type=string,priority=1,JSONPath=`.status.autoscaling.message`,description="Why there are to be as many pods"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What Ready says, and what to do"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
type FeedServer struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what you declare.
	// +required
	Spec FeedServerSpec `json:"spec,omitzero"`
	// The default of status: kstatus takes a FeedServer that no operator has seen for one in progress, not for ready.

	// Status is what the operator found: nobody else writes it.
	// +kubebuilder:default={"observedGeneration":-1}
	// +optional
	Status FeedServerStatus `json:"status,omitzero"`
}

// FeedServerList is a list of FeedServers.
//
// +kubebuilder:object:root=true
type FeedServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []FeedServer `json:"items"`
}
