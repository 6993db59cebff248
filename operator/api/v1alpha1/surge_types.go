// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionSpaceWeatherKnown of a Site says whether all quantities that spec.surge.levels ask for are known and not too old,
// and all sources can be asked as they are declared. Present where the Site declares levels. What is not known neither begins a level nor ends one.
const ConditionSpaceWeatherKnown = "SpaceWeatherKnown"

// ConditionSurging of a Site says whether a level of spec.surge holds. Present where the Site declares levels.
const ConditionSurging = "Surging"

// ConditionFloorWithoutPool of a Site is present and True while floors of spec.surge.levels name pools that the Site does not have.
const ConditionFloorWithoutPool = "FloorWithoutPool"

// Reasons of SpaceWeatherKnown, Surging and FloorWithoutPool.
const (
	// ReasonFresh: all that levels ask for is known.
	ReasonFresh = "Fresh"
	// ReasonStale: a quantity is too old to say anything of now.
	ReasonStale = "Stale"
	// ReasonNeverTold: no source has told a quantity yet.
	ReasonNeverTold = "NeverTold"
	// ReasonSourceInvalid: a source of spec.spaceWeather cannot be asked as it is declared, and either no other tells what it may have told,
	// or levels go on with the others. Where these are silent the reason is Stale or NeverTold, and the message tells both.
	ReasonSourceInvalid = "SourceInvalid"
	// ReasonLevelFulfilled: space weather fulfills a rule of the level.
	ReasonLevelFulfilled = "LevelFulfilled"
	// ReasonLevelHeld: space weather fulfills no rule of the level any more, or nobody knows, and spec.surge.hold has not passed since.
	ReasonLevelHeld = "LevelHeld"
	// ReasonLevelChanged is of an event: a level followed another.
	ReasonLevelChanged = "LevelChanged"
	// ReasonFloorsChanged is of an event: floors of space weather rose with a level, or fell a while after it.
	ReasonFloorsChanged = "FloorsChanged"
	// ReasonNoLevel: no level holds.
	ReasonNoLevel = "NoLevel"
	// ReasonPoolNotFound: a floor names an IngestGateway or a FeedServer that the Site does not have.
	ReasonPoolNotFound = "PoolNotFound"
)

// What spec.surge has where it does not say it.
const (
	DefaultSurgeHold            = 12 * time.Hour // that of the benchmark storm-2015
	DefaultSurgeReleaseInterval = 10 * time.Minute
)

// Surge says how a Site grows with space weather.
// +kubebuilder:validation:XValidation:rule="[0, 1, 2].all(i, [1, 2, 3].all(j, i >= j || size(self.levels) <= j || self.levels[i].floors.all(f, self.levels[j].floors.all(g, f.kind != g.kind || f.replicas <= g.replicas || !(has(f.name) && has(g.name) ? f.name == g.name : (has(f.name) == has(g.name) || (has(f.name) ? !self.levels[j].floors.exists(h, h.kind == f.kind && has(h.name) && h.name == f.name) : !self.levels[i].floors.exists(h, h.kind == g.kind && has(h.name) && h.name == g.name))))))))",message="levels ascend: a later level has no lower floor of a pool than one before it",fieldPath=.levels
// +kubebuilder:validation:XValidation:rule="[0, 1, 2].all(i, [1, 2, 3].all(j, i >= j || size(self.levels) <= j || self.levels[i].anyOf.all(r, !self.levels[j].anyOf.exists(s, s.allOf.all(t, r.allOf.exists(u, u.quantity == t.quantity && (has(u.atLeast) && has(t.atLeast) && double(u.atLeast) >= double(t.atLeast) || has(u.atMost) && has(t.atMost) && double(u.atMost) <= double(t.atMost)) && duration(has(u.__for__) ? u.__for__ : '0s') >= duration(has(t.__for__) ? t.__for__ : '0s')))))))",message="levels ascend: what fulfills a rule of a level must not always fulfill a later level, which would take its place; declare the highest level last, with thresholds that are harder to reach",fieldPath=.levels
type Surge struct {
	// Levels in ascending order: where several hold, the last of them does.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +listType=map
	// +listMapKey=name
	// +required
	Levels []SurgeLevel `json:"levels,omitempty"`

	// Hold is how long a level lasts after its rules were last fulfilled, 10s to 168h. The default is the one that the benchmark
	// storm-2015 was measured with: Kp falls below a threshold for hours within a storm, and readers still come in the night after
	// it. One that is shorter than some minutes has pods come and go with a signal that flaps: it is for exercises.
	// +kubebuilder:default="12h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('168h')",message="hold is 10s to 168h"
	// +optional
	Hold *metav1.Duration `json:"hold,omitempty"`

	// ReleaseInterval is how long each pool takes to lower its floor by one pod once no level holds it, 5s to 24h.
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('5s') && duration(self) <= duration('24h')",message="releaseInterval is 5s to 24h"
	// +optional
	ReleaseInterval *metav1.Duration `json:"releaseInterval,omitempty"`
}

