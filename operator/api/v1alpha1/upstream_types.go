// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// ConditionUpstreamReachable: our NATS server is linked to that of spec.upstream, the hub. Absent where the Site names none.
// Ready does not wait for it: the Site receives, archives and serves without its hub.
const ConditionUpstreamReachable = "UpstreamReachable"

// ReasonLinkedByServers: the Site has NATS servers of its own, whose configuration has the link to a hub; spec.upstream is for
// a Site that substorm up runs.
const ReasonLinkedByServers = "LinkedByServers"

// Upstream is the hub of a Site that runs in one process (substorm up): the process's NATS server opens a link to the
// hub's, and the hub asks for the Site's notices and telemetry over it. The hub names the Site in spec.leaves. NATS servers
// on a cluster have the link in their own configuration, and this field changes nothing there.
type Upstream struct {
	// URL of the hub's NATS server: tls://, its host, and the port that it opens for leaves: tls://hub.example.org:7422.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.startsWith('tls://')",message="url begins with tls://: the link carries credentials and data"
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]*://([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[[][0-9A-Fa-f:.]+[]]):[0-9]{1,5}$') && int(self.split(':')[size(self.split(':')) - 1]) >= 1 && int(self.split(':')[size(self.split(':')) - 1]) <= 65535",message="url is tls://host:port, with nothing after the port: that of the hub for leaves (leafnodes in its nats.conf, 7422 on most), which is not that for clients"
	// +required
	URL string `json:"url,omitempty"`

	// CredentialsSecretRef names a Secret with user.creds. The hub's operator issues it as <hub>-leaf-<code>; it is carried
	// to this Site.
	// +required
	CredentialsSecretRef LocalReference `json:"credentialsSecretRef,omitzero"`

	// TLS for a hub whose certificate no public authority signed (caSecretRef), or that asks for ours
	// (certificateSecretRef).
	// +optional
	TLS *TLS `json:"tls,omitempty"`
}
