// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types of a Site.
const (
	// ConditionObjectStoreReachable: the bucket can be read and written.
	ConditionObjectStoreReachable = "ObjectStoreReachable"
	// ConditionJetStreamReachable: the Site's streams and buckets stand.
	ConditionJetStreamReachable = "JetStreamReachable"
	// ConditionDurable: what JetStream acknowledges survives a power cut.
	ConditionDurable = "Durable"
	// ConditionFeedServerAvailable: all FeedServers of the Site are Ready. Absent where the
	// Site has none.
	ConditionFeedServerAvailable = "FeedServerAvailable"
	// ConditionArchivistAvailable: the archivist's pods are ready.
	ConditionArchivistAvailable = "ArchivistAvailable"
	// ConditionStreamsIntact is present and False for a day after a stream or bucket of
	// the Site was deleted by somebody else: the operator makes it anew, and what it
	// held is gone.
	ConditionStreamsIntact = "StreamsIntact"
	// ConditionReadersDeclared is present and False while the Secret of spec.readersSecretRef holds tokens that no manifest
	// declares any more: a key that is taken out of stringData stays in data, and its token stays valid.
	ConditionReadersDeclared = "ReadersDeclared"
	// ConditionManifestsApplied is of a Site that substorm up runs: present and False while its files, or some of what they
	// declare, are not applied.
	ConditionManifestsApplied = "ManifestsApplied"
	// ConditionExpiryRunning is present and False while data that is due to expire by
	// spec.archive.expiry of Instruments does not: the archivist stops where the clocks
	// of its machine and of the NATS server disagree, and where more of an instrument is
	// due at once than its maxShare.
	ConditionExpiryRunning = "ExpiryRunning"
)

// Reasons of a Site's ExpiryRunning condition.
const (
	// ReasonClocksDisagree: the clocks of the archivist's machine and of the NATS server differ.
	ReasonClocksDisagree = "ClocksDisagree"
	// ReasonMoreThanMaxShare: more of an instrument is due at once than spec.archive.expiry.maxShare.
	ReasonMoreThanMaxShare = "MoreThanMaxShare"
)

// ReasonRecreated: a stream or bucket was deleted, and is made anew.
const ReasonRecreated = "Recreated"

// ReasonAvailable: feed servers, or archivists, are ready.
const ReasonAvailable = "Available"

// Reasons of a Site's Durable condition.
const (
	// ReasonSynced: JetStream acknowledges after fsync, as spec.jetStream.durability says.
	ReasonSynced = "Synced"
	// ReasonFlushed: JetStream acknowledges before fsync, as spec.jetStream.durability says.
	ReasonFlushed = "Flushed"
	// ReasonDurabilityUnknown: what an acknowledgement means is not known, since
	// spec.jetStream.durability does not say it.
	ReasonDurabilityUnknown = "DurabilityUnknown"
)