// SurgeLevel is a state of space weather at which the Site's pools are not smaller than its floors.
type SurgeLevel struct {
	// Name of the level, in statuses, events and metrics.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +required
	Name string `json:"name,omitempty"`

	// AnyOf are rules, one of which is enough for the level.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +listType=atomic
	// +required
	AnyOf []SurgeRule `json:"anyOf,omitempty"`

	// Floors are how many pods pools have at least, while the level lasts.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(f, self.exists_one(g, f.kind == g.kind && has(f.name) == has(g.name) && (!has(f.name) || f.name == g.name)))",message="a pool has one floor in a level"
	// +listType=atomic
	// +required
	Floors []SurgeFloor `json:"floors,omitempty"`
}

// SurgeRule is fulfilled while all its thresholds are.
type SurgeRule struct {
	// AllOf are thresholds, all of which are to be reached.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +listType=atomic
	// +required
	AllOf []SurgeThreshold `json:"allOf,omitempty"`
}

// SurgeThreshold bounds a quantity.
// +kubebuilder:validation:XValidation:rule="has(self.atLeast) != has(self.atMost)",message="set atLeast or atMost, and not both",fieldPath=.atLeast
// +kubebuilder:validation:XValidation:rule="!has(self.atLeast) || self.quantity == 'Bz' || (self.quantity == 'Kp' ? double(self.atLeast) >= 1.0 && double(self.atLeast) <= 9.0 : double(self.atLeast) >= 300.0 && double(self.atLeast) <= 4000.0)",message="choose a value that a storm has, or each calm day is one: Kp is 1 to 9, Speed 300 to 4000 km/s",fieldPath=.atLeast
// +kubebuilder:validation:XValidation:rule="!has(self.atMost) || double(self.atMost) >= -200.0 && double(self.atMost) < 0.0",message="choose a value that a storm has, or each calm day is one: Bz is at least -200 and below 0 nT",fieldPath=.atMost
// +kubebuilder:validation:XValidation:rule="!has(self.__for__) || self.quantity == 'Kp' || duration(self.__for__) <= duration('2h')",message="for of Bz and Speed is at most 2h: what is older is not kept",fieldPath=.for
// +kubebuilder:validation:XValidation:rule="!has(self.atMost) || self.quantity == 'Bz'",message="atMost is of Bz, whose storms are below 0: Kp and Speed have atLeast",reason=FieldValueForbidden,fieldPath=.atMost
// +kubebuilder:validation:XValidation:rule="!has(self.atLeast) || self.quantity != 'Bz'",message="atLeast is of Kp and Speed: Bz, whose storms are below 0, has atMost",reason=FieldValueForbidden,fieldPath=.atLeast
type SurgeThreshold struct {
	// Quantity that is bounded.
	// +required
	Quantity SpaceWeatherQuantity `json:"quantity,omitempty"`
	// AtLeast as a decimal string: "5". Of Kp it is 1 to 9, of Speed 300 to 4000 km/s.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,4}(\.[0-9]{1,4})?$`
	// +optional
	AtLeast string `json:"atLeast,omitempty"`
	// AtMost as a decimal string: "-10". It is of Bz, at least -200 and below 0 nT.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,4}(\.[0-9]{1,4})?$`
	// +optional
	AtMost string `json:"atMost,omitempty"`
	// For is for how long all values are to be beyond the threshold: of Kp up to 24h, of Bz and Speed up to 2h. Default: only the
	// newest value counts.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="for is at most 24h"
	// +optional
	For *metav1.Duration `json:"for,omitempty"`
}

