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

// Reasons of SpaceWeatherKnown and Surging.
const (
	// ReasonFresh: all that levels ask for is known.
	ReasonFresh = "Fresh"
	// ReasonStale: a quantity is too old to say anything of now.
	ReasonStale = "Stale"
	// ReasonNeverTold: no source has told a quantity yet.
	ReasonNeverTold = "NeverTold"
	// ReasonSourceInvalid: a source of spec.spaceWeather cannot be asked as it is declared.
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
)

// SpaceWeather says where a Site learns of space weather.
// +kubebuilder:validation:XValidation:rule="self.sources.filter(s, s.type == 'Static').size() < 2",message="one Static source is enough: name all its values there",fieldPath=.sources
type SpaceWeather struct {
	// Sources of space weather. Where several tell of the same quantity, the first one that is not stale is believed.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=name
	// +required
	Sources []SpaceWeatherSource `json:"sources,omitempty"`
}

// SpaceWeatherSourceType says what a source is.
// +kubebuilder:validation:Enum=PlanetaryKIndex;SolarWind;HTTP;Static;Recorded
type SpaceWeatherSourceType string

// The types of sources.
const (
	SpaceWeatherPlanetaryKIndex SpaceWeatherSourceType = "PlanetaryKIndex"
	SpaceWeatherSolarWind       SpaceWeatherSourceType = "SolarWind"
	SpaceWeatherHTTP            SpaceWeatherSourceType = "HTTP"
	SpaceWeatherStatic          SpaceWeatherSourceType = "Static"
	SpaceWeatherRecorded        SpaceWeatherSourceType = "Recorded"
)

// SpaceWeatherSource tells of space weather.
// +kubebuilder:validation:XValidation:rule="(self.type == 'HTTP') == has(self.http)",message="http is set with type HTTP, and only there",fieldPath=.http
// +kubebuilder:validation:XValidation:rule="(self.type == 'Static') == has(self.static)",message="static is set with type Static, and only there",fieldPath=.static
// +kubebuilder:validation:XValidation:rule="(self.type == 'Recorded') == has(self.recorded)",message="recorded is set with type Recorded, and only there",fieldPath=.recorded
// +kubebuilder:validation:XValidation:rule="self.type == 'PlanetaryKIndex' || !has(self.planetaryKIndex)",message="planetaryKIndex is of type PlanetaryKIndex",reason=FieldValueForbidden,fieldPath=.planetaryKIndex
// +kubebuilder:validation:XValidation:rule="self.type == 'SolarWind' || !has(self.solarWind)",message="solarWind is of type SolarWind",reason=FieldValueForbidden,fieldPath=.solarWind
type SpaceWeatherSource struct {
	// Name of the source, in statuses, events and metrics.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +required
	Name string `json:"name,omitempty"`

	// Type: PlanetaryKIndex is Kp as NOAA's Space Weather Prediction Center publishes it, SolarWind the real-time solar wind at
	// L1 of the same, HTTP a document with JSON, Static a value that never changes, and Recorded a file that is played.
	// +required
	Type SpaceWeatherSourceType `json:"type,omitempty"`

	// PlanetaryKIndex says where it is. Default: services.swpc.noaa.gov.
	// +optional
	PlanetaryKIndex *SpaceWeatherPlanetaryKIndexSource `json:"planetaryKIndex,omitempty"`

	// SolarWind says where it is. Default: services.swpc.noaa.gov.
	// +optional
	SolarWind *SpaceWeatherSolarWindSource `json:"solarWind,omitempty"`

	// HTTP is a document with JSON.
	// +optional
	HTTP SpaceWeatherHTTPSource `json:"http,omitzero"`

	// Static are values that never change, as to try levels.
	// +optional
	Static SpaceWeatherStaticSource `json:"static,omitzero"`

	// Recorded is a file that is played, as for an exercise.
	// +optional
	Recorded SpaceWeatherRecordedSource `json:"recorded,omitzero"`

	// PollInterval is how often the source is asked, 10s to 24h. Default: 1m for SolarWind, else 5m.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('24h')",message="pollInterval is 10s to 24h"
	// +optional
	PollInterval *metav1.Duration `json:"pollInterval,omitempty"`

	// StaleAfter is how old the newest value may be before the source says nothing of now any more, counted from the end of
	// what it tells of: of Kp, three hours. 1m to 168h. Default: 15m for SolarWind, else 4h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="staleAfter is 1m to 168h"
	// +optional
	StaleAfter *metav1.Duration `json:"staleAfter,omitempty"`
}

// SpaceWeatherPlanetaryKIndexSource is the planetary K index of NOAA's Space Weather Prediction Center.
type SpaceWeatherPlanetaryKIndexSource struct {
	// URL of the document, or of https://services.swpc.noaa.gov/json/planetary_k_index_1m.json, which has an estimate each
	// minute: a staleAfter of some minutes goes with it.
	// +kubebuilder:default="https://services.swpc.noaa.gov/products/noaa-planetary-k-index.json"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@]+(/[^#]*)?$`
	// +optional
	URL string `json:"url,omitempty"`
}

// SpaceWeatherSolarWindSource is the real-time solar wind of NOAA's Space Weather Prediction Center.
type SpaceWeatherSolarWindSource struct {
	// MagneticFieldURL is that of the document with Bz.
	// +kubebuilder:default="https://services.swpc.noaa.gov/json/rtsw/rtsw_mag_1m.json"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@]+(/[^#]*)?$`
	// +optional
	MagneticFieldURL string `json:"magneticFieldURL,omitempty"`
	// PlasmaURL is that of the document with the speed.
	// +kubebuilder:default="https://services.swpc.noaa.gov/json/rtsw/rtsw_wind_1m.json"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@]+(/[^#]*)?$`
	// +optional
	PlasmaURL string `json:"plasmaURL,omitempty"`
}

