// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MirrorSchedule says when runs begin, as a CronJob does.
type MirrorSchedule struct {
	// Cron is the times at which runs begin: minute, hour, day of the month, month and day of the week (0 to 6, from Sunday on), or
	// @hourly, @daily, @weekly, @monthly or @yearly. "15 2 * * *" is each day at 02:15.
	// +kubebuilder:validation:MinLength=6
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|(([*?]|[0-5]?[0-9](-[0-5]?[0-9])?)(/[1-9][0-9]?)?)(,([*?]|[0-5]?[0-9](-[0-5]?[0-9])?)(/[1-9][0-9]?)?)* (([*?]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]?)?)(,([*?]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]?)?)* (([*?]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]?)?)(,([*?]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]?)?)* (([*?]|(0?[1-9]|1[0-2]|[A-Za-z]{3})(-(0?[1-9]|1[0-2]|[A-Za-z]{3}))?)(/[1-9][0-9]?)?)(,([*?]|(0?[1-9]|1[0-2]|[A-Za-z]{3})(-(0?[1-9]|1[0-2]|[A-Za-z]{3}))?)(/[1-9][0-9]?)?)* (([*?]|([0-6]|[A-Za-z]{3})(-([0-6]|[A-Za-z]{3}))?)(/[1-9][0-9]?)?)(,([*?]|([0-6]|[A-Za-z]{3})(-([0-6]|[A-Za-z]{3}))?)(/[1-9][0-9]?)?)*)$')",message="cron is five fields, minute, hour, day of the month, month and day of the week (0 or SUN is Sunday, 6 or SAT is Saturday), or @hourly, @daily, @weekly, @monthly or @yearly: '15 2 * * *' is each day at 02:15"
	// +required
	Cron string `json:"cron,omitempty"`

	// TimeZone in which cron is read, by its name in the tz database: Europe/Oslo. Where clocks are turned forward, a run of
	// the hour that is left out does not begin that day; where they are turned back, one of the hour that comes twice begins
	// twice, and the second finds what the first moved. Neither happens in Etc/UTC.
	// +kubebuilder:default="Etc/UTC"
	// +optional
	TimeZone TimeZone `json:"timeZone,omitempty"`

	// StartingDeadline is how late a run may begin that could not begin in time, while the cluster was down say: later it is
	// missed. 10s to 8784h. Default: no limit; of several that are late one begins.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('8784h')",message="startingDeadline is 10s to 8784h"
	// +optional
	StartingDeadline *metav1.Duration `json:"startingDeadline,omitempty"`

	// ConcurrencyPolicy says what becomes of a run whose time has come while the one before still lasts. Forbid: one begins
	// when that has ended, unless startingDeadline is over, however many times have come. Replace: the one before is stopped,
	// and the new one resumes what that had begun.
	// +kubebuilder:default=Forbid
	// +optional
	ConcurrencyPolicy MirrorConcurrency `json:"concurrencyPolicy,omitempty"`

	// SuccessfulRunsHistoryLimit is how many Jobs of runs that succeeded are kept, with their logs.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	SuccessfulRunsHistoryLimit *int32 `json:"successfulRunsHistoryLimit,omitempty"`

	// FailedRunsHistoryLimit is how many Jobs of runs that failed are kept, with their logs.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	FailedRunsHistoryLimit *int32 `json:"failedRunsHistoryLimit,omitempty"`
}

// TimeZone is the name of a time zone in the tz database.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$`
// +kubebuilder:validation:XValidation:rule="self != 'Local' && self != 'local'",message="Local is another time zone on each node: name one of the tz database, such as Europe/Oslo"
type TimeZone string

// MirrorConcurrency says what becomes of a run whose time has come while the one before still lasts.
// +kubebuilder:validation:Enum=Forbid;Replace
type MirrorConcurrency string

// The values of MirrorConcurrency.
const (
	MirrorForbid  MirrorConcurrency = "Forbid"
	MirrorReplace MirrorConcurrency = "Replace"
)

// MirrorContinuous is a mirror that follows what is announced: of a push the notices of the Site. A pull has the interval
// alone: of another Substorm, of which nothing is new, that is one conditional request.
type MirrorContinuous struct {
	// Interval between two comparisons of all that is selected with what the other side has: 10s to 8784h. Default: 1h.
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('8784h')",message="interval is 10s to 8784h"
	// +optional
	Interval *metav1.Duration `json:"interval,omitempty"`
}

