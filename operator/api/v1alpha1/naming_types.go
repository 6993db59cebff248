// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Naming says under which paths objects are published.
// +kubebuilder:object:generate=false
type Naming struct {
	// Template of the paths. It must hold {id}, {digest}, {sequence} or {name},
	// so that objects have paths of their own; where two of a day have the same
	// all the same, the later one gets ~2 before its extension, and so on. The
	// sequence counts an instrument's objects of a day, from 1. An object for
	// which the template holds a {name} and which has none keeps its key.
	// +kubebuilder:validation:XValidation:rule="self.contains('{id}') || self.contains('{digest') || self.contains('{sequence}') || self.contains('{name}')",message="a naming template holds {id}, {digest}, {sequence} or {name}: objects need paths of their own"
	// +required
	Template PathTemplate `json:"template,omitempty"`
}

// ObservationTime says what tells when an object was observed.
// +kubebuilder:validation:XValidation:rule="self.source != 'Name' || has(self.name)",message="with the source Name set name",reason=FieldValueRequired,fieldPath=".name"
type ObservationTime struct {
	// Source of the time. Name: the name that the sender gives.
	// +required
	Source ObservationTimeSource `json:"source,omitempty"`

	// Name says how names tell the time. An object without a name, or with one that does not
	// fit or tells a time more than 366 days before its receipt or 24 hours after it, is
	// received all the same and has no observation time; a metric counts it.
	// +optional
	Name *ObservationTimeName `json:"name,omitempty"`
}

// ObservationTimeSource is what tells when an object was observed.
// +kubebuilder:validation:Enum=Name
type ObservationTimeSource string

// The values of ObservationTimeSource.
const (
	ObservationTimeSourceName ObservationTimeSource = "Name"
)

// ObservationTimeName says how names tell the time of observation.
// +kubebuilder:object:generate=false
type ObservationTimeName struct {
	// Template that the names fit, as in {station}_{year}{month}{day}_{hour}{minute}{second}.jpg:
	// the time in UTC at which the observation began. It ended within the shortest unit of time
	// that the template holds.
	// +kubebuilder:validation:XValidation:rule="!self.contains('{name}')",message="the template reads the name, and cannot hold {name}: write it out"
	// +required
	Template PathTemplate `json:"template,omitempty"`
}

// PathTemplate is a relative path with fields in braces, as in
// {year}/{month}/{day}/{station}_{hour}{minute}{second}-{digest:8}.jpg. Fields
// are year, year2, month, day, doy (day of the year), hour, minute, second,
// millisecond (of receipt, in UTC), station, instrument, name (the sender's),
// id (milliseconds and digest, as in keys), sequence, and digest; {digest:16} is
// its first 16 digits. It holds a day, by which objects are found, or {name}.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=512
// +kubebuilder:validation:XValidation:rule="self.matches(r'^([^{}\\\\\\x00-\\x1f\\x7f]|[{](year|year2|month|day|doy|hour|minute|second|millisecond|station|instrument|name|id|sequence|digest(:([89]|[1-5][0-9]|6[0-4]))?)[}])+$')",message="between braces a template has one of year, year2, month, day, doy, hour, minute, second, millisecond, station, instrument, name, id, sequence, digest, and digest:8 to digest:64; elsewhere any text without braces, backslashes and control characters"
// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.split('/').exists(p, size(p) == 0 || p == '.' || p == '..')",message="a template is a relative path, without empty parts, . or .."
// +kubebuilder:validation:XValidation:rule="self.contains('{name}') || ((self.contains('{year}') || self.contains('{year2}')) && (self.contains('{doy}') || (self.contains('{month}') && self.contains('{day}'))))",message="a template holds a day ({year}, {month} and {day}, or {year} and {doy}), by which objects are found, or {name}"
// +kubebuilder:validation:XValidation:rule="!self.contains('{hour}') || ((self.contains('{year}') || self.contains('{year2}')) && (self.contains('{doy}') || (self.contains('{month}') && self.contains('{day}'))))",message="{hour} needs the day beside it"
// +kubebuilder:validation:XValidation:rule="(!self.contains('{minute}') || self.contains('{hour}')) && (!self.contains('{second}') || self.contains('{minute}')) && (!self.contains('{millisecond}') || self.contains('{second}'))",message="{minute} needs {hour} beside it, {second} needs {minute}, {millisecond} needs {second}"
// +kubebuilder:validation:XValidation:rule="(!self.contains('{month}') && !self.contains('{doy}')) || self.contains('{year}') || self.contains('{year2}')",message="{month} and {doy} need {year} or {year2} beside them"
// +kubebuilder:validation:XValidation:rule="!self.contains('{day}') || ((self.contains('{year}') || self.contains('{year2}')) && self.contains('{month}'))",message="{day} needs {year} and {month} beside it"
type PathTemplate string

// Forward sends a copy of what is received to another server.
type Forward struct {
	// Address of the server, as host:port.
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=259
	// +kubebuilder:validation:XValidation:rule="self.matches('^(\\\\[[0-9a-fA-F:.]+\\\\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?):[0-9]{1,5}$') && int(self.substring(self.lastIndexOf(':') + 1)) >= 1 && int(self.substring(self.lastIndexOf(':') + 1)) <= 65535",message="an address is host:port, as in old.example.org:5000 or [2001:db8::7]:5000"
	// +required
	Address string `json:"address,omitempty"`

	// Protocol. TCP: each object, framed as it came; UDP: each datagram as one
	// packet. An object that came by UntilClose, Idle or HTTP is one connection,
	// and counts as delivered once the server has closed its side after the
	// gateway closed its own. After a failure, or after a gateway ended without warning, the
	// last objects may come twice; none is left out.
	// +required
	Protocol ForwardProtocol `json:"protocol,omitempty"`

	// EndTime is when the copy ends: what is received from then on is not forwarded.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +required
	EndTime metav1.Time `json:"endTime"`
}

// ForwardProtocol is how a copy is sent.
// +kubebuilder:validation:Enum=TCP;UDP
type ForwardProtocol string

// The values of ForwardProtocol.
const (
	ForwardTCP ForwardProtocol = "TCP"
	ForwardUDP ForwardProtocol = "UDP"
)

// ForwardStatus says how the copy is getting on. Figures are a minute old at most.
type ForwardStatus struct {
	// Address that the copy goes to.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=300
	// +required
	Address string `json:"address,omitempty"`
	// SentCount is how many objects, or datagrams, were sent.
	// +required
	SentCount int64 `json:"sentCount"`
	// DroppedCount is how many were never sent: the stream that announced them was
	// trimmed, or their bytes are gone.
	// +required
	DroppedCount int64 `json:"droppedCount"`
	// BacklogCount is how many objects, or datagrams, wait to be sent.
	// +required
	BacklogCount int64 `json:"backlogCount"`
	// BacklogBytes is the size of those that wait.
	// +required
	BacklogBytes int64 `json:"backlogBytes"`
	// OldestTime is when the oldest of those that wait was received; absent where none does.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	OldestTime *metav1.Time `json:"oldestTime,omitempty"`
	// LastError says what keeps the next one from being sent; absent while all is well.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	LastError string `json:"lastError,omitempty"`
}
