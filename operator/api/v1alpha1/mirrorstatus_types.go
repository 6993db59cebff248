// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Conditions of a MirrorPartner.
const (
	// ConditionReachable is True while the other side answers and lets us in, as the last run found; Unknown before the first
	// run and before the first after a change of the spec, and where a run that lasts does not report.
	ConditionReachable = "Reachable"
	// ConditionSynced is True where the last run moved and verified all that was selected when it began; False where something is
	// owed that it could not move; Unknown before the first run has ended, and before the first has that began after a change of
	// the spec.
	ConditionSynced = "Synced"
	// ConditionOriginConsistent of a pull from another Substorm is True while that Site lists what it listed before. False/WentBack: it
	// was installed again under its code, or restored from an older backup. What was pulled before stays beside what is new. It stays
	// False until a run with --force. False/ClockOff: the clock of that Site is off by more than a day, or shows an earlier time than
	// before, until it is right. Unknown before the first run has reported.
	ConditionOriginConsistent = "OriginConsistent"
	// ConditionOriginWaits of a pull from another Substorm is True while that Site waits for this mirror before data expires there, up to the
	// holdRetention that it declares. While it is False, what expires there before a run has pulled it is lost to this mirror; the
	// message says what to write there. Unknown before the first run has listed all.
	ConditionOriginWaits = "OriginWaits"
)

// Reasons that runs report, for Reachable, Synced and status.runs; internal/wire has the same, for the programs.
const (
	// ReasonHostKeyMismatch: the host shows another key than known_hosts has. Nothing is sent to it.
	ReasonHostKeyMismatch = "HostKeyMismatch"
	// ReasonCertificateRefused: the certificate of the other side is expired, of another name, or signed by an authority that we do
	// not know; or the other side refuses ours.
	ReasonCertificateRefused = "CertificateRefused"
	// ReasonPartnerFull: the partner has no space left.
	ReasonPartnerFull = "PartnerFull"
	// ReasonDigestMismatch: a copy does not have the digest of its original, or the other side tells a digest that its bytes do
	// not have.
	ReasonDigestMismatch = "DigestMismatch"
	// ReasonSafetyStop: the run would remove more copies than spec.safetyStopPercent allows, and removes none; or more instruments of
	// the origin of a pull are missing there, and the run closes none of them. The message has the command that accepts it.
	ReasonSafetyStop = "SafetyStop"
	// ReasonMaintenance: the run waits for the end of a window of spec.limits.maintenance.
	ReasonMaintenance = "Maintenance"
	// ReasonPurgeNotConfirmed: the partner has not confirmed that it removed what was purged here.
	ReasonPurgeNotConfirmed = "PurgeNotConfirmed"
	// ReasonProtocolError: the other side answers something that the protocol does not have, or does not take a file.
	ReasonProtocolError = "ProtocolError"
	// ReasonStoreFailed: the Site's own object store, or what it keeps of manifests and packs, does not give what the run needs, or lost it.
	ReasonStoreFailed = "StoreFailed"
	// ReasonLocalFailed: something else here does not do what the run needs, as NATS, a gateway, the archivist, or the disk for what is on
	// its way. The message says which.
	ReasonLocalFailed = "LocalFailed"
	// ReasonOwed: a run that only verifies found that objects are to be moved.
	ReasonOwed = "Owed"
	// ReasonTooManyInstruments: a pull brings more instruments of another Site than may stand beside the Site's own.
	ReasonTooManyInstruments = "TooManyInstruments"
	// ReasonNameConflict: a file of the other side changed, and its Instrument keeps no versions.
	ReasonNameConflict = "NameConflict"
)

