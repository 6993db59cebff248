// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Listener is a port, or a path of HTTP, to which the instrument sends. Protocol says which of
// the members tcp, udp and http may be set; where that one is left out, its defaults hold.
// +kubebuilder:validation:XValidation:rule="!has(self.tcp) || self.protocol == 'TCP'",message="tcp is of listeners with protocol TCP",reason=FieldValueForbidden,fieldPath=".tcp"
// +kubebuilder:validation:XValidation:rule="!has(self.udp) || self.protocol == 'UDP'",message="udp is of listeners with protocol UDP",reason=FieldValueForbidden,fieldPath=".udp"
// +kubebuilder:validation:XValidation:rule="!has(self.http) || self.protocol == 'HTTP'",message="http is of listeners with protocol HTTP",reason=FieldValueForbidden,fieldPath=".http"
// +kubebuilder:validation:XValidation:rule="!has(self.clientCertificate) || has(self.tcp) && has(self.tcp.tlsMode) && self.tcp.tlsMode == 'Mutual' || has(self.http) && has(self.http.tlsMode) && self.http.tlsMode == 'Mutual'",message="clientCertificate needs a listener with tlsMode Mutual: only there a sender shows a certificate",reason=FieldValueForbidden,fieldPath=".clientCertificate"
// +kubebuilder:validation:XValidation:rule="!has(self.tokenSecretKeyRef) || has(self.http) && has(self.http.tlsMode) && self.http.tlsMode != 'None'",message="tokenSecretKeyRef needs a listener with protocol HTTP and tlsMode Server or Mutual: elsewhere a sender cannot show a token, or anyone could read it",reason=FieldValueForbidden,fieldPath=".tokenSecretKeyRef"
type Listener struct {
	// Name of the listener, which status and messages call it by: frames, telemetry.
	// Under another name it is another listener.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name,omitempty"`

	// Protocol. TCP: each connection carries objects. UDP: each packet is a datagram of
	// telemetry. HTTP: requests below /in/<instrument>/ carry objects.
	// +required
	Protocol ListenerProtocol `json:"protocol,omitempty"`

	// Port of the gateway, within the IngestGateway's range. A port of protocol HTTP may be
	// shared by any number of instruments, and not with a listener with protocol TCP.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +required
	Port int32 `json:"port,omitempty"`

	// Sources are the addresses that the instrument sends from, as CIDRs
	// ("192.0.2.7/32", "2001:db8::/64"). Default: any. Two instruments may share a port
	// where something tells them apart: their sources have no address in common, over TCP
	// also their certificates no name, and over HTTP the paths name the instruments.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="a source is a CIDR such as 192.0.2.7/32"
	// +kubebuilder:validation:items:MaxLength=64
	// +listType=set
	// +optional
	Sources []string `json:"sources,omitempty"`

	// ClientCertificate that the instrument shows, beside coming from one of the
	// sources: all that is declared must hold.
	// +optional
	ClientCertificate *ClientCertificate `json:"clientCertificate,omitempty"`

	// TokenSecretKeyRef names what the instrument shows as a bearer token, beside
	// all else that is declared: at least 16 characters. Of a value with several
	// lines each is a token, so that one can be replaced while the old one is
	// still in use. Gateways know tokens as salted hashes only. Where the Secret
	// or its key is gone, none is taken any more. The Secret has the label
	// substorm.dev/tokens with the value "true": others are not read.
	// +optional
	TokenSecretKeyRef *SecretKeyReference `json:"tokenSecretKeyRef,omitempty"`

	// TCP says how objects come over connections. Default: without TLS, and all bytes until
	// the sender closes its side are one object.
	// +optional
	TCP *TCPListener `json:"tcp,omitempty"`

	// UDP says what datagrams are. Default: those of the channel raw.
	// +optional
	UDP *UDPListener `json:"udp,omitempty"`

	// HTTP says how requests are served. Default: plain HTTP.
	// +optional
	HTTP *HTTPListener `json:"http,omitempty"`
}

// ListenerProtocol is the protocol of a listener.
// +kubebuilder:validation:Enum=TCP;UDP;HTTP
type ListenerProtocol string

// The values of ListenerProtocol.
const (
	ListenerTCP  ListenerProtocol = "TCP"
	ListenerUDP  ListenerProtocol = "UDP"
	ListenerHTTP ListenerProtocol = "HTTP"
)

