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
// no gap and no alert. What comes all the same is received. Mode says which of the members is set.
// +kubebuilder:validation:XValidation:rule="(self.mode == 'SunBelow') == has(self.sunBelow)",message="sunBelow is set exactly when mode is SunBelow",fieldPath=".sunBelow"
// +kubebuilder:validation:XValidation:rule="(self.mode == 'Daily') == has(self.daily)",message="daily is set exactly when mode is Daily",fieldPath=".daily"
type Observes struct {
	// Mode: Always; SunBelow, while the sun at spec.location is lower than a height
	// above the horizon; Daily, from one time of day to another.
	// +required
	Mode ObservesMode `json:"mode,omitempty"`

	// SunBelow says how low the sun is while the instrument observes.
	// +optional
	SunBelow *SunBelow `json:"sunBelow,omitempty"`

	// Daily says from when to when the instrument observes each day.
	// +optional
	Daily *Daily `json:"daily,omitempty"`
}

// SunBelow is the height of the sun below which an instrument observes.
// +kubebuilder:object:generate=false
type SunBelow struct {
	// ElevationDegrees of the sun's center above the horizon, as a decimal string,
	// negative below it: "-10".
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:Pattern=`^-?([0-8]?[0-9](\.[0-9]{1,4})?|90(\.0{1,4})?)$`
	// +required
	ElevationDegrees string `json:"elevationDegrees,omitempty"`
}

// Daily is the part of each day in which an instrument observes.
// +kubebuilder:validation:XValidation:rule="self.from != self.to",message="from and to are not the same time: who observes all day has the mode Always",fieldPath=".to"
// +kubebuilder:object:generate=false
type Daily struct {
	// From is the time of day in UTC at which it begins, as "18:00".
	// +kubebuilder:validation:MinLength=5
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	// +required
	From string `json:"from,omitempty"`

	// To is the time of day in UTC at which it ends; before From, it is the next
	// day's.
	// +kubebuilder:validation:MinLength=5
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	// +required
	To string `json:"to,omitempty"`
}
