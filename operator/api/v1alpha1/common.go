// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// LocalReference names an object in the same namespace.
type LocalReference struct {
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// Location is a place on Earth, WGS 84.
type Location struct {
	// Degrees north of the equator, as a decimal string: "69.66" or "-77.85".
	// +kubebuilder:validation:Pattern=`^-?([0-8]?[0-9](\.[0-9]{1,8})?|90(\.0{1,8})?)$`
	// +required
	Latitude string `json:"latitude"`

	// Degrees east of Greenwich, as a decimal string: "18.94" or "-94.64".
	// +kubebuilder:validation:Pattern=`^-?((1[0-7][0-9]|[0-9]?[0-9])(\.[0-9]{1,8})?|180(\.0{1,8})?)$`
	// +required
	Longitude string `json:"longitude"`

	// Meters above the ellipsoid.
	// +kubebuilder:validation:Minimum=-500
	// +kubebuilder:validation:Maximum=9000
	// +optional
	AltitudeMeters *int32 `json:"altitudeMeters,omitempty"`
}

// TLS says how a backend is recognized and how we show who we are.
type TLS struct {
	// SecretRef names a Secret with ca.crt (the authority that signed the
	// backend's certificate) and, where the backend asks for a client
	// certificate, tls.crt and tls.key.
	// +required
	SecretRef LocalReference `json:"secretRef"`
}

// Condition types that several kinds share. They follow kstatus: Ready is True
// once the latest generation is in effect; Reconciling and Stalled exist only
// while they are True.
const (
	// ConditionReady speaks of our work, not of the instrument's.
	ConditionReady = "Ready"
	// ConditionReconciling is present while a change is on its way.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is present while only a change of the resource, or of
	// something it names, can help.
	ConditionStalled = "Stalled"
	// ConditionAccepted is False where the resource contradicts another one or
	// names a resource of ours that is missing.
	ConditionAccepted = "Accepted"
	// ConditionDataFlowing of an Instrument: True while data arrives in cadence;
	// False with reason Overdue is an alert, with NotObserving it is not;
	// Unknown: no gateway has reported for a grace period, or no data is due yet
	// (AwaitingData, NotAccepted). Of a Site: the same, summed up.
	ConditionDataFlowing = "DataFlowing"
)

// AnnotationTakeOver on a Site names the uid in another Site's marker that may
// be replaced by ours: for a Site that moves to another cluster or name with
// its archive.
const AnnotationTakeOver = "substorm.dev/take-over"

// Reasons of conditions. A reason is part of the API: it does not change.
const (
	ReasonReady       = "Ready"
	ReasonAccepted    = "Accepted"
	ReasonReconciling = "Reconciling"

	// ReasonConflict: another, older resource holds the port or the code.
	ReasonConflict = "Conflict"
	// ReasonSiteNotFound: siteRef names no Site in this namespace.
	ReasonSiteNotFound = "SiteNotFound"
	// ReasonSiteNotReady: the Site exists and is not Ready.
	ReasonSiteNotReady = "SiteNotReady"
	// ReasonGatewayNotFound: no IngestGateway serves this Instrument.
	ReasonGatewayNotFound = "GatewayNotFound"
	// ReasonGatewayAmbiguous: the Site has several IngestGateways and the
	// Instrument names none.
	ReasonGatewayAmbiguous = "GatewayAmbiguous"
	// ReasonSecretNotFound: a Secret that the resource names does not exist.
	ReasonSecretNotFound = "SecretNotFound"
	// ReasonSecretIncomplete: a Secret lacks a key, or holds one that cannot be read.
	ReasonSecretIncomplete = "SecretIncomplete"
	// ReasonPortOutOfRange: the port is outside the IngestGateway's range.
	ReasonPortOutOfRange = "PortOutOfRange"
	// ReasonTLSNotConfigured: a way asks for TLS that its IngestGateway has no
	// certificate, or no client authority, for.
	ReasonTLSNotConfigured = "TLSNotConfigured"
	// ReasonInvalidSource: a way names a source that is no CIDR.
	ReasonInvalidSource = "InvalidSource"
	// ReasonUnreachable: a backend does not answer.
	ReasonUnreachable = "Unreachable"
	// ReasonAccessDenied: a backend answers and refuses our credentials.
	ReasonAccessDenied = "AccessDenied"
	// ReasonRefused: a backend answers and does not do what we need.
	ReasonRefused = "Refused"
	// ReasonNotTried: a backend is left alone until the resource is accepted.
	ReasonNotTried = "NotTried"
	// ReasonApplyFailed: the API server refused an object that the resource needs.
	ReasonApplyFailed = "ApplyFailed"
	// ReasonReachable: a backend answers and does what we need.
	ReasonReachable = "Reachable"
	// ReasonProgressing: pods are not all ready yet.
	ReasonProgressing = "Progressing"
	// ReasonRetired: the Instrument is retired and receives nothing.
	ReasonRetired = "Retired"
)
