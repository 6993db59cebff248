// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// TLS names the Secrets that one end of TLS connections needs. Both fields may name the
// same Secret, as cert-manager makes them with all three keys.
// +kubebuilder:validation:XValidation:rule="has(self.certificateSecretRef) || has(self.caSecretRef)",message="tls names a Secret: certificateSecretRef, caSecretRef, or both",reason=FieldValueRequired
type TLS struct {
	// CertificateSecretRef names a Secret with tls.crt and tls.key, our own certificate:
	// a server shows it to its clients, and a client to a server that asks for one.
	// +optional
	CertificateSecretRef *LocalReference `json:"certificateSecretRef,omitempty"`

	// CASecretRef names a Secret with ca.crt, the authorities that sign the certificate of
	// the other side: at a server those of its clients, which then may show one; at a
	// client that of the server, in place of the public authorities.
	// +optional
	CASecretRef *LocalReference `json:"caSecretRef,omitempty"`
}
