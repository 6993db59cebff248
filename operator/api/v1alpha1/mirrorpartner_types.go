// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MirrorPartnerSpec declares a mirror: who is given data of a Site, or whom the Site takes data from, how, when and how fast.
// +kubebuilder:validation:XValidation:rule="has(self.schedule) != has(self.continuous)",message="a mirror has either a schedule or is continuous: set one of schedule and continuous",fieldPath=.schedule
// +kubebuilder:validation:XValidation:rule="has(self.https) == (self.protocol == 'HTTPS')",message="https is set exactly when protocol is HTTPS",fieldPath=.https
// +kubebuilder:validation:XValidation:rule="has(self.rsync) == (self.protocol == 'Rsync')",message="rsync is set exactly when protocol is Rsync",fieldPath=.rsync
// +kubebuilder:validation:XValidation:rule="has(self.s3) == (self.protocol == 'S3')",message="s3 is set exactly when protocol is S3",fieldPath=.s3
// +kubebuilder:validation:XValidation:rule="self.direction == 'Pull' || self.protocol != 'HTTPS'",message="protocol HTTPS pulls only: others take what we have from our FeedServer, or are given it by Rsync or S3",fieldPath=.protocol
// +kubebuilder:validation:XValidation:rule="self.direction == 'Push' || self.protocol != 'S3'",message="protocol S3 pushes only: set direction to Push",fieldPath=.protocol
// +kubebuilder:validation:XValidation:rule="self.direction == 'Push' || has(self.https) && self.https.source == 'Substorm' || has(self.paths)",message="a pull from a web archive or by rsync names the Instruments that the files belong to: set paths",reason=FieldValueRequired,fieldPath=.paths
// +kubebuilder:validation:XValidation:rule="!has(self.paths) || self.direction == 'Pull' && !(has(self.https) && self.https.source == 'Substorm')",message="paths are of a pull from a web archive or by rsync: elsewhere objects name their instruments",reason=FieldValueForbidden,fieldPath=.paths
// +kubebuilder:validation:XValidation:rule="!has(self.layout) || self.direction == 'Push'",message="layout is of a push: what is pulled is published as its Instrument says",reason=FieldValueForbidden,fieldPath=.layout
// +kubebuilder:validation:XValidation:rule="self.direction == 'Push' || !has(self.selection) || !has(self.selection.selector)",message="selection.selector selects Instruments of the Site, for a push: a pull has selection.instrumentNames or paths",reason=FieldValueForbidden,fieldPath=.selection.selector
// +kubebuilder:validation:XValidation:rule="!has(self.selection) || !has(self.selection.instrumentNames) || has(self.https) && self.https.source == 'Substorm'",message="selection.instrumentNames are instruments of another Substorm: a push has selection.selector, other pulls have paths",reason=FieldValueForbidden,fieldPath=.selection.instrumentNames
// +kubebuilder:validation:XValidation:rule="self.direction == 'Push' || !has(self.verify) || (!has(self.verify.mode) || self.verify.mode == 'Digest') && (!has(self.verify.percent) || self.verify.percent == 100)",message="verify is of a push: each object that is pulled is compared with the digest that the other side tells",reason=FieldValueForbidden,fieldPath=.verify
// +kubebuilder:validation:XValidation:rule="self.direction == 'Push' || !has(self.prune) || self.prune == 'Never'",message="prune is of a push: what was pulled stays when it expires at the other side",reason=FieldValueForbidden,fieldPath=.prune
// +kubebuilder:validation:XValidation:rule="self.direction == 'Push' || has(self.https) && self.https.source == 'Substorm' || !has(self.safetyStopPercent) || self.safetyStopPercent == 10",message="safetyStopPercent is of a push, and of a pull from a Substorm: other pulls remove nothing",reason=FieldValueForbidden,fieldPath=.safetyStopPercent
// +kubebuilder:validation:XValidation:rule="self.direction == 'Push' || !has(self.holdRetention) || duration(self.holdRetention) == duration('720h')",message="holdRetention is of a push: nothing here waits for a partner that is pulled from",reason=FieldValueForbidden,fieldPath=.holdRetention
type MirrorPartnerSpec struct {
	// SiteRef names the Site whose archive is mirrored, or into which data is pulled.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="siteRef is immutable: make another MirrorPartner for another Site"
	// +required
	SiteRef LocalReference `json:"siteRef,omitzero"`

	// Direction: Push gives the partner what the Site has; Pull takes what the partner has. It never changes.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="direction is immutable: make another MirrorPartner"
	// +required
	Direction MirrorDirection `json:"direction,omitempty"`

	// Protocol says which of https, rsync and s3 is set. It never changes. HTTPS pulls from another Substorm or a web
	// archive; Rsync pushes and pulls; S3 pushes into a bucket.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="protocol is immutable: make another MirrorPartner"
	// +required
	Protocol MirrorProtocol `json:"protocol,omitempty"`

	// HTTPS is the server that is pulled from.
	// +optional
	HTTPS *MirrorHTTPS `json:"https,omitempty"`

	// Rsync is the rsync daemon, or the host with ssh, at the other side.
	// +optional
	Rsync *MirrorRsync `json:"rsync,omitempty"`

	// S3 is the bucket that is pushed to.
	// +optional
	S3 *MirrorS3 `json:"s3,omitempty"`

	// State: Active, or Suspended: no run begins but those that `kubectl substorm mirror run` asks for, and a continuous
	// mirror stands still. A scheduled run that has begun goes on. It is suspended at once, also where it is not accepted or lacks
	// a Secret; runs begin again only once nothing else is amiss.
	// +kubebuilder:default=Active
	// +optional
	State MirrorState `json:"state,omitempty"`

	// Schedule says when runs begin, as that of a CronJob.
	// +optional
	Schedule *MirrorSchedule `json:"schedule,omitempty"`

	// Continuous has the mirror follow what is announced, instead of a schedule.
	// +optional
	Continuous *MirrorContinuous `json:"continuous,omitempty"`

	// Selection says what is mirrored. Default: the current versions of everything that is not under embargo.
	// +kubebuilder:default={}
	// +optional
	Selection MirrorSelection `json:"selection,omitzero"`

	// Paths say which Instrument of the Site the files of a web archive or of rsync belong to: the first whose pattern
	// fits. The Instruments must have no listeners. A file that none fits stays at the other side, and is counted: once a pattern fits, the next run fetches it.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Paths []MirrorPath `json:"paths,omitempty"`

	// Layout says under which paths a push stores objects. Default: those under which the Site publishes them.
	// +optional
	Layout *MirrorLayout `json:"layout,omitempty"`

	// Limits say how fast a run may be, and when.
	// +kubebuilder:default={}
	// +optional
	Limits MirrorLimits `json:"limits,omitzero"`

	// Verify says how it is made sure that the other side has what it was given. It is of a push: each object that is pulled is
	// compared with the digest that the other side tells of it.
	// +kubebuilder:default={}
	// +optional
	Verify MirrorVerify `json:"verify,omitzero"`

	// Prune says what becomes of copies whose originals expired. Never: they stay. WhenExpired: the next run removes them; what
	// expires between two runs counts for safetyStopPercent. It is of a push.
	// +kubebuilder:default=Never
	// +optional
	Prune MirrorPrune `json:"prune,omitempty"`

	// Retractions say what becomes of copies whose originals are retracted. Tombstone: the copy is removed, and a file beside
	// its place, <path>.retracted.json, says why, until there is an object again under the path. Delete: it is removed.
	// Ignore: it stays. What is purged is always removed, with a tombstone if that is asked for, and asked for until the
	// partner confirms it. Of a pull from a Substorm, Tombstone: it is retracted here, too, and can be restored;
	// Delete: it is purged here; Ignore: it stays. Other pulls are not told what is retracted.
	// +kubebuilder:default=Tombstone
	// +optional
	Retractions MirrorRetractions `json:"retractions,omitempty"`

	// SafetyStopPercent is how many of the copies that the partner is known to have one run may remove, in percent, whether
	// their originals were retracted, purged or have expired; one copy may always go. A run that would remove more removes
	// none, brings what is new, and fails with the reason SafetyStop: look in its log at what it would remove, then begin one
	// with `kubectl substorm mirror run NAME --force`. Of a pull from a Substorm it is how many of the objects that were pulled
	// all runs of seven days together may have retracted or purged here; a run with --force begins that count anew. It
	// is also how many of the origin's instruments may be missing there in one run. It is of no other pull, whose copies stay.
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	SafetyStopPercent int32 `json:"safetyStopPercent,omitempty"`

	// HoldRetention is how long days that are due to expire here wait for a partner that lacks some of them. After it
	// they expire, whatever the partner has. At most 876000h. It is of a push.
	// +kubebuilder:default="720h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('876000h')",message="holdRetention is 0s to 876000h"
	// +optional
	HoldRetention *metav1.Duration `json:"holdRetention,omitempty"`

	// ScratchSize is how much of the node's disk a run may take for objects that are on their way. An object that is pulled from
	// another Substorm and does not fit stays there, and counts as owed. Default: 20Gi.
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || (!quantity(string(self)).isLessThan(quantity('1Gi')) && !quantity(string(self)).isGreaterThan(quantity('1Pi')))",message="scratchSize is 1Gi to 1Pi"
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('e|E')",message="write digits and a unit, such as 64Mi, and no exponent"
	// +optional
	ScratchSize *resource.Quantity `json:"scratchSize,omitempty"`

	// PodTemplate says how the movers run: where, with which resources and image.
	// +optional
	PodTemplate PodTemplate `json:"podTemplate,omitzero"`
}

