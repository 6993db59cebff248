// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// ObservesMode says when an instrument observes.
// +kubebuilder:validation:Enum=Always;SunBelow;Daily
type ObservesMode string

// The values of ObservesMode.
const (
	ObservesAlways   ObservesMode = "Always"
	ObservesSunBelow ObservesMode = "SunBelow"
	ObservesDaily    ObservesMode = "Daily"
)

// Observes says when an instrument observes. At other times no data is due: silence is
// no gap and no alert. What comes all the same is received.
// +kubebuilder:validation:XValidation:rule="self.mode != 'SunBelow' || has(self.sunElevationDegrees)",message="with the mode SunBelow set sunElevationDegrees"
// +kubebuilder:validation:XValidation:rule="self.mode != 'Daily' || has(self.from) && has(self.to) && self.from != self.to",message="with the mode Daily set from and to, and not to the same time"
// +kubebuilder:object:generate=false
type Observes struct {
	// Mode: Always; SunBelow, while the sun at spec.location is lower than
	// sunElevationDegrees; Daily, from one time of day to another.
	// +required
	Mode ObservesMode `json:"mode"`

	// SunElevationDegrees above the horizon, as a decimal string, negative below it:
	// "-10". For SunBelow.
	// +kubebuilder:validation:Pattern=`^-?([0-8]?[0-9](\.[0-9]{1,4})?|90(\.0{1,4})?)$`
	// +optional
	SunElevationDegrees string `json:"sunElevationDegrees,omitempty"`

	// From is the time of day in UTC at which it begins, as "18:00". For Daily.
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	// +optional
	From string `json:"from,omitempty"`

	// To is the time of day in UTC at which it ends; before From, it is the next
	// day's. For Daily.
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	// +optional
	To string `json:"to,omitempty"`
}