// SpaceWeatherQuantity is a quantity of space weather. Kp is the planetary K index; Bz that component of the interplanetary
// magnetic field in GSM coordinates, in nT; Speed that of the solar wind, in km/s.
// +kubebuilder:validation:Enum=Kp;Bz;Speed
type SpaceWeatherQuantity string

// SpaceWeatherHTTPSource is a document with JSON.
type SpaceWeatherHTTPSource struct {
	// URL of the document.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@]+(/[^#]*)?$`
	// +required
	URL string `json:"url,omitempty"`
	// TimePath is where the document says from when on its values hold, as RFC 3339 has it: a JSONPath as of kubectl, {.time}.
	// Default: values are of when the document was fetched.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +optional
	TimePath string `json:"timePath,omitempty"`
	// ValidFor is how long a value holds from its time on, 1s to 24h. Default: three hours for Kp, a minute for others.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="validFor is 1s to 24h"
	// +optional
	ValidFor *metav1.Duration `json:"validFor,omitempty"`
	// Values that the document has.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +listType=map
	// +listMapKey=quantity
	// +required
	Values []SpaceWeatherHTTPValue `json:"values,omitempty"`
}

// SpaceWeatherHTTPValue is a value of a document.
type SpaceWeatherHTTPValue struct {
	// Quantity that it is of.
	// +required
	Quantity SpaceWeatherQuantity `json:"quantity,omitempty"`
	// Path is where it is: a JSONPath as of kubectl, {.kp}.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +required
	Path string `json:"path,omitempty"`
}

// SpaceWeatherStaticSource are values that never change.
type SpaceWeatherStaticSource struct {
	// Values of quantities.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +listType=map
	// +listMapKey=quantity
	// +required
	Values []SpaceWeatherStaticValue `json:"values,omitempty"`
}

// SpaceWeatherStaticValue is a value of a quantity.
type SpaceWeatherStaticValue struct {
	// Quantity that it is of.
	// +required
	Quantity SpaceWeatherQuantity `json:"quantity,omitempty"`
	// Value as a decimal string: "7.3", "-12".
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,4}(\.[0-9]{1,4})?$`
	// +required
	Value string `json:"value,omitempty"`
}

// SpaceWeatherRecordedSource is a file that is played.
type SpaceWeatherRecordedSource struct {
	// Data of the file: lines of CSV, the first of which names columns: time, and any of kp, bz and speed. Lines that begin with #
	// are comments.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=131072
	// +required
	Data string `json:"data,omitempty"`
	// StartTime is when the first line is played.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +required
	StartTime metav1.Time `json:"startTime"`
	// SpeedUp is how many times faster than it was recorded the file is played.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	SpeedUp int32 `json:"speedUp,omitempty"`
	// Delay is for how long after its end nobody knew a value, up to 24h of the time in which the file was recorded. Kp is published
	// some minutes after its three hours. Default: it is known at once.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="delay is at most 24h"
	// +optional
	Delay *metav1.Duration `json:"delay,omitempty"`
}

// What spec.surge has where it does not say it.
const (
	DefaultSurgeHold            = 6 * time.Hour
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

	// Hold is how long a level lasts after its rules were last fulfilled, 10s to 168h. One that is shorter than some minutes has
	// pods come and go with a signal that flaps: it is for exercises.
	// +kubebuilder:default="6h"
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
// +kubebuilder:validation:XValidation:rule="self.allOf.all(t, !has(t.atLeast) || self.allOf.all(u, u.quantity != t.quantity || !has(u.atMost) || double(t.atLeast) <= double(u.atMost)))",message="no value is above atLeast and below atMost of these thresholds: the rule would never be fulfilled",fieldPath=.allOf
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
// +kubebuilder:validation:XValidation:rule="!has(self.atLeast) || (self.quantity == 'Kp' ? double(self.atLeast) > 0.0 && double(self.atLeast) <= 9.0 : self.quantity == 'Speed' ? double(self.atLeast) > 100.0 && double(self.atLeast) <= 4000.0 : double(self.atLeast) > -200.0 && double(self.atLeast) <= 200.0)",message="choose a value that the quantity can have: Kp is above 0 and at most 9, Speed above 100 and at most 4000 km/s, Bz above -200 and at most 200 nT",fieldPath=.atLeast
// +kubebuilder:validation:XValidation:rule="!has(self.atMost) || double(self.atMost) >= -200.0 && double(self.atMost) < 200.0",message="choose a value that the quantity can have: Bz is at least -200 and below 200 nT",fieldPath=.atMost
// +kubebuilder:validation:XValidation:rule="!has(self.__for__) || self.quantity == 'Kp' || duration(self.__for__) <= duration('2h')",message="for of Bz and Speed is at most 2h: what is older is not kept",fieldPath=.for
// +kubebuilder:validation:XValidation:rule="!has(self.atMost) || self.quantity == 'Bz'",message="atMost is of Bz, whose storms are below 0: Kp and Speed have atLeast",reason=FieldValueForbidden,fieldPath=.atMost
type SurgeThreshold struct {
	// Quantity that is bounded.
	// +required
	Quantity SpaceWeatherQuantity `json:"quantity,omitempty"`
	// AtLeast as a decimal string: "5".
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,4}(\.[0-9]{1,4})?$`
	// +optional
	AtLeast string `json:"atLeast,omitempty"`
	// AtMost as a decimal string: "-10".
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
	// Message says why, in a sentence: value, source, spacecraft and age. It is brought up to date every ten minutes.
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
	// Values that are known, brought up to date every ten minutes.
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
	// Message says by what it was last fulfilled.
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
