// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TLSMode says whether bytes of a listener are encrypted, and who shows a certificate.
// +kubebuilder:validation:Enum=None;Server;Mutual
type TLSMode string

// The values of TLSMode.
const (
	TLSNone   TLSMode = "None"
	TLSServer TLSMode = "Server"
	TLSMutual TLSMode = "Mutual"
)

// ClientCertificate says which certificates an instrument, or a reader, shows.
type ClientCertificate struct {
	// Names, one of which the certificate must have: as a DNS name or URI among its subject
	// alternative names, or as the common name of its subject. Names are compared as they
	// are written: a wildcard matches no other name.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	// +required
	Names []string `json:"names,omitempty"`
}

// SecretKeyReference names a key of a Secret in the same namespace.
// +kubebuilder:object:generate=false
type SecretKeyReference struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +required
	Name string `json:"name,omitempty"`

	// Key of the Secret's data.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	// +required
	Key string `json:"key,omitempty"`
}

// GatewayEdge is a port for a proxy that tells who it speaks for by the PROXY
// protocol, version 2. The destination port and the source in its header select
// the listener, and TLS is the gateway's.
type GatewayEdge struct {
	// Port of the gateway, outside spec.ports. What comes there without a header
	// of version 2 is refused.
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	// +required
	Port int32 `json:"port,omitempty"`

	// Sources are the addresses of the proxies, as CIDRs; others are refused.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="a source is a CIDR such as 192.0.2.7/32"
	// +kubebuilder:validation:items:MaxLength=64
	// +listType=set
	// +required
	Sources []string `json:"sources,omitempty"`
}

// Quarantine bounds what is kept of unknown senders.
type Quarantine struct {
	// MaxSize of what each gateway pod keeps. The oldest stay: what comes beyond is
	// refused and counted. At most 1Pi.
	// +kubebuilder:default="1Gi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || !quantity(string(self)).isLessThan(quantity('1Mi'))",message="quarantine.maxSize is at least 1Mi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || !quantity(string(self)).isGreaterThan(quantity('1Pi'))",message="maxSize is at most 1Pi"
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('e|E')",message="write digits and a unit, such as 64Mi, and no exponent"
	// +optional
	MaxSize resource.Quantity `json:"maxSize,omitzero"`

	// Retention is how long it is kept. At most 8784h.
	// +kubebuilder:default="168h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="quarantine.retention must be longer than nothing"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('8784h')",message="quarantine.retention is at most 8784h"
	// +optional
	Retention metav1.Duration `json:"retention,omitzero"`

	// Ports of spec.ports that are open to unknown senders even where no
	// Instrument names them, over TCP and UDP.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=65535
	// +listType=set
	// +optional
	Ports []int32 `json:"ports,omitempty"`
}