// SiteSpec declares the hub that receives: where it keeps objects and messages.
// +kubebuilder:validation:XValidation:rule="!has(self.surge) || has(self.spaceWeather)",message="surge needs spaceWeather: name a source there",reason=FieldValueRequired,fieldPath=.spaceWeather
// +kubebuilder:validation:XValidation:rule="!has(self.leaves) || self.leaves.all(l, l.code != self.code)",message="a Site is no leaf of its own: leaves name the codes of other Sites",fieldPath=.leaves
type SiteSpec struct {
	// Code is the Site's short name in keys, subjects and streams. It must be
	// unique among all Sites that share a bucket or a JetStream account, and
	// never changes.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="code is immutable: keys and streams carry it"
	// +required
	Code string `json:"code,omitempty"`

	// Title of the Site in a line, for people who read its manifest.
	// +kubebuilder:validation:MaxLength=200
	// +optional
	Title string `json:"title,omitempty"`

	// Location of the hub.
	// +optional
	Location *Location `json:"location,omitempty"`

	// ObjectStore is where objects lie.
	// +required
	ObjectStore ObjectStore `json:"objectStore,omitzero"`

	// JetStream is where notices and telemetry flow.
	// +required
	JetStream JetStream `json:"jetStream,omitzero"`

	// Archivist says how the Site's archivist runs, which lists what was received, cuts
	// telemetry into segments, and keeps the archive whole. Each Site has one: two pods, of
	// which one works and the other takes over when it dies.
	// +optional
	Archivist Archivist `json:"archivist,omitzero"`

	// ReadersSecretRef names a Secret whose keys are names of readers, DNS labels,
	// and whose values are their tokens, one in a line, each of at least 16
	// characters: `openssl rand -hex 32` makes one. The Secret has the label
	// substorm.dev/tokens with the value "true": of others no token is taken.
	// +optional
	ReadersSecretRef *LocalReference `json:"readersSecretRef,omitempty"`

	// Readers who show a certificate: it bears one of the reader's names, and is signed by an
	// authority that the FeedServer believes (its spec.tls.caSecretRef). A reader may have tokens
	// under its name, too.
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=name
	// +optional
	Readers []Reader `json:"readers,omitempty"`

	// PulledBy are readers that pull: hubs whose MirrorPartners pull from this Site, or folders of `substorm mirror pull`. They say
	// after each run what they have, with their token or certificate, and what is due to expire here waits for those that lack some of
	// it. Without it nothing waits for who pulls.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=reader
	// +optional
	PulledBy []PulledBy `json:"pulledBy,omitempty"`

	// Leaves are Sites elsewhere whose notices and telemetry this Site carries too.
	// Removing one stops that and deletes nothing.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=code
	// +optional
	Leaves []Leaf `json:"leaves,omitempty"`

	// Upstream is the hub that carries this Site's notices and telemetry too, where substorm up runs this Site. Without it the
	// Site is nobody's leaf. Removing it ends the link and deletes nothing.
	// +optional
	Upstream Upstream `json:"upstream,omitzero"`

	// SpaceWeather says where the Site learns of space weather.
	// +optional
	SpaceWeather SpaceWeather `json:"spaceWeather,omitzero"`

	// Surge says how the Site's pools grow with space weather. Levels raise pools, and lower none: what is asked for besides, such
	// as spec.replicas of a pool, holds where it is more.
	// +optional
	Surge Surge `json:"surge,omitzero"`

	// LegalHold says what is under legal hold: data of which nothing is retracted, purged or
	// expires, whoever asks. None: what Instruments say of themselves. All: the data of all the
	// Site's Instruments, whatever they say themselves.
	// +kubebuilder:default=None
	// +optional
	LegalHold LegalHold `json:"legalHold,omitempty"`
}

// Reader is a named reader of the Site, who may read what every reader may, and what
// Instruments name it for.
type Reader struct {
	// Name of the reader, as Instruments have it in spec.access.readers.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name,omitempty"`

	// ClientCertificate that the reader shows. Taking away a name ends what its
	// certificates opened.
	// +required
	ClientCertificate ClientCertificate `json:"clientCertificate,omitzero"`
}

// PulledBy is a reader of the Site that pulls.
type PulledBy struct {
	// Reader is its name: a key of the Secret that readersSecretRef names, or one of readers.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MinLength=1
	// +required
	Reader string `json:"reader,omitempty"`

	// InstrumentNames are those that it pulls. Empty means all of the Site that it may read.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	// +listType=set
	// +optional
	InstrumentNames []string `json:"instrumentNames,omitempty"`

	// HoldRetention is how long days that are due to expire here wait for the reader if it has not confirmed all of them, also if it has
	// never confirmed anything. After it they expire, whatever the reader has. At most 876000h.
	// +kubebuilder:default="720h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('876000h')",message="holdRetention is 0s to 876000h"
	// +optional
	HoldRetention *metav1.Duration `json:"holdRetention,omitempty"`
}

// PullerStatus is what a reader that pulls said of its last run.
type PullerStatus struct {
	// Reader is its name.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:MinLength=1
	// +required
	Reader string `json:"reader,omitempty"`

	// ConfirmedTime is when it last said what it has; absent where it never did. While it says nothing, what is due to expire waits for
	// holdRetention.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	ConfirmedTime *metav1.Time `json:"confirmedTime,omitempty"`

	// VerifiedToTime: all that it pulls and was received before is there; absent while it lacks something.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	VerifiedToTime *metav1.Time `json:"verifiedToTime,omitempty"`

	// ComparedTime is when it last compared all that it has and missed nothing; absent where it never did, or has lost something since.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	ComparedTime *metav1.Time `json:"comparedTime,omitempty"`

	// OwedObjectCount is how many objects its last run could not pull.
	// +kubebuilder:validation:Minimum=0
	// +optional
	OwedObjectCount *int64 `json:"owedObjectCount,omitempty"`
}