// SurgePoolKind is the kind of a pool.
// +kubebuilder:validation:Enum=IngestGateway;FeedServer
type SurgePoolKind string

// The kinds of pools.
const (
	SurgePoolIngestGateway SurgePoolKind = "IngestGateway"
	SurgePoolFeedServer    SurgePoolKind = "FeedServer"
)

// SurgeFloor is how many pods pools have at least.
// +kubebuilder:validation:XValidation:rule="self.kind != 'FeedServer' || self.replicas <= 64",message="a FeedServer has 64 pods at most",fieldPath=.replicas
type SurgeFloor struct {
	// Kind of the pools.
	// +required
	Kind SurgePoolKind `json:"kind,omitempty"`
	// Name of one. Default: each of the Site's pools of the kind that no other floor of the level names.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +optional
	Name string `json:"name,omitempty"`
	// Replicas is how many pods each has at least.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +required
	Replicas int32 `json:"replicas,omitempty"`
}

// SurgeStatus is what space weather asks of a Site. An operator that begins anew goes on from here.
type SurgeStatus struct {
	// Level that holds; absent while none does.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Level string `json:"level,omitempty"`
	// LevelTime is since when the level holds, or none does; absent before the first one.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	LevelTime *metav1.Time `json:"levelTime,omitempty"`
	// Message says why, in a sentence: value, source, spacecraft and age. It is brought up to date every ten minutes, and at once when
	// another level holds, or when the level is fulfilled, held or unknown and was not before.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
	// Levels that are fulfilled or held.
	// +kubebuilder:validation:MaxItems=4
	// +listType=map
	// +listMapKey=name
	// +optional
	Levels []SurgeLevelStatus `json:"levels,omitempty"`
	// Floors of pools, also of those that are being released.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Floors []SurgeFloorStatus `json:"floors,omitempty"`
	// FloorSummary has the floors in one line: "FeedServer 6, IngestGateway 2".
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	FloorSummary string `json:"floorSummary,omitempty"`
	// Values that are known, brought up to date with the message.
	// +kubebuilder:validation:MaxItems=3
	// +listType=map
	// +listMapKey=quantity
	// +optional
	Values []SpaceWeatherValue `json:"values,omitempty"`
}

// SurgeCountdown is time that runs while what it waits for is known.
type SurgeCountdown struct {
	// StartTime from which it runs; it is put off by each time for which it stood still.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +required
	StartTime metav1.Time `json:"startTime"`
	// StopTime is since when it stands still, as a signal is unknown.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	StopTime *metav1.Time `json:"stopTime,omitempty"`
}

// SurgeLevelStatus is a level that is fulfilled or held.
type SurgeLevelStatus struct {
	// Name of the level.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +required
	Name string `json:"name,omitempty"`
	// Message says what the level began with, or what fulfilled it again after it was held.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
	// Hold runs since the level's rules were found to be fulfilled no more.
	// +optional
	Hold *SurgeCountdown `json:"hold,omitempty"`
}

// SurgeFloorStatus is how many pods pools have at least now.
type SurgeFloorStatus struct {
	// Kind of the pools.
	// +required
	Kind SurgePoolKind `json:"kind,omitempty"`
	// Name of one; absent: each of the kind that is not named here.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Name string `json:"name,omitempty"`
	// Replicas is how many pods each has at least.
	// +kubebuilder:validation:Minimum=1
	// +required
	Replicas int32 `json:"replicas,omitempty"`
	// Level that raised the floor.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Level string `json:"level,omitempty"`
	// Release runs since the level was over, or since the floor was last lowered by a pod.
	// +optional
	Release *SurgeCountdown `json:"release,omitempty"`
}

// SpaceWeatherValue is what is known of a quantity.
type SpaceWeatherValue struct {
	// Quantity that it is of.
	// +required
	Quantity SpaceWeatherQuantity `json:"quantity,omitempty"`
	// Value as a decimal string.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	// +required
	Value string `json:"value,omitempty"`
	// Source that told it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Source string `json:"source,omitempty"`
	// Spacecraft that measured it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Spacecraft string `json:"spacecraft,omitempty"`
	// ValidTime is the end of the time that it tells of.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +required
	ValidTime metav1.Time `json:"validTime"`
}
