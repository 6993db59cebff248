// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionAcknowledgeLimited of an Instrument is present and True while
// receipts mean something other than spec.acknowledge asks for.
const ConditionAcknowledgeLimited = "AcknowledgeLimited"

// ConditionClockTrusted of an Instrument says whether its sender's clock is within
// spec.clock.maxSkew of the gateways'. Data is received, and keeps its times,
// whatever it says. Unknown: no sender has reported its clock lately.
const ConditionClockTrusted = "ClockTrusted"

// ConditionArchiveIntact of an Instrument is present and False while the bytes of some
// of its objects in the store are known not to be those that were received.
const ConditionArchiveIntact = "ArchiveIntact"

// ConditionContentAsDeclared of an Instrument is present and False while objects that it sent within a day contradict, by
// their first bytes, the media type that their sender or spec.archive.mediaType declares. They are kept.
const ConditionContentAsDeclared = "ContentAsDeclared"

// Reasons of an Instrument's conditions.
const (
	// ReasonWithinMaxSkew: the sender's clock is as right as spec.clock.maxSkew asks.
	ReasonWithinMaxSkew = "WithinMaxSkew"
	// ReasonClockOff: the sender's clock is further off than spec.clock.maxSkew, or what was received last tells a time
	// that lies more than 366 days before its receipt or 24 hours after it. Of OriginConsistent: the clock of the Site that is pulled
	// from is off by more than a day, or shows a time that is more than an hour before one that it showed in an earlier run.
	ReasonClockOff = "ClockOff"
	// ReasonNoHeartbeat: the sender says nothing of itself.
	ReasonNoHeartbeat = "NoHeartbeat"
	// ReasonNotMeasured: the sender reports and has not compared clocks yet.
	ReasonNotMeasured = "NotMeasured"
	// ReasonUncertain: the link is too slow to tell how far the clock is off.
	ReasonUncertain = "Uncertain"
	// ReasonFlowing: data arrives in cadence, and a consumer gets what its flow asks for.
	ReasonFlowing = "Flowing"
	// ReasonOverdue: data is due and did not arrive. This one is an alert.
	ReasonOverdue = "Overdue"
	// ReasonNotObserving: no data is due: spec.state or spec.cadence.observes says so.
	ReasonNotObserving = "NotObserving"
	// ReasonNeverSeen: nothing was ever received, and something should have been by now.
	ReasonNeverSeen = "NeverSeen"
	// ReasonAwaitingData: a new Instrument has sent nothing yet, and nothing is overdue.
	ReasonAwaitingData = "AwaitingData"
	// ReasonNotAccepted: no data is due of an Instrument that is not accepted.
	ReasonNotAccepted = "NotAccepted"
	// ReasonNoReport: no program has reported about it for a grace period.
	ReasonNoReport = "NoReport"
	// ReasonProgrammed: every pod that receives runs the registry with this generation.
	ReasonProgrammed = "Programmed"
	// ReasonNotReported: a pod is not ready, or has not yet reported that it runs this generation.
	ReasonNotReported = "NotReported"
	// ReasonNoReplica: a gateway has none on another node to copy its spool to.
	ReasonNoReplica = "NoReplica"
	// ReasonUnexpectedContent: objects are not of the media type that is declared.
	ReasonUnexpectedContent = "UnexpectedContent"
	// ReasonDamaged: objects in the store are damaged or missing.
	ReasonDamaged = "Damaged"
	// ReasonGatewayProblem: a gateway pod cannot receive for the Instrument.
	ReasonGatewayProblem = "GatewayProblem"
	// ReasonNoListeners: no gateway receives for the Instrument, whose data is imported.
	ReasonNoListeners = "NoListeners"
	// ReasonNoInstruments: a Site has none that should send.
	ReasonNoInstruments = "NoInstruments"
)