// SiteStatus answers: are the backends reachable, and do the instruments send?
type SiteStatus struct {
	// ObservedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: Ready, Accepted, Reconciling, Stalled, ObjectStoreReachable,
	// JetStreamReachable, Durable, DataFlowing, ArchivistAvailable, FeedServerAvailable,
	// LeavesReachable, UpstreamReachable, StreamsIntact, ObjectsUnreadable, ExpiryRunning,
	// DeletionHeld while its deletion waits, SpaceWeatherKnown, Surging and FloorWithoutPool where it declares levels, ReadersDeclared, and NotApplied, ManifestsApplied and SpaceLeft where substorm up runs it.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// InstrumentSummary counts the Site's Instruments by whether data flows; absent until they
	// have been counted.
	// +optional
	InstrumentSummary *InstrumentSummary `json:"instrumentSummary,omitempty"`

	// RegistryRevision is the newest revision of the registry: what the operator tells gateways
	// and feed servers.
	// +optional
	RegistryRevision int64 `json:"registryRevision,omitempty"`

	// Archivist says how the archivist's pods are doing.
	// +optional
	Archivist *ArchivistState `json:"archivist,omitempty"`

	// PulledBy says what the readers of spec.pulledBy have confirmed.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=reader
	// +optional
	PulledBy []PullerStatus `json:"pulledBy,omitempty"`

	// Leaves says how far the leaves' messages have come.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=code
	// +optional
	Leaves []LeafStatus `json:"leaves,omitempty"`

	// JetStream says which streams the operator made, and where: by it an operator that
	// begins anew knows which were deleted meanwhile.
	// +optional
	JetStream *JetStreamState `json:"jetStream,omitempty"`

	// RecreatedStreams were deleted by somebody else within the last day, and made anew;
	// key-value buckets are among them.
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=name
	// +optional
	RecreatedStreams []RecreatedStream `json:"recreatedStreams,omitempty"`

	// Ledger says how far the ledger is closed: its days are in the bucket then, and
	// nothing of them is on its way. Absent until the archivist has reported.
	// +optional
	Ledger *LedgerState `json:"ledger,omitempty"`

	// Archive is what is known of damage to stored objects, and when the archivist
	// last looked; absent until it has reported.
	// +optional
	Archive *ArchiveState `json:"archive,omitempty"`

	// Surge is what space weather asks of the Site; absent where spec.surge is.
	// +optional
	Surge *SurgeStatus `json:"surge,omitempty"`

	// Disk is what the Site takes of its computer's disk, where substorm up runs it.
	// +optional
	Disk *DiskState `json:"disk,omitempty"`
}

// JetStreamState names the streams of a Site.
type JetStreamState struct {
	// Servers as in spec.jetStream.servers when the streams were last looked at.
	// +kubebuilder:validation:MaxItems=9
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=atomic
	// +required
	Servers []string `json:"servers"`

	// Streams that stand; the names of key-value buckets begin with KV_.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=255
	// +listType=set
	// +required
	Streams []string `json:"streams"`
}

// RecreatedStream is a stream that was deleted and made anew.
type RecreatedStream struct {
	// Name of the stream; that of a key-value bucket begins with KV_.
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name,omitempty"`

	// RecreatedTime is when it was last made anew.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +required
	RecreatedTime metav1.Time `json:"recreatedTime"`
}

// ArchiveState is what is known of damage to a Site's stored objects, and when the
// archivist last compared all of them with their digests.
type ArchiveState struct {
	// LastPass read the whole archive; absent before the first has ended.
	// +optional
	LastPass *ArchivePass `json:"lastPass,omitempty"`
	// Pass is under way; absent between two passes. The archivist says every five
	// minutes how far it has come.
	// +optional
	Pass *ArchivePass `json:"pass,omitempty"`
	// DamagedCount is how many objects are known to be damaged: the archivist has looked
	// twice, and their bytes are missing or are not those that were received.
	// +required
	DamagedCount int64 `json:"damagedCount"`
	// MissingCount is how many of these have no bytes at all.
	// +required
	MissingCount int64 `json:"missingCount"`
	// UnconfirmedCount is how many objects were found to be damaged, by a feed server say, and
	// the archivist has not looked at yet.
	// +required
	UnconfirmedCount int64 `json:"unconfirmedCount"`
}