// Reasons of a MirrorPartner's conditions that the operator finds.
const (
	// ReasonComplete: all that was selected when the last run began is at the other side.
	ReasonComplete = "Complete"
	// ReasonConsistent: the Site that is pulled from lists what it listed before.
	ReasonConsistent = "Consistent"
	// ReasonWentBack: the Site that is pulled from gave IDs of objects that are here to other bytes, or does not list objects any more
	// that are here, or whole days of them.
	ReasonWentBack = "WentBack"
	// ReasonAwaited: the Site that is pulled from waits for what this mirror confirms.
	ReasonAwaited = "Awaited"
	// ReasonNotAwaited: spec.pulledBy of the Site that is pulled from does not name the reader whose token is shown, or none is shown.
	ReasonNotAwaited = "NotAwaited"
	// ReasonConfirmationRefused: the Site that is pulled from does not take what this mirror confirms.
	ReasonConfirmationRefused = "ConfirmationRefused"
	// ReasonOriginTooOld: the Site that is pulled from is of a version that waits for no mirror.
	ReasonOriginTooOld = "OriginTooOld"
	// ReasonNotRun: no run has reported yet, or none since the spec was changed; of Reachable also: the run failed before it knew whether the other side answers.
	ReasonNotRun = "NotRun"
	// ReasonNotReporting: a run that lasts has not reported for a while.
	ReasonNotReporting = "NotReporting"
	// ReasonSuspended: spec.state is Suspended, and no run begins by itself.
	ReasonSuspended = "Suspended"
	// ReasonMissed: no run began at its time.
	ReasonMissed = "Missed"
	// ReasonInvalidSchedule: spec.schedule.cron cannot be read, or names no day that there is.
	ReasonInvalidSchedule = "InvalidSchedule"
	// ReasonUnknownTimeZone: the tz database has no time zone of that name.
	ReasonUnknownTimeZone = "UnknownTimeZone"
	// ReasonInvalidTemplate: spec.layout.template cannot be read, or gives an object no path, or that of another object or folder.
	ReasonInvalidTemplate = "InvalidTemplate"
	// ReasonInstrumentNotFound: spec.paths names an Instrument that the Site does not have.
	ReasonInstrumentNotFound = "InstrumentNotFound"
	// ReasonInstrumentHasListeners: spec.paths names an Instrument that has listeners of its own, whose names a pull must not take.
	ReasonInstrumentHasListeners = "InstrumentHasListeners"
	// ReasonRunFailed: the last run ended without saying why.
	ReasonRunFailed = "RunFailed"
)

// MirrorPartnerStatus answers: can the partner be reached, does it have what it should, and when is it next?
type MirrorPartnerStatus struct {
	// ObservedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: Ready, Accepted, InstrumentsSelected, Reachable, Synced, OriginConsistent, OriginWaits, Reconciling, Stalled. Ready says whether runs
	// begin as declared; Reachable, Synced, OriginConsistent and OriginWaits what the runs found.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// NextRunTime is when the next scheduled run begins; absent while suspended, and where the mirror is continuous.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	NextRunTime *metav1.Time `json:"nextRunTime,omitempty"`

	// ScheduledFromTime is since when spec.schedule holds as it is declared now: a run that would have begun before it was not
	// missed. Absent while suspended, and where the mirror is continuous.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	ScheduledFromTime *metav1.Time `json:"scheduledFromTime,omitempty"`

	// LastRunTime is when the last run began.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	LastRunTime *metav1.Time `json:"lastRunTime,omitempty"`

	// LastSuccessTime is when the last run ended that succeeded and was told to move no part alone.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	LastSuccessTime *metav1.Time `json:"lastSuccessTime,omitempty"`

	// VerifiedToTime: all that is selected and was received before it is known to be at the other side, as spec.verify says.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	VerifiedToTime *metav1.Time `json:"verifiedToTime,omitempty"`

	// Owed is what is selected and not at the other side, as the run knows that reported last. It is brought up to date every
	// ten minutes, as are progress and path; `kubectl substorm status` and metrics are newer.
	// +optional
	Owed *MirrorOwed `json:"owed,omitempty"`

	// Progress of the run that lasts; absent while none does.
	// +optional
	Progress *MirrorProgress `json:"progress,omitempty"`

	// Path is what was measured of the way to the other side last.
	// +optional
	Path *MirrorPathStatus `json:"path,omitempty"`

	// UnconfirmedPurgeCount is how many purges the partner had not confirmed at the end of the last run that looked at everything.
	// Those that came since are in `substorm archive report`.
	// +optional
	UnconfirmedPurgeCount *int64 `json:"unconfirmedPurgeCount,omitempty"`

	// Runs are the last ten, the newest first.
	// +kubebuilder:validation:MaxItems=10
	// +listType=map
	// +listMapKey=name
	// +optional
	Runs []MirrorRun `json:"runs,omitempty"`

	// Credentials are the NATS credentials that the movers have; absent where the Site gives the operator no account key.
	// +optional
	Credentials *CredentialsStatus `json:"credentials,omitempty"`
}

