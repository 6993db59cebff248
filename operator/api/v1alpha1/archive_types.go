// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// InstrumentArchive says how data is kept.
type InstrumentArchive struct {
	// MediaType of the objects, as in image/jpeg.
	// +kubebuilder:default="application/octet-stream"
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]+/[a-zA-Z0-9.+-]+$')",message="a media type has two parts, such as image/png, and no parameters"
	// +kubebuilder:validation:MaxLength=127
	// +optional
	MediaType string `json:"mediaType,omitempty"`

	// RepeatWindow: an object with the digest and size of one that arrived
	// within it is a duplicate. "0s" where equal objects are real.
	// With archive.expiry only one that arrived on the same day counts: an earlier
	// one expires before it. At most 8784h.
	// +kubebuilder:default="720h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('8784h')",message="repeatWindow is 0s to 8784h"
	// +optional
	RepeatWindow *metav1.Duration `json:"repeatWindow,omitempty"`

	// PackBelow is a size: objects of up to it share files in the object store, which takes many
	// small ones far faster that way. They are listed, served and mirrored each by itself. "0"
	// stores every object by itself.
	// +kubebuilder:default="64Ki"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || (!quantity(string(self)).isLessThan(quantity('0')) && !quantity(string(self)).isGreaterThan(quantity('1Mi')))",message="packBelow is at least 0 and at most 1Mi"
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('e|E')",message="write digits and a unit, such as 64Mi, and no exponent"
	// +optional
	PackBelow *resource.Quantity `json:"packBelow,omitempty"`

	// Versions says what becomes of an object whose name is known and whose bytes
	// are others. Refuse: nothing of it is kept, and its sender is told. Keep: it
	// is the name's next version, and supersedes the one before.
	// +kubebuilder:default=Refuse
	// +optional
	Versions Versions `json:"versions,omitempty"`

	// Expiry says how long data is kept, and how much of it. Without it everything is
	// kept for ever.
	// +optional
	Expiry *Expiry `json:"expiry,omitempty"`

	// LegalHold says what is under legal hold. None: nothing, unless the Site says otherwise.
	// All: while it is so, nothing of the Instrument is retracted, purged or expires, whoever
	// asks. It comes into force with the next snapshot of the registry; what was removed before
	// is gone.
	// +kubebuilder:default=None
	// +optional
	LegalHold LegalHold `json:"legalHold,omitempty"`

	// Segment says when datagrams become an object.
	// +kubebuilder:default={}
	// +optional
	Segment Segment `json:"segment,omitzero"`

	// Aliases are further paths under which each object can be had, so that old
	// URLs stay good. Times in them are those of receipt. Where several objects
	// of a day have the same alias, the first that was received has it.
	// +kubebuilder:validation:XValidation:rule="!self.exists(t, t.contains('{sequence}'))",message="an alias holds no {sequence}: an object does not know its own"
	// +kubebuilder:validation:MaxItems=8
	// +listType=set
	// +optional
	Aliases []PathTemplate `json:"aliases,omitempty"`
}

// Expiry says how long data is kept, and how much of it. A UTC day of receipt expires as a whole, once
// the ledger of it is closed: then its bytes are removed, and what the archive knows
// of them stays.
// +kubebuilder:validation:XValidation:rule="has(self.retention) || has(self.maxSize) || has(self.whenDiskFull)",message="expiry has retention, maxSize or whenDiskFull, or several of them: leave it out to keep all",reason=FieldValueRequired
type Expiry struct {
	// Retention is how long a day is kept, counted from the receipt of its youngest object:
	// 24h to 876000h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('24h')",message="retention is at least 24h: days expire as a whole"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('876000h')",message="retention is at most 876000h"
	// +optional
	Retention *metav1.Duration `json:"retention,omitempty"`

	// MaxSize of what is kept: where there is more, the oldest days expire. At most 1Pi.
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || !quantity(string(self)).isLessThan(quantity('1Mi'))",message="maxSize is at least 1Mi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || !quantity(string(self)).isGreaterThan(quantity('1Pi'))",message="maxSize is at most 1Pi"
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('e|E')",message="write digits and a unit, such as 64Mi, and no exponent"
	// +optional
	MaxSize *resource.Quantity `json:"maxSize,omitempty"`

	// WhenDiskFull says what becomes of days that are kept where the disk budget of a Site that substorm up runs is nearly used up.
	// Keep, also where it is left out: they stay, and in the end nothing is received. Expire: the objects can be made again, as
	// pictures can of the frames that they were made from; the oldest days expire first. Only an Instrument of type Product may
	// have it. ExpireMirrored: the oldest days expire of which a partner has everything and has compared its copies within 7 days,
	// if no other partner lacks something: a MirrorPartner that pushes, verifies by Digest and prunes Never, or a reader of
	// spec.pulledBy of the Site. On a cluster it has no effect.
	// +optional
	WhenDiskFull WhenDiskFull `json:"whenDiskFull,omitempty"`

	// HoldRetention is how long a day that is due waits for partners of mirrors that lack some of
	// it. A MirrorPartner may say less, for itself (spec.holdRetention); one that is deleted holds nothing. At most 876000h.
	// +kubebuilder:default="720h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('876000h')",message="holdRetention is 0s to 876000h"
	// +optional
	HoldRetention metav1.Duration `json:"holdRetention,omitzero"`

	// MaxShare is how much of the instrument's bytes may expire in one pass, in percent,
	// beside the oldest day that is due. Where more is due, as after a clock jumped or
	// retention was shortened, nothing expires until MaxShare is raised.
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	MaxShare int32 `json:"maxShare,omitempty"`
}

// WhenDiskFull says what becomes of an instrument's objects where a disk budget is nearly used up.
// +kubebuilder:validation:Enum=Keep;Expire;ExpireMirrored
type WhenDiskFull string

// The values of WhenDiskFull.
const (
	WhenDiskFullKeep           WhenDiskFull = "Keep"
	WhenDiskFullExpire         WhenDiskFull = "Expire"
	WhenDiskFullExpireMirrored WhenDiskFull = "ExpireMirrored"
)

// LegalHold says what is under legal hold.
// +kubebuilder:validation:Enum=None;All
type LegalHold string

// The values of LegalHold.
const (
	LegalHoldNone LegalHold = "None"
	LegalHoldAll  LegalHold = "All"
)

// Versions says what becomes of other bytes under a known name.
// +kubebuilder:validation:Enum=Refuse;Keep
type Versions string

// The values of Versions.
const (
	VersionsRefuse Versions = "Refuse"
	VersionsKeep   Versions = "Keep"
)

// Segment says when datagrams of a channel become an object.
type Segment struct {
	// MaxAge of a segment. A day's end closes it too. At most 8784h.
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="a segment's maxAge must be longer than nothing"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('8784h')",message="maxAge is at most 8784h"
	// +optional
	MaxAge metav1.Duration `json:"maxAge,omitzero"`

	// MaxSize of a segment, counted in bytes of its messages. At most 1Pi.
	// +kubebuilder:default="64Mi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || !quantity(string(self)).isLessThan(quantity('64Ki'))",message="a segment's maxSize is at least 64Ki"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || !quantity(string(self)).isGreaterThan(quantity('1Pi'))",message="maxSize is at most 1Pi"
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('e|E')",message="write digits and a unit, such as 64Mi, and no exponent"
	// +optional
	MaxSize resource.Quantity `json:"maxSize,omitzero"`
}