// ArchivePass is one reading of the whole archive.
type ArchivePass struct {
	// StartTime is when it began.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +required
	StartTime metav1.Time `json:"startTime"`
	// CompletionTime is when it ended; absent of one that is under way.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// Instrument whose objects are read now, of a pass that is under way.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Instrument string `json:"instrument,omitempty"`
	// Day of receipt that is read now, in UTC, as 2006-01-02.
	// +kubebuilder:validation:MaxLength=10
	// +optional
	Day string `json:"day,omitempty"`
	// ObjectCount is how many objects were read.
	// +required
	ObjectCount int64 `json:"objectCount"`
	// UnreadableDayCount is how many days of Instruments were left out, since a file of their
	// manifest cannot be read.
	// +required
	UnreadableDayCount int64 `json:"unreadableDayCount"`
}

// LedgerState is how far a Site's ledger is closed.
type LedgerState struct {
	// ClosedTo is the last day in UTC, as 2006-01-02, that is closed with all days
	// before it.
	// +kubebuilder:validation:MaxLength=10
	// +optional
	ClosedTo string `json:"closedTo,omitempty"`
	// WaitsFor is what keeps the next day from being closed, where it is not time alone.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	WaitsFor string `json:"waitsFor,omitempty"`
	// Reopened are days that were closed and changed since, at most 16.
	// +kubebuilder:validation:items:MaxLength=10
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Reopened []string `json:"reopened,omitempty"`
}

// InstrumentSummary counts the Instruments of a Site.
// +kubebuilder:object:generate=false
type InstrumentSummary struct {
	// TotalCount is how many Instruments name the Site.
	// +required
	TotalCount int32 `json:"totalCount"`
	// FlowingCount is how many of them have DataFlowing True.
	// +required
	FlowingCount int32 `json:"flowingCount"`
	// SilentCount is how many of them have DataFlowing False while data is due.
	// +required
	SilentCount int32 `json:"silentCount"`
}

// Site is the hub that receives: one archive, one pair of base streams.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=substorm,shortName=ssite
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 63",message="a Site's name is a DNS label: lower-case letters, digits and dashes, at most 63"
// +kubebuilder:printcolumn:name="Code",type=string,JSONPath=`.spec.code`,description="Short name in keys, subjects and streams"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True once the backends are reachable and the streams stand"
// +kubebuilder:printcolumn:name="Flowing",type=integer,JSONPath=`.status.instrumentSummary.flowingCount`,description="Instruments whose data flows"
// +kubebuilder:printcolumn:name="Silent",type=integer,JSONPath=`.status.instrumentSummary.silentCount`,description="Instruments whose data is overdue"
// +kubebuilder:printcolumn:name="Instruments",type=integer,JSONPath=`.status.instrumentSummary.totalCount`,description="Instruments that name this Site"
// +kubebuilder:printcolumn:name="Store",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="ObjectStoreReachable")].status`,description="True while the bucket can be read and written"
// +kubebuilder:printcolumn:name="JetStream",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="JetStreamReachable")].status`,description="True while the Site's streams and buckets stand"
// +kubebuilder:printcolumn:name="Damaged",type=integer,priority=1,JSONPath=`.status.archive.damagedCount`,description="Stored objects that are known to be damaged"
// +kubebuilder:printcolumn:name="Ledger",type=string,priority=1,JSONPath=`.status.ledger.closedTo`,description="Last day of the ledger that is closed with all days before it"
// +kubebuilder:printcolumn:name="Space",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="SpaceLeft")].status`,description="False where the disk budget of a Site that substorm up runs is nearly used up"
// +kubebuilder:printcolumn:name="Level",type=string,JSONPath=`.status.surge.level`,description="Level of space weather that holds"
// +kubebuilder:printcolumn:name="Floors",type=string,JSONPath=`.status.surge.floorSummary`,description="How many pods pools have at least, by space weather"
// +kubebuilder:printcolumn:name="Why",type=string,priority=1,JSONPath=`.status.surge.message`,description="Why that level holds, or none does"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why Ready has its value"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What Ready says, and what to do"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
type Site struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what you declare.
	// +required
	Spec SiteSpec `json:"spec,omitzero"`
	// The default of status: kstatus takes a Site that no operator has seen for one in progress, not for ready.

	// Status is what the operator found: nobody else writes it.
	// +kubebuilder:default={"observedGeneration":-1}
	// +optional
	Status SiteStatus `json:"status,omitzero"`
}

// SiteList is a list of Sites.
//
// +kubebuilder:object:root=true
type SiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Site `json:"items"`
}