// InstrumentSpec declares one instrument: who it is, how it sends, what is kept.
// +kubebuilder:validation:XValidation:rule="!has(self.listeners) || !self.listeners.exists(w, has(w.tcp) && has(w.tcp.framing) && w.tcp.framing == 'LengthPrefixed') || !has(self.limits) || !has(self.limits.maxObjectSize) || string(self.limits.maxObjectSize).matches('e|E') || quantity(string(self.limits.maxObjectSize)).isLessThan(quantity('2Gi'))",message="with the framing LengthPrefixed limits.maxObjectSize is below 2Gi: a length has 31 bits",fieldPath=".limits.maxObjectSize"
// +kubebuilder:validation:XValidation:rule="has(self.station) || !has(self.naming) || !self.naming.template.contains('{station}')",message="naming.template holds {station}: set spec.station",reason=FieldValueRequired,fieldPath=".station"
// +kubebuilder:validation:XValidation:rule="has(self.station) || !has(self.archive) || !has(self.archive.aliases) || !self.archive.aliases.exists(t, t.contains('{station}'))",message="an alias holds {station}: set spec.station",reason=FieldValueRequired,fieldPath=".station"
// +kubebuilder:validation:XValidation:rule="!has(self.archive) || !has(self.archive.expiry) || !has(self.archive.expiry.whenDiskFull) || self.archive.expiry.whenDiskFull != 'Expire' || self.type == 'Product'",message="whenDiskFull is Expire only for what can be made again: type is Product there",fieldPath=".archive.expiry.whenDiskFull"
// +kubebuilder:validation:XValidation:rule="has(self.location) || !has(self.cadence) || !has(self.cadence.observes) || self.cadence.observes.mode != 'SunBelow'",message="cadence.observes goes by the sun: set spec.location",reason=FieldValueRequired,fieldPath=".location"
type InstrumentSpec struct {
	// SiteRef names the Site whose instrument it is. An Instrument that moves is deleted and
	// created anew at the other Site; nothing that was observed is deleted.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="siteRef is immutable: delete the Instrument and create it anew at the other Site, nothing that was observed is deleted"
	// +required
	SiteRef LocalReference `json:"siteRef,omitzero"`

	// GatewayRef names the IngestGateway that receives. It may be left out
	// where the Site has only one, and has no effect without listeners.
	// +optional
	GatewayRef *LocalReference `json:"gatewayRef,omitempty"`

	// Type of the instrument in PascalCase: AllSkyCamera, Magnetometer, Riometer.
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]{0,62}$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Type string `json:"type,omitempty"`

	// Station is the place in the field where the instrument stands, as paths and templates
	// have it: letters of ASCII, digits, dashes and underscores.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9_-]*$`
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Station string `json:"station,omitempty"`

	// Location of the instrument.
	// +optional
	Location *Location `json:"location,omitempty"`

	// Contacts are the people to ask about the instrument.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Contacts []Contact `json:"contacts,omitempty"`

	// Listeners that the instrument sends to. An object that arrives at two of them counts once.
	// An Instrument without listeners is one whose data is imported, or pulled by a MirrorPartner: no gateway receives
	// for it. MirrorPartners pull into no other.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=name
	// +optional
	Listeners []Listener `json:"listeners,omitempty"`

	// Cadence is how often data is due.
	// +kubebuilder:default={}
	// +optional
	Cadence Cadence `json:"cadence,omitzero"`

	// Clock says how exact the instrument's clock must be.
	// +kubebuilder:default={}
	// +optional
	Clock Clock `json:"clock,omitzero"`

	// Sampling says how often the instrument is to observe. Without it the instrument
	// decides.
	// +optional
	Sampling *Sampling `json:"sampling,omitempty"`

	// Limits on what the instrument may send.
	// +kubebuilder:default={}
	// +optional
	Limits Limits `json:"limits,omitzero"`

	// Acknowledge says when the sender gets its receipt. Stored: once the object is in the
	// object store and JetStream has acknowledged its notice. Spooled: once it is fsynced in
	// the spool, on the gateway's disk. StoredOrSpooled: once one of these two is so.
	// Replicated: once it is in the spools of two gateways on different nodes, or stored; a
	// gateway that is alone acts as Stored, and the condition AcknowledgeLimited says so.
	// While the object store or JetStream is away, Stored gives no receipt; the spools take
	// what comes until they are full.
	// Datagrams have no receipt. With StoredOrSpooled and Spooled, a Site in one process
	// (`substorm up`) keeps them in memory for up to a second before it publishes and syncs
	// them together; with the other two, and on a cluster, for up to 100 ms.
	// +kubebuilder:default=StoredOrSpooled
	// +optional
	Acknowledge Acknowledge `json:"acknowledge,omitempty"`

	// Naming says under which paths objects are published. Without it they are
	// published under their keys.
	// +optional
	Naming *Naming `json:"naming,omitempty"`

	// ObservationTime says what tells when an object was observed. Without it nothing does:
	// the time of its receipt stands for it, and nothing that a gateway receives is late.
	// +optional
	ObservationTime *ObservationTime `json:"observationTime,omitempty"`

	// Channels whose payloads are declared, so that the data in them can be read by time
	// and parameter (HAPI).
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	// +optional
	Channels []Channel `json:"channels,omitempty"`

	// Archive says how data is kept.
	// +kubebuilder:default={}
	// +optional
	Archive InstrumentArchive `json:"archive,omitzero"`

	// Access says who may read the instrument's data.
	// +kubebuilder:default={}
	// +optional
	Access Access `json:"access,omitzero"`

	// Rights say under what terms the data may be used, and how to cite it.
	// +optional
	Rights *Rights `json:"rights,omitempty"`

	// Forward sends a copy of what is received to another server, until a date:
	// for the time in which an old server is still in use.
	// +optional
	Forward *Forward `json:"forward,omitempty"`

	// State: Active receives and alerts; Maintenance receives and does not
	// alert; Retired receives nothing, and its archive stays.
	// +kubebuilder:default=Active
	// +optional
	State InstrumentState `json:"state,omitempty"`
}