// MirrorDirection is where data goes.
// +kubebuilder:validation:Enum=Pull;Push
type MirrorDirection string

// The values of MirrorDirection.
const (
	MirrorPull MirrorDirection = "Pull"
	MirrorPush MirrorDirection = "Push"
)

// MirrorProtocol is how bytes travel.
// +kubebuilder:validation:Enum=HTTPS;Rsync;S3
type MirrorProtocol string

// The values of MirrorProtocol.
const (
	MirrorProtocolHTTPS MirrorProtocol = "HTTPS"
	MirrorProtocolRsync MirrorProtocol = "Rsync"
	MirrorProtocolS3    MirrorProtocol = "S3"
)

// MirrorState says whether runs begin.
// +kubebuilder:validation:Enum=Active;Suspended
type MirrorState string

// The values of MirrorState.
const (
	MirrorActive    MirrorState = "Active"
	MirrorSuspended MirrorState = "Suspended"
)

// MirrorVerify says how copies are verified.
// +kubebuilder:validation:XValidation:rule="!has(self.percent) || !has(self.mode) || self.mode != 'None'",message="percent says how many copies are verified: mode None verifies none, leave it out",reason=FieldValueForbidden,fieldPath=.percent
type MirrorVerify struct {
	// Mode. Digest: their bytes are read at the other side, or the other side tells their SHA-256. Size: their sizes are
	// compared. None: what the other side said when it took them is believed.
	// +kubebuilder:default=Digest
	// +optional
	Mode MirrorVerifyMode `json:"mode,omitempty"`

	// Percent of the copies confirmed before that each run verifies, others each time: all come within 100/percent runs. What
	// differs is brought again. Copies that a run moved always are verified. A continuous mirror does so once in its interval.
	// Default: 5.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	Percent int32 `json:"percent,omitempty"`
}

