// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MirrorSelection says what is mirrored.
type MirrorSelection struct {
	// Selector selects Instruments of the Site by their labels, for a push. Empty or absent selects all. One whose
	// access.archive is Restricted is left out, unless its access.readers has mirror:<name of this MirrorPartner>. A
	// MirrorPartner that selects nothing is Ready, and its condition InstrumentsSelected says so.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// InstrumentNames are the instruments of another Substorm that are pulled. Empty means all that we may read there.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	// +listType=set
	// +optional
	InstrumentNames []string `json:"instrumentNames,omitempty"`

	// Observed bounds when objects were observed, or received where no observation time is known. Default: no bound.
	// +optional
	Observed *MirrorObserved `json:"observed,omitempty"`

	// Versions of objects that have several. Current: the newest. All: earlier ones, too. A push stores these as
	// <instrument>/v/<version>/<path>, with layout as v/<version>/<path>: an object whose own path begins like that is not
	// pushed then.
	// +kubebuilder:default=Current
	// +optional
	Versions MirrorVersions `json:"versions,omitempty"`

	// Embargoed says whether a push gives the partner data that is under embargo. Of a pull from a
	// Substorm, Include brings what is under embargo there, where we may read it: it is under embargo here, too.
	// +kubebuilder:default=Exclude
	// +optional
	Embargoed MirrorEmbargoed `json:"embargoed,omitempty"`
}

// MirrorObserved bounds the time of observation.
// +kubebuilder:validation:XValidation:rule="has(self.fromTime) || has(self.toTime) || has(self.within)",message="observed has fromTime, toTime or within: leave it out where nothing is bounded",reason=FieldValueRequired,fieldPath=.fromTime
// +kubebuilder:validation:XValidation:rule="!has(self.within) || !has(self.fromTime) && !has(self.toTime)",message="within counts back from now: set it, or fromTime and toTime",reason=FieldValueForbidden,fieldPath=.within
// +kubebuilder:validation:XValidation:rule="!has(self.fromTime) || !has(self.toTime) || self.fromTime < self.toTime",message="fromTime is before toTime, which is not included",fieldPath=.toTime
type MirrorObserved struct {
	// FromTime is the first time of observation that is mirrored.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	FromTime *metav1.Time `json:"fromTime,omitempty"`

	// ToTime is the first time of observation that is not mirrored any more.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	ToTime *metav1.Time `json:"toTime,omitempty"`

	// Within is how old what is mirrored may be when a run begins: 1m to 876000h. Copies that are older stay.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('876000h')",message="within is 1m to 876000h"
	// +optional
	Within *metav1.Duration `json:"within,omitempty"`
}

// MirrorVersions are the versions of objects that are mirrored.
// +kubebuilder:validation:Enum=Current;All
type MirrorVersions string

// The values of MirrorVersions.
const (
	MirrorVersionsCurrent MirrorVersions = "Current"
	MirrorVersionsAll     MirrorVersions = "All"
)

// MirrorEmbargoed says whether data under embargo is mirrored.
// +kubebuilder:validation:Enum=Exclude;Include
type MirrorEmbargoed string

// The values of MirrorEmbargoed.
const (
	MirrorEmbargoedExclude MirrorEmbargoed = "Exclude"
	MirrorEmbargoedInclude MirrorEmbargoed = "Include"
)

// MirrorPath gives files to an Instrument.
type MirrorPath struct {
	// Pattern of paths below the folder that is pulled: * stands for any characters but a slash, ? for one of them, and **
	// as a whole part for any number of folders, none too: kev/**/*.jpg.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f]+$`
	// +kubebuilder:validation:XValidation:rule="!self.matches('(^|/)[.]{0,2}(/|$)') && !self.matches('[^/][*][*]|[*][*][^/]')",message="a pattern is a relative path, without empty parts, . or ..; ** is a part of its own"
	// +required
	Pattern string `json:"pattern,omitempty"`

	// InstrumentRef names the Instrument that the files belong to.
	// +required
	InstrumentRef LocalReference `json:"instrumentRef,omitzero"`
}

// MirrorLayout says under which paths a push stores objects.
type MirrorLayout struct {
	// Template of the paths. It must hold {id}, {digest} or {name}, and {instrument} as a folder or as {instrument}_ at the
	// beginning of one, so that no object of any Instrument takes the place of another. {name} without a name is the ID with
	// the extension of the published path. Of objects that a digest does not tell apart the later one gets ~2 before its
	// extension, and so on; with neither {id} nor {name}, a path tells the day of observation only if the object was received
	// that day, and else that of receipt.
	// +kubebuilder:validation:XValidation:rule="self.contains('{id}') || self.contains('{digest') || self.contains('{name}') || self.contains('{sequence}')",message="a layout's template holds {id}, {digest} or {name}: objects need paths of their own"
	// +kubebuilder:validation:XValidation:rule="!self.contains('{sequence}')",message="objects have no sequence at a partner: use {id} in place of {sequence}"
	// +kubebuilder:validation:XValidation:rule="self.split('/').exists(p, p.contains('{instrument}') && (p.startsWith('{instrument}_') || !p.contains('{station}') && !p.contains('{name}')))",message="a layout's template holds {instrument}, as a folder or as {instrument}_ at the beginning of one: objects of two Instruments need paths of their own"
	// +required
	Template PathTemplate `json:"template,omitempty"`
}
