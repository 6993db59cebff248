// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Access says who may read an instrument's data, over every read path.
// +kubebuilder:validation:XValidation:rule="!has(self.readers) || size(self.readers) == 0 || self.live == 'Restricted' || self.archive == 'Restricted' || has(self.embargo)",message="readers are those who may read where access is Restricted or data under embargo, and nothing is: restrict live or archive, set embargo, or leave readers out",reason=FieldValueForbidden,fieldPath=".readers"
type Access struct {
	// Live says who may follow what comes now, in Feeds and as the latest. Public: anybody.
	// Authenticated: every reader of the Site, and the FeedConsumers that select the
	// Instrument. Restricted: the readers that are named.
	// +kubebuilder:default=Authenticated
	// +optional
	Live AccessLevel `json:"live,omitempty"`

	// Archive says who may read what is kept. Public: anybody. Authenticated: every reader of
	// the Site, and the FeedConsumers that select the Instrument. Restricted: the readers that
	// are named.
	// +kubebuilder:default=Authenticated
	// +optional
	Archive AccessLevel `json:"archive,omitempty"`

	// Embargo is how long after its observation only the readers that are named may read
	// data, live data too. Others are not even told its name. At most 876000h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="an embargo must be longer than nothing: leave it out"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('876000h')",message="embargo is at most 876000h"
	// +optional
	Embargo *metav1.Duration `json:"embargo,omitempty"`

	// Readers are those who may read where access is Restricted, or data under
	// embargo. A name alone is that of a reader of the Site: one of its spec.readers,
	// or a key of the Secret that its readersSecretRef names. consumer:<name> is a
	// FeedConsumer; it counts where its Feed and filter select the Instrument. mirror:<name> is a
	// MirrorPartner that is given what is Restricted; data under embargo it is given by its own
	// selection.embargoed.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=72
	// +kubebuilder:validation:items:Pattern=`^((consumer|mirror):)?[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	// +listType=set
	// +optional
	Readers []string `json:"readers,omitempty"`
}

// AccessLevel is who may read. Public: anybody. Authenticated: every reader of the
// Site, and the FeedConsumers that select the Instrument. Restricted: the readers that
// are named.
// +kubebuilder:validation:Enum=Public;Authenticated;Restricted
type AccessLevel string

// The values of AccessLevel.
const (
	AccessPublic        AccessLevel = "Public"
	AccessAuthenticated AccessLevel = "Authenticated"
	AccessRestricted    AccessLevel = "Restricted"
)