// TCPListener receives objects over raw TCP, or over TLS on it.
// +kubebuilder:validation:XValidation:rule="!has(self.idleAfter) || has(self.framing) && self.framing == 'Idle'",message="idleAfter is of listeners with framing Idle",reason=FieldValueForbidden,fieldPath=".idleAfter"
// +kubebuilder:validation:XValidation:rule="has(self.idleAfter) || !has(self.framing) || self.framing != 'Idle'",message="with framing Idle set idleAfter",reason=FieldValueRequired,fieldPath=".idleAfter"
type TCPListener struct {
	// TLSMode of the listener. None: bytes are plain. Server: the pool shows its
	// certificate. Mutual: the instrument shows one, too, and the pool's client
	// authorities must have signed it. An IngestGateway needs spec.tls for both.
	// Over TLS an end without close_notify cuts the object off.
	// +kubebuilder:default=None
	// +optional
	TLSMode TLSMode `json:"tlsMode,omitempty"`

	// Framing says where an object ends. UntilClose: all bytes until the
	// sender closes its side are one object. Lines: what stands before each LF
	// is one; a CR stays, and a line of nothing, or of a CR alone, is none.
	// LengthPrefixed: after 4 bytes of length (unsigned, big-endian) so many
	// bytes are one; length 0 is none. Idle: what comes until nothing has come
	// for idleAfter is one. In the last three a connection carries any number of
	// objects, each with a receipt in the order of arrival.
	// +kubebuilder:default=UntilClose
	// +optional
	Framing Framing `json:"framing,omitempty"`

	// IdleAfter ends an object with the framing Idle. Bytes that wait in the
	// network or in the kernel make no pause: choose it well above the link's
	// jitter and well below the pause between two objects. At most 8784h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="idleAfter must be longer than nothing"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('8784h')",message="idleAfter is at most 8784h"
	// +optional
	IdleAfter *metav1.Duration `json:"idleAfter,omitempty"`

	// Expect says what a whole object looks like. One that looks so is marked
	// Verified, another one is kept and marked Unverified. Without it the end
	// decides: a length or an LF verifies, a close or a pause does not, for a
	// dead sender makes them too.
	// +optional
	Expect *Expect `json:"expect,omitempty"`

	// Receipt for each object. Line: one line of text. Close: no line; the
	// clean end of the connection, after the sender has closed its side, says
	// that all of it is safe, and a reset that it may not be. For a sender that
	// cannot handle a line, or never reads.
	// +kubebuilder:default=Line
	// +optional
	Receipt Receipt `json:"receipt,omitempty"`

	// IdleTimeout ends a connection on which nothing arrives within an object.
	// Between objects, with a framing other than UntilClose, a connection may be
	// silent for idleTimeout or twice cadence.interval, whichever is longer.
	// At most 8784h.
	// +kubebuilder:default="60s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="idleTimeout must be longer than nothing"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('8784h')",message="idleTimeout is at most 8784h"
	// +optional
	IdleTimeout metav1.Duration `json:"idleTimeout,omitzero"`

	// MaxAge ends a connection whose object is not whole so long after its first
	// byte, with UntilClose so long after the connection was made. At most 8784h.
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="maxAge must be longer than nothing"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('8784h')",message="maxAge is at most 8784h"
	// +optional
	MaxAge metav1.Duration `json:"maxAge,omitzero"`
}

// Framing of objects on a TCP connection.
// +kubebuilder:validation:Enum=UntilClose;Lines;LengthPrefixed;Idle
type Framing string

// The values of Framing.
const (
	FramingUntilClose     Framing = "UntilClose"
	FramingLines          Framing = "Lines"
	FramingLengthPrefixed Framing = "LengthPrefixed"
	FramingIdle           Framing = "Idle"
)

// Expect says what a whole object looks like; all that is set must be so.
// +kubebuilder:validation:MinProperties=1
type Expect struct {
	// MinSize is how many bytes an object has at least. At most 1Pi. Default: any number.
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self > 0 : (self.matches('e|E') || quantity(self).isGreaterThan(quantity('0')))",message="minSize must be greater than 0"
	// +kubebuilder:validation:XValidation:rule="type(self) == int || self.matches('e|E') || !quantity(self).isGreaterThan(quantity('1Pi'))",message="minSize is at most 1Pi"
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('e|E')",message="write digits and a unit, such as 64Mi, and no exponent"
	// +optional
	MinSize *resource.Quantity `json:"minSize,omitempty"`

	// Magic is what an object begins with, in hexadecimal: ffd8ff of a JPEG.
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^([0-9A-Fa-f][0-9A-Fa-f])+$`
	// +optional
	Magic string `json:"magic,omitempty"`

	// Trailer is what an object ends with, in hexadecimal: ffd9 of a JPEG.
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^([0-9A-Fa-f][0-9A-Fa-f])+$`
	// +optional
	Trailer string `json:"trailer,omitempty"`
}

// Receipt is the word from which the sender may forget what it sent.
// +kubebuilder:validation:Enum=Line;Close
type Receipt string

// The values of Receipt.
const (
	ReceiptLine  Receipt = "Line"
	ReceiptClose Receipt = "Close"
)

// UDPListener receives telemetry. Bytes of this listener are plain.
// +kubebuilder:object:generate=false
type UDPListener struct {
	// Channel that the datagrams belong to.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:default=raw
	// +optional
	Channel string `json:"channel,omitempty"`
}