// MirrorOwed is what is selected and not at the other side.
type MirrorOwed struct {
	// ObjectCount is how many objects are owed.
	// +required
	ObjectCount int64 `json:"objectCount"`
	// Bytes of them.
	// +required
	Bytes int64 `json:"bytes"`
	// OldestTime is when the oldest of them was received; absent where nothing is owed.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	OldestTime *metav1.Time `json:"oldestTime,omitempty"`
}

// MirrorProgress is how far a run is.
type MirrorProgress struct {
	// Run is its name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Run string `json:"run,omitempty"`
	// ObjectCount is how many objects were moved.
	// +required
	ObjectCount int64 `json:"objectCount"`
	// TotalObjectCount is how many are to be moved, as far as is known.
	// +required
	TotalObjectCount int64 `json:"totalObjectCount"`
	// Bytes that were moved.
	// +required
	Bytes int64 `json:"bytes"`
	// TotalBytes that are to be moved, as far as is known.
	// +required
	TotalBytes int64 `json:"totalBytes"`
	// ComparedCount is how many objects the other side was found to have already.
	// +required
	ComparedCount int64 `json:"comparedCount"`
	// BytesPerSecond that are moved, on the average of the last minute.
	// +required
	BytesPerSecond int64 `json:"bytesPerSecond"`
	// EndTime is when the run ends at this rate; absent where nobody knows.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
}

// MirrorPathStatus is what was measured of the way to the other side.
type MirrorPathStatus struct {
	// RoundTripMicroseconds of a connection, smoothed by the kernel.
	// +required
	RoundTripMicroseconds int64 `json:"roundTripMicroseconds"`
	// BytesPerSecond that one connection delivers.
	// +optional
	BytesPerSecond *int64 `json:"bytesPerSecond,omitempty"`
	// BufferBytes that its bandwidth-delay product asks for.
	// +optional
	BufferBytes *int64 `json:"bufferBytes,omitempty"`
	// ConnectionCount is how many were open.
	// +required
	ConnectionCount int32 `json:"connectionCount"`
}

// MirrorRun is one run.
type MirrorRun struct {
	// Name of the run, which is that of its Job; continuous, with a continuous mirror.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name,omitempty"`
	// Trigger: Scheduled, or Manual by `kubectl substorm mirror run`, or Continuous.
	// +required
	Trigger MirrorTrigger `json:"trigger,omitempty"`
	// Result: Running; Succeeded; Failed; Stopped: it was told to stop, and the next one resumes.
	// +required
	Result MirrorResult `json:"result,omitempty"`
	// StartTime is when it began.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +required
	StartTime metav1.Time `json:"startTime"`
	// EndTime is when it ended.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// ObjectCount is how many objects it moved.
	// +optional
	ObjectCount int64 `json:"objectCount,omitempty"`
	// Bytes that it moved.
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// RemovedCount is how many copies it removed.
	// +optional
	RemovedCount int64 `json:"removedCount,omitempty"`
	// FailedCount is how many objects it could not move.
	// +optional
	FailedCount int64 `json:"failedCount,omitempty"`
	// QuarantinedCount is how many files of a pull belong to no Instrument, and were left where they are.
	// +optional
	QuarantinedCount int64 `json:"quarantinedCount,omitempty"`
	// Reason why it failed, or what it waits for.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message says it in words.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
}

// MirrorTrigger is what began a run.
// +kubebuilder:validation:Enum=Scheduled;Manual;Continuous
type MirrorTrigger string

// The values of MirrorTrigger.
const (
	MirrorTriggerScheduled  MirrorTrigger = "Scheduled"
	MirrorTriggerManual     MirrorTrigger = "Manual"
	MirrorTriggerContinuous MirrorTrigger = "Continuous"
)

// MirrorResult is how a run ended.
// +kubebuilder:validation:Enum=Running;Succeeded;Failed;Stopped
type MirrorResult string

// The values of MirrorResult.
const (
	MirrorRunning   MirrorResult = "Running"
	MirrorSucceeded MirrorResult = "Succeeded"
	MirrorFailed    MirrorResult = "Failed"
	MirrorStopped   MirrorResult = "Stopped"
)