// Contact is somebody to ask about an instrument.
// +kubebuilder:object:generate=false
type Contact struct {
	// Name of a person or group.
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name,omitempty"`
	// Email address at which the person or institute is reached.
	// +kubebuilder:validation:MaxLength=254
	// +kubebuilder:validation:Pattern=`^[^@\s]+@[^@\s]+$`
	// +optional
	Email string `json:"email,omitempty"`
}

// Cadence is how often data is due.
type Cadence struct {
	// Interval between observations. Data is overdue after twice of it. At most 8784h.
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="interval must be longer than nothing"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('8784h')",message="interval is at most 8784h"
	// +optional
	Interval metav1.Duration `json:"interval,omitzero"`

	// LateAfter: what arrives later than this after the end of its observation is marked
	// as backfill in its notice and in the manifest, counts as late in
	// `substorm archive report`, and reaches a Feed only with spec.backfill: Include. What
	// says no observation time is never late: objects that a gateway receives, and
	// telemetry without a channel that declares one. Default: ten minutes, or twice the
	// interval where that is longer. At most 8784h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="lateAfter must be longer than nothing"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('8784h')",message="lateAfter is at most 8784h"
	// +optional
	LateAfter *metav1.Duration `json:"lateAfter,omitempty"`

	// Observes says when the instrument observes. Default: always.
	// +optional
	Observes *Observes `json:"observes,omitempty"`
}

// Clock says how exact an instrument's clock must be.
// +kubebuilder:object:generate=false
type Clock struct {
	// MaxSkew is how far the clock may be off before the condition ClockTrusted is
	// False. Data is never refused or re-timed for it. At most 8784h.
	// +kubebuilder:default="2s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="maxSkew must be longer than nothing"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('8784h')",message="maxSkew is at most 8784h"
	// +optional
	MaxSkew metav1.Duration `json:"maxSkew,omitzero"`
}

