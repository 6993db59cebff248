// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Way is one way in. Type says which of the members is set.
// +kubebuilder:validation:XValidation:rule="(self.type == 'TCP') == has(self.tcp)",message="tcp is set exactly when type is TCP"
// +kubebuilder:validation:XValidation:rule="(self.type == 'UDP') == has(self.udp)",message="udp is set exactly when type is UDP"
type Way struct {
	// Type of the way: TCP for objects, UDP for datagrams.
	// +required
	Type WayType `json:"type"`

	// Sources are the addresses that the instrument sends from, as CIDRs
	// ("192.0.2.7/32", "2001:db8::/64"). Default: any. Two instruments may
	// share a port where no address belongs to both.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="a source is a CIDR such as 192.0.2.7/32"
	// +kubebuilder:validation:items:MaxLength=64
	// +listType=set
	// +optional
	Sources []string `json:"sources,omitempty"`

	// TCP: each connection carries objects.
	// +optional
	TCP *TCPWay `json:"tcp,omitempty"`

	// UDP: each packet is a datagram of telemetry.
	// +optional
	UDP *UDPWay `json:"udp,omitempty"`
}

// WayType is the protocol of a way in.
// +kubebuilder:validation:Enum=TCP;UDP
type WayType string

// The values of WayType.
const (
	WayTCP WayType = "TCP"
	WayUDP WayType = "UDP"
)

// TCPWay receives objects over raw TCP. Bytes on this way are plain.
type TCPWay struct {
	// Port of the gateway, within the IngestGateway's range.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +required
	Port int32 `json:"port"`

	// Framing says where an object ends. UntilClose: all bytes until the
	// sender closes its side are one object.
	// +kubebuilder:default=UntilClose
	// +optional
	Framing Framing `json:"framing,omitempty"`

	// Receipt for each object. Line: one line of text, then close. Close: the
	// close alone, for a sender that cannot bear a line; such a sender cannot
	// tell a receipt from a failure.
	// +kubebuilder:default=Line
	// +optional
	Receipt Receipt `json:"receipt,omitempty"`

	// IdleTimeout ends a connection on which nothing arrives.
	// +kubebuilder:default="60s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="idleTimeout must be longer than nothing"
	// +optional
	IdleTimeout metav1.Duration `json:"idleTimeout,omitzero"`

	// MaxAge ends a connection that is older.
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="maxAge must be longer than nothing"
	// +optional
	MaxAge metav1.Duration `json:"maxAge,omitzero"`
}

// Framing of objects on a TCP connection.
// +kubebuilder:validation:Enum=UntilClose
type Framing string

// FramingUntilClose: the bytes until half-close are one object.
const FramingUntilClose Framing = "UntilClose"

// Receipt is the word from which the sender may forget what it sent.
// +kubebuilder:validation:Enum=Line;Close
type Receipt string

// The values of Receipt.
const (
	ReceiptLine  Receipt = "Line"
	ReceiptClose Receipt = "Close"
)

// UDPWay receives telemetry. Bytes on this way are plain.
type UDPWay struct {
	// Port of the gateway, within the IngestGateway's range.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +required
	Port int32 `json:"port"`

	// Channel that the datagrams belong to.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:default=raw
	// +optional
	Channel string `json:"channel,omitempty"`
}

// WayAddress is an address to send to.
type WayAddress struct {
	// Type of the way.
	// +required
	Type WayType `json:"type"`
	// Address as host:port.
	// +required
	Address string `json:"address"`
}
