// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"
	"time"
)

// MirrorReportInterval is how often a run reports while it lasts; MirrorReportGrace after its last report a run that did
// not say that it ended is not known to be alive.
const (
	MirrorReportInterval = 5 * time.Second
	MirrorReportGrace    = 90 * time.Second
)

// MirrorStatusKey is where a run reports. Run is the name of the Job, or "continuous".
func MirrorStatusKey(partner, run string) string { return "mirror." + partner + "." + run }

// ParseMirrorStatusKey reads what MirrorStatusKey wrote, and returns false for other keys.
func ParseMirrorStatusKey(key string) (partner, run string, ok bool) {
	p := strings.Split(key, ".")
	if len(p) != 3 || p[0] != "mirror" || p[1] == "" || p[2] == "" {
		return "", "", false
	}
	return p[1], p[2], true
}

// MirrorRunContinuous is the run of a continuous mirror, which never ends.
const MirrorRunContinuous = "continuous"

// The ways in which a run is begun: a scheduled or a manual one is one Job. A continuous one never ends. MirrorTimetable is of a program
// that never ends either and begins scheduled runs itself, as MirrorEntry.Schedule says, if nothing starts Jobs.
const (
	MirrorScheduled    = "scheduled"
	MirrorManual       = "manual"
	MirrorContinuously = "continuous"
	MirrorTimetable    = "timetable"
)

// Values of MirrorStatus.Result.
const (
	// MirrorRunning: it has not ended, or without saying so.
	MirrorRunning = "Running"
	// MirrorSucceeded: the other side has all that was selected when the run began, verified as is asked for.
	MirrorSucceeded = "Succeeded"
	// MirrorFailed: something is owed that the run could not move, for Reason.
	MirrorFailed = "Failed"
	// MirrorStopped: the run was stopped, or replaced; the next one resumes.
	MirrorStopped = "Stopped"
)

// Reasons of a MirrorStatus, which become reasons of conditions.
const (
	MirrorReasonUnreachable     = "Unreachable"
	MirrorReasonAccessDenied    = "AccessDenied"
	MirrorReasonHostKeyMismatch = "HostKeyMismatch"
	MirrorReasonCertificate     = "CertificateRefused"
	MirrorReasonPartnerFull     = "PartnerFull"
	MirrorReasonDigestMismatch  = "DigestMismatch"
	MirrorReasonSafetyStop      = "SafetyStop"
	MirrorReasonInvalidTemplate = "InvalidTemplate"
	MirrorReasonMaintenance     = "Maintenance"
	MirrorReasonNotConfirmed    = "PurgeNotConfirmed"
	MirrorReasonProtocol        = "ProtocolError"
	MirrorReasonStore           = "StoreFailed"
	MirrorReasonTooMany         = "TooManyInstruments"
	MirrorReasonNameConflict    = "NameConflict"
	MirrorReasonRefused         = "Refused"
	MirrorReasonOwed            = "Owed"
	MirrorReasonLocal           = "LocalFailed"
	// MirrorReasonHasListeners: spec.paths names an Instrument that has listeners of its own.
	MirrorReasonHasListeners = "InstrumentHasListeners"
)

// MirrorStatus is what a run reports every MirrorReportInterval while it lasts, and once when it ends.
type MirrorStatus struct {
	// Run as in the key, Pod that it runs in; Generation of the MirrorPartner whose entry it follows.
	Run        string `json:"run"`
	Pod        string `json:"pod,omitempty"`
	Generation int64  `json:"generation"`
	// Trigger is MirrorScheduled, MirrorManual or MirrorContinuously. VerifyOnly runs compare and move nothing; Part runs were started to
	// move less than what is selected.
	Trigger    string    `json:"trigger"`
	VerifyOnly bool      `json:"verifyOnly,omitempty"`
	Part       bool      `json:"part,omitempty"`
	StartedAt  time.Time `json:"startedAt"`
	ReportedAt time.Time `json:"reportedAt"`
	// EndedAt is the end of a run that ended; with a continuous mirror, of the last comparison of all that is selected.
	EndedAt time.Time `json:"endedAt,omitzero"`

	// Result is MirrorRunning, MirrorSucceeded, MirrorFailed or MirrorStopped; for a continuous mirror, the result of the last
	// comparison. Reason and Message say why it failed, or what a run that continues waits for (MirrorReasonMaintenance).
	Result  string `json:"result"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`

	// Reached is when the other side answered last and let us in. Unreached says why it does not, by Reason and Message;
	// nil while it does.
	Reached   time.Time      `json:"reached,omitzero"`
	Unreached *MirrorProblem `json:"unreached,omitempty"`
	Progress  MirrorProgress `json:"progress"`
	// Owed is absent until the run has looked at everything that is selected.
	Owed *MirrorOwed     `json:"owed,omitempty"`
	Path *MirrorPathSeen `json:"path,omitempty"`
	// VerifiedTo: all that is selected and was received before is known to be at the other side, as verify says.
	VerifiedTo time.Time `json:"verifiedTo,omitzero"`
	// Purges that are asked of the partner and not confirmed.
	Purges int64 `json:"purges,omitempty"`
	// WentBack says how runs found that the Site that is pulled from was installed again or restored; nil: they did not.
	WentBack *MirrorWentBack `json:"wentBack,omitempty"`
	// OriginClock says why the clock of the Site that is pulled from cannot be believed; empty: it can, or nothing is known of it.
	OriginClock string `json:"originClock,omitempty"`
	// Unawaited says why the Site that is pulled from does not wait for this mirror before data expires there; nil: it does, or nothing is
	// known of it.
	Unawaited *MirrorUnawaited `json:"unawaited,omitempty"`
}

