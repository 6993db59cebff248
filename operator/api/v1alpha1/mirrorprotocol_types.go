// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// MirrorHTTPS is a server that is pulled from.
// +kubebuilder:validation:XValidation:rule="has(self.origin) == (self.source == 'Substorm')",message="origin is the code of the Site of another Substorm: set it exactly when source is Substorm",fieldPath=.origin
// +kubebuilder:validation:XValidation:rule="!has(self.tokenSecretKeyRef) || self.url.startsWith('https://')",message="a token needs a url that begins with https://: anyone could read it elsewhere",reason=FieldValueForbidden,fieldPath=.tokenSecretKeyRef
// +kubebuilder:validation:XValidation:rule="!has(self.tls) || self.url.startsWith('https://')",message="tls needs a url that begins with https://",reason=FieldValueForbidden,fieldPath=.tls
// +kubebuilder:validation:XValidation:rule="!has(self.origin) || !has(oldSelf.origin) || self.origin == oldSelf.origin",message="origin is immutable: what was pulled has its name; make another MirrorPartner",reason=FieldValueForbidden,fieldPath=.origin
type MirrorHTTPS struct {
	// URL of the archive: of a Substorm that of its FeedServer, https://archive.example.org; of a web archive the folder from
	// which on everything is pulled. With http:// anybody on the way can read and change what is pulled: it is for tests, for
	// networks of one's own, and for web archives that have nothing else.
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\\\\[[0-9A-Fa-f:.]+\\\\])(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?(/[^?#\\\\x00-\\\\x20\\\\x7f]*)?$') && isURL(self) && (!self.matches('^https?://[[]') || isIP(self.substring(self.indexOf('[') + 1, self.indexOf(']'))))",message="a url is https:// or http://, a host, perhaps a port up to 65535 and a path, and no user, query or fragment: https://archive.example.org/data"
	// +required
	URL string `json:"url,omitempty"`

	// Source says what is there. Substorm: another Substorm's FeedServer, which tells what it has and its digests.
	// WebArchive: folders as index pages of any web server; robots.txt is followed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="source is immutable: make another MirrorPartner"
	// +required
	Source MirrorSource `json:"source,omitempty"`

	// Origin is the code of the Site at a Substorm. Its instruments are called <origin>_<instrument> here, and lie below
	// o/<site>/<origin>_<instrument>/ with the rights and the access that they have there. They are never offered to other
	// mirrors. One MirrorPartner of a Site pulls from an origin. It never changes.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	// +optional
	Origin string `json:"origin,omitempty"`

	// TokenSecretKeyRef names what we show as a bearer token. A client certificate is shown where tls has one.
	// +optional
	TokenSecretKeyRef *SecretKeyReference `json:"tokenSecretKeyRef,omitempty"`

	// TLS for a server whose certificate no public authority signed (caSecretRef), or that asks for ours
	// (certificateSecretRef).
	// +optional
	TLS *TLS `json:"tls,omitempty"`
}

// MirrorSource is what a pull over HTTPS finds.
// +kubebuilder:validation:Enum=Substorm;WebArchive
type MirrorSource string

// The values of MirrorSource.
const (
	MirrorSourceSubstorm   MirrorSource = "Substorm"
	MirrorSourceWebArchive MirrorSource = "WebArchive"
)

// MirrorRsync is the other side of rsync. Transport says which of the members is set.
// +kubebuilder:validation:XValidation:rule="has(self.daemon) == (self.transport == 'Daemon')",message="daemon is set exactly when transport is Daemon",fieldPath=.daemon
// +kubebuilder:validation:XValidation:rule="has(self.ssh) == (self.transport == 'SSH')",message="ssh is set exactly when transport is SSH",fieldPath=.ssh
type MirrorRsync struct {
	// Transport: Daemon, an rsync daemon, unencrypted; SSH, the rsync of a host that lets us in by ssh.
	// +required
	Transport MirrorRsyncTransport `json:"transport,omitempty"`

	// Daemon is the rsync daemon.
	// +optional
	Daemon *MirrorRsyncDaemon `json:"daemon,omitempty"`

	// SSH is the host, and who we are there.
	// +optional
	SSH *MirrorRsyncSSH `json:"ssh,omitempty"`
}

// MirrorRsyncTransport is what rsync runs over.
// +kubebuilder:validation:Enum=Daemon;SSH
type MirrorRsyncTransport string

// The values of MirrorRsyncTransport.
const (
	MirrorRsyncOverDaemon MirrorRsyncTransport = "Daemon"
	MirrorRsyncOverSSH    MirrorRsyncTransport = "SSH"
)

// MirrorRsyncDaemon is an rsync daemon.
// +kubebuilder:validation:XValidation:rule="has(self.user) == has(self.passwordSecretKeyRef)",message="a daemon that asks for a user asks for its password: set both of user and passwordSecretKeyRef, or neither",fieldPath=.passwordSecretKeyRef
type MirrorRsyncDaemon struct {
	// Address of the daemon, as host:port: rsync.example.org:873.
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=259
	// +kubebuilder:validation:XValidation:rule="self.matches('^(\\\\[[0-9a-fA-F:.]+\\\\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?):[0-9]{1,5}$') && int(self.substring(self.lastIndexOf(':') + 1)) >= 1 && int(self.substring(self.lastIndexOf(':') + 1)) <= 65535",message="an address is host:port, as in rsync.example.org:873 or [2001:db8::7]:873"
	// +required
	Address string `json:"address,omitempty"`

	// Module of the daemon.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`
	// +required
	Module string `json:"module,omitempty"`

	// Path of a folder in the module. Default: the module itself.
	// +optional
	Path MirrorFolder `json:"path,omitempty"`

	// User that the daemon lets in.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`
	// +optional
	User string `json:"user,omitempty"`

	// PasswordSecretKeyRef names the user's password.
	// +optional
	PasswordSecretKeyRef *SecretKeyReference `json:"passwordSecretKeyRef,omitempty"`
}

// MirrorRsyncSSH is a host that lets us in by ssh.
type MirrorRsyncSSH struct {
	// Host is the name or address of the host.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)$`
	// +required
	Host string `json:"host,omitempty"`

	// Port of its ssh daemon.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:default=22
	// +optional
	Port int32 `json:"port,omitempty"`

	// User that we are there.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`
	// +required
	User string `json:"user,omitempty"`

	// Path of the folder there: absolute, or relative to the user's home.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[^-\x00-\x1f\x7f][^\x00-\x1f\x7f]*$`
	// +kubebuilder:validation:XValidation:rule="!self.split('/').exists(p, p == '..')",message="a path has no .."
	// +required
	Path string `json:"path,omitempty"`

	// PrivateKeySecretKeyRef names our private key, without a passphrase, as ssh-keygen writes it.
	// +required
	PrivateKeySecretKeyRef SecretKeyReference `json:"privateKeySecretKeyRef,omitzero"`

	// KnownHostsSecretKeyRef names what a known_hosts file says of the host, as ssh-keyscan prints it: a host with
	// another key is not let in.
	// +required
	KnownHostsSecretKeyRef SecretKeyReference `json:"knownHostsSecretKeyRef,omitzero"`
}

// MirrorS3 is a bucket behind the S3 API that is pushed to.
// +kubebuilder:validation:XValidation:rule="!has(self.tls) || self.endpoint.startsWith('https://')",message="tls needs an endpoint that begins with https://",reason=FieldValueForbidden,fieldPath=.tls
type MirrorS3 struct {
	// Endpoint is the server's URL: https://s3.example.org. A plain http:// endpoint sends objects unencrypted.
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://([A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?|\\\\[[0-9A-Fa-f:.]+\\\\])(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?/?$') && isURL(self) && (!self.matches('^https?://[[]') || isIP(self.substring(self.indexOf('[') + 1, self.indexOf(']'))))",message="an endpoint is https:// or http://, a host and perhaps a port up to 65535: https://s3.example.org; credentials are in the Secret that credentialsSecretRef names"
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:MinLength=1
	// +required
	Endpoint string `json:"endpoint,omitempty"`

	// Bucket that exists and is the partner's.
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9.-]*[a-z0-9]$`
	// +required
	Bucket string `json:"bucket,omitempty"`

	// Prefix that all keys begin with, and a slash after it. Default: none.
	// +optional
	Prefix MirrorFolder `json:"prefix,omitempty"`

	// Region that requests are signed for.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9_-]*$`
	// +kubebuilder:default=us-east-1
	// +optional
	Region string `json:"region,omitempty"`

	// CredentialsSecretRef names a Secret with accessKeyID and secretAccessKey of a user who may store, read, list and delete
	// objects there: what is purged is removed, whatever prune and retractions say.
	// +required
	CredentialsSecretRef LocalReference `json:"credentialsSecretRef,omitzero"`

	// TLS for an https:// endpoint whose certificate no public authority signed (caSecretRef), or that asks for ours
	// (certificateSecretRef).
	// +optional
	TLS *TLS `json:"tls,omitempty"`
}

// MirrorFolder is the path of a folder at a partner, without a slash at either end.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=512
// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f]+$`
// +kubebuilder:validation:XValidation:rule="!self.split('/').exists(p, size(p) == 0 || p == '.' || p == '..')",message="a folder is a relative path, without a slash at either end, empty parts, . or .."
type MirrorFolder string
