// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// ObjectStore is a bucket behind the S3 API. Only plain S3 is used.
type ObjectStore struct {
	// Endpoint is the server's URL: https://minio.substorm.svc:9000. A plain
	// http:// endpoint sends objects unencrypted; use it on loopback only. It never changes:
	// a Site whose archive moves is deleted and created anew (docs/how-to/move-archive.md).
	// +kubebuilder:validation:Pattern=`^https?://[^/]+/?$`
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="endpoint is immutable: what programs have begun to store would lie in two places; move the archive, delete the Site and create it anew with the other endpoint (docs/how-to/move-archive.md): nothing that was observed is deleted",reason=FieldValueForbidden
	// +kubebuilder:validation:MinLength=1
	// +required
	Endpoint string `json:"endpoint,omitempty"`

	// Bucket holds the archive. It is created where it doesn't exist and our
	// credentials allow it. It never changes: a Site whose archive moves is deleted and
	// created anew (docs/how-to/move-archive.md).
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9.-]*[a-z0-9]$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="bucket is immutable: what programs have begun to store would lie in two places; move the archive, delete the Site and create it anew with the other bucket (docs/how-to/move-archive.md): nothing that was observed is deleted",reason=FieldValueForbidden
	// +required
	Bucket string `json:"bucket,omitempty"`

	// Region of the bucket: requests to the store are signed for it.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9_-]*$`
	// +kubebuilder:default=us-east-1
	// +optional
	Region string `json:"region,omitempty"`

	// CredentialsSecretRef names a Secret with accessKeyID and secretAccessKey.
	// +required
	CredentialsSecretRef LocalReference `json:"credentialsSecretRef,omitzero"`

	// ReadCredentialsSecretRef names a Secret with accessKeyID and secretAccessKey of
	// a user who may read the bucket and nothing else: what feed servers use, which
	// serve the archive, and the runs of mirrors that read it. Without it they use
	// credentialsSecretRef, with which they could delete.
	// +optional
	ReadCredentialsSecretRef *LocalReference `json:"readCredentialsSecretRef,omitempty"`

	// GatewayCredentialsSecretRef names a Secret with accessKeyID and secretAccessKey of
	// a user who may store objects and packs in the bucket, but no manifests, and delete
	// nothing of the archive: what ingest gateways use, which are open to senders. Without
	// it they use credentialsSecretRef.
	// +optional
	GatewayCredentialsSecretRef *LocalReference `json:"gatewayCredentialsSecretRef,omitempty"`

	// TLS for an https:// endpoint whose certificate no public authority signed
	// (caSecretRef), or that asks for ours (certificateSecretRef).
	// +optional
	TLS *TLS `json:"tls,omitempty"`
}