// MirrorVerifyMode is how copies are verified.
// +kubebuilder:validation:Enum=Digest;Size;None
type MirrorVerifyMode string

// The values of MirrorVerifyMode.
const (
	MirrorVerifyDigest MirrorVerifyMode = "Digest"
	MirrorVerifySize   MirrorVerifyMode = "Size"
	MirrorVerifyNone   MirrorVerifyMode = "None"
)

// MirrorPrune says what becomes of copies whose originals expired.
// +kubebuilder:validation:Enum=Never;WhenExpired
type MirrorPrune string

// The values of MirrorPrune.
const (
	MirrorPruneNever       MirrorPrune = "Never"
	MirrorPruneWhenExpired MirrorPrune = "WhenExpired"
)

// MirrorRetractions say what becomes of copies whose originals are retracted.
// +kubebuilder:validation:Enum=Tombstone;Delete;Ignore
type MirrorRetractions string

// The values of MirrorRetractions.
const (
	MirrorRetractionsTombstone MirrorRetractions = "Tombstone"
	MirrorRetractionsDelete    MirrorRetractions = "Delete"
	MirrorRetractionsIgnore    MirrorRetractions = "Ignore"
)

// MirrorPartner is a partner that a Site gives data to, or takes data from: what of it, how, when and how fast.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=substorm,shortName=mirror
// +kubebuilder:selectablefield:JSONPath=.spec.siteRef.name
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 40",message="a MirrorPartner's name is a DNS label of at most 40 characters: the names of its objects append to it"
// +kubebuilder:printcolumn:name="Direction",type=string,JSONPath=`.spec.direction`,description="Push gives data to the partner, Pull takes it"
// +kubebuilder:printcolumn:name="Protocol",type=string,JSONPath=`.spec.protocol`,description="How bytes travel"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="True once runs begin as declared"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why Ready has its value"
// +kubebuilder:printcolumn:name="Synced",type=string,JSONPath=`.status.conditions[?(@.type=="Synced")].reason`,description="Complete, or what keeps the copies from being complete"
// +kubebuilder:printcolumn:name="Owed",type=integer,JSONPath=`.status.owed.objectCount`,description="Objects that are selected and not at the other side"
// +kubebuilder:printcolumn:name="Verified-To",type=date,JSONPath=`.status.verifiedToTime`,description="Age of the time up to which everything is known to be at the other side"
// +kubebuilder:printcolumn:name="Last-Success",type=date,JSONPath=`.status.lastSuccessTime`,description="Time since the last run succeeded"
// +kubebuilder:printcolumn:name="Next-Run",type=string,JSONPath=`.status.nextRunTime`,description="When the next run begins, in UTC"
// +kubebuilder:printcolumn:name="Site",type=string,priority=1,JSONPath=`.spec.siteRef.name`,description="Site that is mirrored, or pulled into"
// +kubebuilder:printcolumn:name="Reachable",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Reachable")].reason`,description="Reachable, or why the other side is not"
// +kubebuilder:printcolumn:name="Rate",type=integer,priority=1,JSONPath=`.status.progress.bytesPerSecond`,description="Bytes a second that are moved now"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What Ready says, and what to do"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
type MirrorPartner struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what you declare.
	// +required
	Spec MirrorPartnerSpec `json:"spec,omitzero"`
	// The default of status: kstatus takes a MirrorPartner that no operator has seen for one in progress, not for ready.

	// Status is what the operator found: nobody else writes it.
	// +kubebuilder:default={"observedGeneration":-1}
	// +optional
	Status MirrorPartnerStatus `json:"status,omitzero"`
}

// MirrorPartnerList is a list of MirrorPartners.
//
// +kubebuilder:object:root=true
type MirrorPartnerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MirrorPartner `json:"items"`
}