// HTTPListener receives objects over HTTP: PUT /in/<instrument>/<name> stores an object
// under a name, POST /in/<instrument>/ one without, and uploads that may be
// interrupted and go on follow tus 1.0.
// +kubebuilder:object:generate=false
type HTTPListener struct {
	// TLSMode of the listener. None: plain HTTP. Server: the pool shows its certificate.
	// Mutual: the instrument shows one, too, and the pool's client authorities
	// must have signed it. An IngestGateway needs spec.tls for both. Either all
	// listeners of a port are over TLS or none is.
	// +kubebuilder:default=None
	// +optional
	TLSMode TLSMode `json:"tlsMode,omitempty"`

	// IdleTimeout ends a request of whose body nothing arrives. At most 8784h.
	// +kubebuilder:default="60s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="idleTimeout must be longer than nothing"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('8784h')",message="idleTimeout is at most 8784h"
	// +optional
	IdleTimeout metav1.Duration `json:"idleTimeout,omitzero"`

	// MaxAge ends a request whose body is not whole so long after it began. An
	// upload by tus may take any number of requests. At most 8784h.
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="maxAge must be longer than nothing"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('8784h')",message="maxAge is at most 8784h"
	// +optional
	MaxAge metav1.Duration `json:"maxAge,omitzero"`

	// UploadExpiry is how long an unfinished upload by tus is kept after its last
	// byte. Then what arrived of it is removed. At most 8784h.
	// +kubebuilder:default="168h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="uploadExpiry must be longer than nothing"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('8784h')",message="uploadExpiry is at most 8784h"
	// +optional
	UploadExpiry metav1.Duration `json:"uploadExpiry,omitzero"`
}

// Mode returns whether bytes of the listener are encrypted, and who shows a certificate.
func (l *Listener) Mode() TLSMode {
	switch {
	case l.TCP != nil:
		return cmp.Or(l.TCP.TLSMode, TLSNone)
	case l.HTTP != nil:
		return cmp.Or(l.HTTP.TLSMode, TLSNone)
	default:
		return TLSNone
	}
}

// WithDefaults returns the listener with the member of its protocol, and in it the defaults of
// what is left out: those that the API server fills in where the member is there.
func (l *Listener) WithDefaults() Listener {
	is := *l.DeepCopy()
	switch is.Protocol {
	case ListenerTCP:
		is.TCP = cmp.Or(is.TCP, &TCPListener{})
		is.TCP.TLSMode = cmp.Or(is.TCP.TLSMode, TLSNone)
		is.TCP.Framing = cmp.Or(is.TCP.Framing, FramingUntilClose)
		is.TCP.Receipt = cmp.Or(is.TCP.Receipt, ReceiptLine)
		is.TCP.IdleTimeout.Duration = cmp.Or(is.TCP.IdleTimeout.Duration, time.Minute)
		is.TCP.MaxAge.Duration = cmp.Or(is.TCP.MaxAge.Duration, time.Hour)
	case ListenerUDP:
		is.UDP = cmp.Or(is.UDP, &UDPListener{})
		is.UDP.Channel = cmp.Or(is.UDP.Channel, DefaultChannel)
	case ListenerHTTP:
		is.HTTP = cmp.Or(is.HTTP, &HTTPListener{})
		is.HTTP.TLSMode = cmp.Or(is.HTTP.TLSMode, TLSNone)
		is.HTTP.IdleTimeout.Duration = cmp.Or(is.HTTP.IdleTimeout.Duration, time.Minute)
		is.HTTP.MaxAge.Duration = cmp.Or(is.HTTP.MaxAge.Duration, time.Hour)
		is.HTTP.UploadExpiry.Duration = cmp.Or(is.HTTP.UploadExpiry.Duration, 7*24*time.Hour)
	}
	return is
}

// DefaultChannel is that of datagrams where nothing is said.
const DefaultChannel = "raw"

// ListenerStatus says of a listener where to send, and whether gateways receive there.
type ListenerStatus struct {
	// Name of the listener in spec.listeners.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name,omitempty"`

	// Addresses to send to.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Addresses []ListenerAddress `json:"addresses,omitempty"`

	// LastReceivedTime is when data last arrived at the listener, rounded down to ten minutes.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	LastReceivedTime *metav1.Time `json:"lastReceivedTime,omitempty"`

	// Conditions. Accepted: the listener contradicts no other, and what it names exists.
	// Programmed: every pod that receives runs the registry with it.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ListenerAddress is an address to send to.
// +kubebuilder:object:generate=false
type ListenerAddress struct {
	// Address as host:port.
	// +kubebuilder:validation:MaxLength=300
	// +kubebuilder:validation:MinLength=1
	// +required
	Address string `json:"address,omitempty"`
	// URL below which the instrument's objects go, of HTTP.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	URL string `json:"url,omitempty"`
}
