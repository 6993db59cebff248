// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	// +kubebuilder:validation:XValidation:rule="self.lastIndexOf('{') == 0 && self.endsWith('}') && !self.contains('..') && !self.contains(',')",message="a path leads to one place, in one pair of braces, as {.data[*].kp} does: no .. and no commas"
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
	// +kubebuilder:validation:XValidation:rule="self.lastIndexOf('{') == 0 && self.endsWith('}') && !self.contains('..') && !self.contains(',')",message="a path leads to one place, in one pair of braces, as {.data[*].kp} does: no .. and no commas"
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
// +kubebuilder:validation:XValidation:rule="self.quantity == 'Kp' ? double(self.value) >= 0.0 && double(self.value) <= 9.0 : self.quantity == 'Speed' ? double(self.value) >= 100.0 && double(self.value) <= 4000.0 : double(self.value) >= -200.0 && double(self.value) <= 200.0",message="choose a value that the quantity can have: Kp is 0 to 9, Speed 100 to 4000 km/s, Bz -200 to 200 nT",fieldPath=.value
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