// MirrorLimits say how fast a run may be, and when.
type MirrorLimits struct {
	// BytesPerSecond that a run moves at most, of an S3 bucket also those that are read back to verify them: 1Ki to 1Pi.
	// Default: no limit.
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || (!quantity(string(self)).isLessThan(quantity('1Ki')) && !quantity(string(self)).isGreaterThan(quantity('1Pi')))",message="bytesPerSecond is 1Ki to 1Pi"
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('e|E')",message="write digits and a unit, such as 64Mi, and no exponent"
	// +optional
	BytesPerSecond *resource.Quantity `json:"bytesPerSecond,omitempty"`

	// Connections that a run has open at a time, at most: fewer where fewer are as fast.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	// +kubebuilder:default=8
	// +optional
	Connections int32 `json:"connections,omitempty"`

	// TimeZone of timetable and maintenance, by its name in the tz database: Europe/Oslo.
	// +kubebuilder:default="Etc/UTC"
	// +optional
	TimeZone TimeZone `json:"timeZone,omitempty"`

	// Timetable has rates that hold at certain times in place of bytesPerSecond: the first whose time it is. At most seven.
	// +kubebuilder:validation:MaxItems=7
	// +listType=atomic
	// +optional
	Timetable []MirrorRate `json:"timetable,omitempty"`

	// Maintenance are windows in which nothing is moved, as while the partner's storage is serviced. A run that is under way
	// waits for the end of the window.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Maintenance []MirrorWindow `json:"maintenance,omitempty"`
}

// MirrorRate is a rate at certain times of the week.
// +kubebuilder:validation:XValidation:rule="self.from != self.to",message="from and to are not the same time: a rate that always holds is limits.bytesPerSecond",fieldPath=.to
type MirrorRate struct {
	// Days of the week on which it begins. Default: each day.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=7
	// +listType=set
	// +optional
	Days []Weekday `json:"days,omitempty"`

	// From is the time of day at which it begins, as "08:00".
	// +required
	From TimeOfDay `json:"from,omitempty"`

	// To is the time of day at which it ends; before From, it is the next day's.
	// +required
	To TimeOfDay `json:"to,omitempty"`

	// BytesPerSecond that a run moves at most: 1Ki to 1Pi.
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || !quantity(string(self)).isLessThan(quantity('1Ki'))",message="bytesPerSecond is at least 1Ki"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('e|E') || !quantity(string(self)).isGreaterThan(quantity('1Pi'))",message="bytesPerSecond is at most 1Pi"
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('e|E')",message="write digits and a unit, such as 64Mi, and no exponent"
	// +required
	BytesPerSecond resource.Quantity `json:"bytesPerSecond,omitzero"`
}

// MirrorWindow is a part of some days of the week.
// +kubebuilder:validation:XValidation:rule="self.from != self.to",message="from and to are not the same time: a mirror that is always in maintenance has state Suspended",fieldPath=.to
type MirrorWindow struct {
	// Days of the week on which it begins. Default: each day.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=7
	// +listType=set
	// +optional
	Days []Weekday `json:"days,omitempty"`

	// From is the time of day at which it begins, as "22:00".
	// +required
	From TimeOfDay `json:"from,omitempty"`

	// To is the time of day at which it ends; before From, it is the next day's.
	// +required
	To TimeOfDay `json:"to,omitempty"`
}

// TimeOfDay is hour and minute.
// +kubebuilder:validation:MinLength=5
// +kubebuilder:validation:MaxLength=5
// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
type TimeOfDay string

// Weekday is a day of the week.
// +kubebuilder:validation:Enum=Monday;Tuesday;Wednesday;Thursday;Friday;Saturday;Sunday
type Weekday string

// The values of Weekday.
const (
	Monday    Weekday = "Monday"
	Tuesday   Weekday = "Tuesday"
	Wednesday Weekday = "Wednesday"
	Thursday  Weekday = "Thursday"
	Friday    Weekday = "Friday"
	Saturday  Weekday = "Saturday"
	Sunday    Weekday = "Sunday"
)