// Limits on what an instrument may send.
type Limits struct {
	// MaxObjectSize is how many bytes an object may have; a larger one is cut off and refused.
	// At most 1Pi.
	// +kubebuilder:default="1Gi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || quantity(string(self)).isGreaterThan(quantity('0'))",message="maxObjectSize must be greater than 0"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || !quantity(string(self)).isGreaterThan(quantity('1Pi'))",message="maxObjectSize is at most 1Pi"
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('e|E')",message="write digits and a unit, such as 64Mi, and no exponent"
	// +optional
	MaxObjectSize resource.Quantity `json:"maxObjectSize,omitzero"`

	// MaxConnections is how many connections may be open at a time on each gateway pod.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:default=1024
	// +optional
	MaxConnections int32 `json:"maxConnections,omitempty"`

	// BytesPerSecond is how many bytes each gateway pod takes. TCP and HTTP are read no
	// faster; datagrams beyond it are dropped and counted. Default: no limit.
	// At most 1Pi.
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || !quantity(string(self)).isLessThan(quantity('1'))",message="bytesPerSecond is at least 1"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || !quantity(string(self)).isGreaterThan(quantity('1Pi'))",message="bytesPerSecond is at most 1Pi"
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('e|E')",message="write digits and a unit, such as 64Mi, and no exponent"
	// +optional
	BytesPerSecond *resource.Quantity `json:"bytesPerSecond,omitempty"`

	// ObjectsPerSecond is how many objects each gateway pod takes. TCP is read no faster; HTTP
	// answers 429 with Retry-After. It does not limit datagrams. Default: no limit.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	ObjectsPerSecond *int32 `json:"objectsPerSecond,omitempty"`
}

// Acknowledge says when the sender gets its receipt.
// +kubebuilder:validation:Enum=Stored;StoredOrSpooled;Spooled;Replicated
type Acknowledge string

// The values of Acknowledge.
const (
	AcknowledgeStored          Acknowledge = "Stored"
	AcknowledgeStoredOrSpooled Acknowledge = "StoredOrSpooled"
	AcknowledgeSpooled         Acknowledge = "Spooled"
	AcknowledgeReplicated      Acknowledge = "Replicated"
)

// InstrumentState is what stage an instrument is in.
// +kubebuilder:validation:Enum=Active;Maintenance;Retired
type InstrumentState string

// The values of InstrumentState.
const (
	InstrumentActive      InstrumentState = "Active"
	InstrumentMaintenance InstrumentState = "Maintenance"
	InstrumentRetired     InstrumentState = "Retired"
)

// InstrumentStatus answers: where does it send, and does its data flow?
type InstrumentStatus struct {
	// ObservedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: Ready, Accepted, Programmed, Reconciling, Stalled, DataFlowing, ClockTrusted,
	// AcknowledgeLimited, ArchiveIntact, ContentAsDeclared.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Listeners by the names that they have in spec.listeners.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=name
	// +optional
	Listeners []ListenerStatus `json:"listeners,omitempty"`

	// LastReceivedTime is when data last arrived, rounded down to ten minutes. The metric
	// substorm_instrument_last_received_timestamp_seconds has it exactly.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	LastReceivedTime *metav1.Time `json:"lastReceivedTime,omitempty"`

	// ReceivedToday sums up what gateways last reported of the current UTC day. It is brought
	// up to date at most once in ten minutes, and reports may be lost: the record is the
	// ledger (substorm archive ledger).
	// +optional
	ReceivedToday *DayCounts `json:"receivedToday,omitempty"`

	// Forward says how the copy of spec.forward is getting on.
	// +optional
	Forward *ForwardStatus `json:"forward,omitempty"`

	// Sender is what the sender in the field last said of itself. Senders that keep
	// a queue and use the framing LengthPrefixed do: substorm send.
	// +optional
	Sender *SenderStatus `json:"sender,omitempty"`

	// Sampling says what of spec.sampling, and of what consumers ask for, is
	// achieved; absent where nothing is asked.
	// +optional
	Sampling *SamplingStatus `json:"sampling,omitempty"`

	// LinkProbe is how packets fare between the sender and a gateway; absent where no
	// sender measures it (substorm send --link-probe).
	// +optional
	LinkProbe *LinkProbeStatus `json:"linkProbe,omitempty"`
}

