// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LocalReference names an object in the same namespace.
// +kubebuilder:object:generate=false
type LocalReference struct {
	// Name of the object, which is in the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +required
	Name string `json:"name,omitempty"`
}

// Annotations are those that somebody adds to an object of the operator's.
// +kubebuilder:validation:MaxProperties=32
// +kubebuilder:validation:XValidation:rule="self.all(key, !key.matches('^([^/]*[.])?(substorm[.]dev|app[.]kubernetes[.]io)/'))",message="annotations below substorm.dev/ and app.kubernetes.io/ are the operator's",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="self.all(key, key.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="an annotation's key is a name of at most 63 letters, digits, dashes, underscores and dots, after a DNS name and a slash or nothing"
type Annotations map[string]string

// Location is a place on Earth, WGS 84.
type Location struct {
	// Latitude in degrees north of the equator, as a decimal string: "69.66" or "-77.85".
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self.matches('^-?([0-8]?[0-9]([.][0-9]{1,8})?|90([.]0{1,8})?)$')",message="a latitude is a number of degrees from -90 to 90, such as 69.66, with at most 8 decimals"
	// +required
	Latitude string `json:"latitude,omitempty"`

	// Longitude in degrees east of Greenwich, as a decimal string: "18.94" or "-94.64".
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self.matches('^-?((1[0-7][0-9]|[0-9]?[0-9])([.][0-9]{1,8})?|180([.]0{1,8})?)$')",message="a longitude is a number of degrees from -180 to 180, such as -94.64, with at most 8 decimals"
	// +required
	Longitude string `json:"longitude,omitempty"`

	// AltitudeMeters above the ellipsoid of WGS 84: -500 to 9000.
	// +kubebuilder:validation:Minimum=-500
	// +kubebuilder:validation:Maximum=9000
	// +optional
	AltitudeMeters *int32 `json:"altitudeMeters,omitempty"`
}

// Resources are what a container asks for and may use, as in a Pod.
type Resources struct {
	// Limits are the most that the container may use: cpu, memory.
	// +kubebuilder:validation:MaxProperties=4
	// +kubebuilder:validation:XValidation:rule="self.all(name, !string(self[name]).matches('e|E') && isQuantity(string(self[name])))",message="each limit is a quantity such as 500m or 1Gi, without an exponent"
	// +optional
	Limits corev1.ResourceList `json:"limits,omitempty"`

	// Requests are what is set aside for the container. Default: its limits.
	// +kubebuilder:validation:MaxProperties=4
	// +kubebuilder:validation:XValidation:rule="self.all(name, !string(self[name]).matches('e|E') && isQuantity(string(self[name])))",message="each request is a quantity such as 500m or 1Gi, without an exponent"
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`
}

// CredentialsStatus says which NATS credentials the operator has issued.
type CredentialsStatus struct {
	// User is the public key of the NATS user: what `substorm credentials rotate`
	// replaces, and what `substorm quickstart revoke` revokes.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:MinLength=1
	// +required
	User string `json:"user,omitempty"`

	// ExpirationTime is when NATS servers take them no more.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	ExpirationTime *metav1.Time `json:"expirationTime,omitempty"`

	// RenewalTime is when the operator signs them anew, for the same user, after a third
	// of the time for which they are valid.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	RenewalTime *metav1.Time `json:"renewalTime,omitempty"`
}

// AnnotationRotateCredentials on an IngestGateway, a FeedServer, a MirrorPartner, a Site (for its archivist)
// or a FeedConsumer has the operator replace the NATS credentials of the user whose public
// key it names, as status.credentials has it, by those of a new user. Any other value
// does nothing.
const AnnotationRotateCredentials = "substorm.dev/rotate-credentials"

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
	// ConditionObjectsUnreadable of a Site exists only while it is True: there are objects of
	// the Site that this version of the operator cannot decode.
	ConditionObjectsUnreadable = "ObjectsUnreadable"
	// ConditionNotApplied of a Site, an IngestGateway or a FeedServer exists only while it is True, where substorm up
	// runs the Site without a cluster: it says which fields are not used there.
	ConditionNotApplied = "NotApplied"
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

// AnnotationUnreadable is on objects as the operator reads them, never on those that the API
// server stores: why an object cannot be decoded as a whole.
const AnnotationUnreadable = "substorm.dev/unreadable"

// AnnotationNotApplied is on objects as the operator of a Site without a cluster (substorm up) reads them, never on those that the
// API server stores: which of their fields are not used there.
const AnnotationNotApplied = "substorm.dev/not-applied"

// Reasons of conditions. A reason is part of the API: it does not change.
const (
	// ReasonReady: the latest generation is in effect.
	ReasonReady = "Ready"
	// ReasonAccepted: the resource contradicts no other, and what it names exists.
	ReasonAccepted = "Accepted"
	// ReasonReconciling: a change is on its way.
	ReasonReconciling = "Reconciling"
	// ReasonUnreadable: an object was stored that this version of the operator cannot decode.
	ReasonUnreadable = "Unreadable"
	// ReasonStandalone: substorm up runs the Site, not a cluster.
	ReasonStandalone = "Standalone"
	// ReasonConflict: another, older resource holds the port or the code.
	ReasonConflict = "Conflict"
	// ReasonSiteNotFound: no Site in this namespace has the name that siteRef has.
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
	// ReasonManifestsInvalid: files that substorm up was given have errors.
	ReasonManifestsInvalid = "ManifestsInvalid"
	// ReasonTokensUndeclared: a Secret holds tokens that no manifest declares.
	ReasonTokensUndeclared = "TokensUndeclared"
	// ReasonSecretIncomplete: a Secret lacks a key, or holds one that cannot be read.
	ReasonSecretIncomplete = "SecretIncomplete"
	// ReasonSecretNotLabeled: a Secret is not marked for what it is named for.
	ReasonSecretNotLabeled = "SecretNotLabeled"
	// ReasonPortOutOfRange: the port is outside the IngestGateway's range.
	ReasonPortOutOfRange = "PortOutOfRange"
	// ReasonTLSNotConfigured: a listener asks for TLS that its IngestGateway has no
	// certificate, or no client authority, for; readers of a Site show certificates, and no
	// FeedServer knows the authority.
	ReasonTLSNotConfigured = "TLSNotConfigured"
	// ReasonInvalidSource: a listener names a source that is no CIDR.
	ReasonInvalidSource = "InvalidSource"
	// ReasonUnreachable: a backend does not answer.
	ReasonUnreachable = "Unreachable"
	// ReasonAccessDenied: a backend answers and refuses our credentials.
	ReasonAccessDenied = "AccessDenied"
	// ReasonRefused: a backend answers and does not do what we need. Of a pull: a gateway does not take an object.
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