// MirrorUnawaited is why another Site does not wait for a mirror.
type MirrorUnawaited struct {
	// Reader is who the mirror is there; empty: nothing that has a name.
	Reader string `json:"reader,omitempty"`
	// Refused is what that Site answers to what was confirmed; empty: nothing was, since the Site did not ask for it.
	Refused string `json:"refused,omitempty"`
	// Old: that Site is of a version that does not say whom it waits for.
	Old bool `json:"old,omitempty"`
}

// MirrorWentBack are the signs that another Site was installed again under its code, or restored from an older backup, since runs began
// or the last one was forced.
type MirrorWentBack struct {
	// Objects are how many objects it lists with other bytes than it had listed under their IDs, and Days how many days of its
	// instruments it no longer lists although objects of them are here.
	Objects int64 `json:"objects,omitempty"`
	Days    int64 `json:"days,omitempty"`
	// Unlisted are how many objects are here that it does not list any more among the others of their days.
	Unlisted int64 `json:"unlisted,omitempty"`
	// Retracted are how many retractions and purges are in effect here that it no longer lists, and that were not reverted there.
	Retracted int64 `json:"retracted,omitempty"`
	// Instrument is one of those concerned, by its name there, and Path the path of one of the Objects.
	Instrument string    `json:"instrument"`
	Path       string    `json:"path,omitempty"`
	Since      time.Time `json:"since"`
}

// MirrorProblem is why something is not as it should be.
type MirrorProblem struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Since when.
	Since time.Time `json:"since"`
}

// MirrorProgress counts what a run did; for a continuous mirror, since it began.
type MirrorProgress struct {
	// Objects and Bytes that were moved, of TotalObjects and TotalBytes that are to be moved as far as is known.
	Objects      int64 `json:"objects"`
	Bytes        int64 `json:"bytes"`
	TotalObjects int64 `json:"totalObjects"`
	TotalBytes   int64 `json:"totalBytes"`
	// Compared objects that the other side was found to have.
	Compared int64 `json:"compared"`
	// BytesPerSecond on the average of the last minute.
	BytesPerSecond int64 `json:"bytesPerSecond"`
	// Removed at the other side (of a pull: here); Failed could not be moved; Quarantined belong to no Instrument;
	// Empty have no bytes, so they cannot be objects; BadNames have names that no object can have.
	Removed     int64 `json:"removed,omitempty"`
	Failed      int64 `json:"failed,omitempty"`
	Quarantined int64 `json:"quarantined,omitempty"`
	Empty       int64 `json:"empty,omitempty"`
	BadNames    int64 `json:"badNames,omitempty"`
	// Ends is when the run ends at this rate; zero if unknown.
	Ends time.Time `json:"ends,omitzero"`
}

// MirrorOwed is what is selected and not at the other side.
type MirrorOwed struct {
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
	// Oldest is when the oldest of them was received.
	Oldest time.Time `json:"oldest,omitzero"`
}

// MirrorPathSeen is what was measured of the way to the other side.
type MirrorPathSeen struct {
	RoundTripMicros int64 `json:"roundTripMicros"`
	// DeliveryBytesPerSecond of one connection, and BufferBytes that its bandwidth-delay product asks for.
	DeliveryBytesPerSecond int64 `json:"deliveryBytesPerSecond,omitempty"`
	BufferBytes            int64 `json:"bufferBytes,omitempty"`
	// Connections that are open.
	Connections int `json:"connections"`
	// RetransmitPermille of the segments that were sent.
	RetransmitPermille int64 `json:"retransmitPermille,omitempty"`
}

// PullerStatusKey is where a feed server reports what a reader that pulls has confirmed last.
func PullerStatusKey(reader string) string { return pullerStatus + reader }

const pullerStatus = "puller."

// ParsePullerStatusKey returns the reader that a key names, and false for other keys.
func ParsePullerStatusKey(key string) (string, bool) { return named(key, pullerStatus) }

// PullerStatus is what a reader that pulls said of its last run.
type PullerStatus struct {
	ReportedAt time.Time `json:"reportedAt"`
	// VerifiedTo: all that the reader pulls and was received before is there; zero: the reader lacks something since it began.
	VerifiedTo time.Time `json:"verifiedTo,omitzero"`
	// ComparedAt is when a run last found there all that the reader had confirmed, by looking at the bytes or at what the store there has
	// of them; zero: never, or a run found since that some were lost.
	ComparedAt time.Time `json:"comparedAt,omitzero"`
	// Owed is what the run could not pull.
	Owed MirrorOwed `json:"owed"`
}