// SenderStatus is what the senders in the field say of themselves: those that
// gateways heard within 15 minutes, or else the last one. Each gateway pod
// remembers 32.
type SenderStatus struct {
	// ReportTime is when the last of them reported, rounded down to ten minutes.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +required
	ReportTime metav1.Time `json:"reportTime"`
	// ClockOffset is what must be added to the sender's clock to get the gateways',
	// rounded; it is negative where its clock is ahead. Of several senders it is
	// that of the clock that is farthest off.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('-2562047h') && duration(self) <= duration('2562047h')",message="clockOffset is a duration"
	// +optional
	ClockOffset *metav1.Duration `json:"clockOffset,omitempty"`
	// QueueObjectCount is how many objects wait for their receipt, at all senders.
	// +required
	QueueObjectCount int64 `json:"queueObjectCount"`
	// QueueBytes is the size of these objects.
	// +required
	QueueBytes int64 `json:"queueBytes"`
	// OldestTime is when the oldest of these objects was observed, by its sender's clock; absent
	// where none waits.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	OldestTime *metav1.Time `json:"oldestTime,omitempty"`
	// SetAsideCount is how many objects were set aside since their sender started: no
	// gateway takes them, or the disk changed them. Where it is not 0 somebody must look at
	// that sender's queue.
	// +required
	SetAsideCount int64 `json:"setAsideCount"`
	// Version of the sender that reported last.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Version string `json:"version,omitempty"`
}

// DayCounts sums up one UTC day of the ledger.
// +kubebuilder:object:generate=false
type DayCounts struct {
	// Day in UTC, as 2006-01-02.
	// +kubebuilder:validation:MaxLength=10
	// +kubebuilder:validation:MinLength=1
	// +required
	Day string `json:"day,omitempty"`
	// ObjectCount is how many objects got their receipt.
	// +required
	ObjectCount int64 `json:"objectCount"`
	// DatagramCount is how many datagrams are safe: in JetStream, or in a gateway's spool.
	// +required
	DatagramCount int64 `json:"datagramCount"`
	// Bytes is the size of these objects and datagrams.
	// +required
	Bytes int64 `json:"bytes"`
}

// Instrument is one instrument in the field whose data is received and archived.
// Deleting it deletes no observation; creating it again continues its archive.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=substorm,shortName=inst
// +kubebuilder:selectablefield:JSONPath=`.spec.siteRef.name`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 63",message="an Instrument's name is a DNS label of at most 63 characters: keys and subjects carry it"
// +kubebuilder:printcolumn:name="Site",type=string,JSONPath=`.spec.siteRef.name`,description="Site that receives"
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`,description="Type of the instrument"
// +kubebuilder:printcolumn:name="Station",type=string,JSONPath=`.spec.station`,description="Place in the field"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True once gateways receive for it"
// +kubebuilder:printcolumn:name="Flowing",type=string,JSONPath=`.status.conditions[?(@.type=="DataFlowing")].status`,description="True while data arrives in cadence"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="DataFlowing")].reason`,description="Why Flowing has its value"
// +kubebuilder:printcolumn:name="Objects",type=integer,JSONPath=`.status.receivedToday.objectCount`,description="Objects receipted this UTC day"
// +kubebuilder:printcolumn:name="Datagrams",type=integer,JSONPath=`.status.receivedToday.datagramCount`,description="Datagrams made safe this UTC day"
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.listeners[0].addresses[0].address`,description="First address to send to"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What Ready says, and what to do"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
type Instrument struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what you declare.
	// +required
	Spec InstrumentSpec `json:"spec,omitzero"`
	// The default of status: kstatus takes an Instrument that no operator has seen for one in progress, not for ready.

	// Status is what the operator found: nobody else writes it.
	// +kubebuilder:default={"observedGeneration":-1}
	// +optional
	Status InstrumentStatus `json:"status,omitzero"`
}

// InstrumentList is a list of Instruments.
//
// +kubebuilder:object:root=true
type InstrumentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Instrument `json:"items"`
}
