// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	corev1 "k8s.io/api/core/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// JetStreamUser is a user of the Site's account that may do only what its
// program needs.
type JetStreamUser struct {
	// Name is for people; it stands in the user's token.
	Name string `json:"name"`
	// InboxPrefix begins the subjects on which the user gets its answers.
	InboxPrefix string `json:"inboxPrefix"`
	// LeafOnly lets no client in, but a server that links to ours as a leaf.
	LeafOnly bool `json:"leafOnly,omitempty"`
	// Publish and Subscribe are the subjects that are allowed; all others are not.
	Publish   []string `json:"publish"`
	Subscribe []string `json:"subscribe"`
}

// GatewayUser is the user of a pool: it publishes data, reads the registry,
// keeps ledger, lease, reports and cursors, and consumes, reads and trims the
// two base streams (the archivist's work). It can neither make nor change nor
// delete a stream, and not write the registry.
//
// A token travels in one CONNECT line, of which servers take 4 KiB
// (max_control_line): what harms nobody is allowed for all streams at once.
func GatewayUser(site *v1alpha1.Site, pool string) JetStreamUser {
	code := site.Spec.Code
	inbox := InboxPrefix(pool)
	u := JetStreamUser{
		Name:        "ingest-gateway " + site.Namespace + "/" + pool,
		InboxPrefix: inbox,
		Publish:     append(harmless(), wire.ObservationSubjects(code), wire.NoticeSubjects(code)),
		Subscribe:   []string{inbox + ".>"},
	}
	for _, stream := range []string{wire.ObservationStream(code), wire.NoticeStream(code)} {
		u.Publish = append(u.Publish, readStream(stream)...)
		u.Publish = append(u.Publish,
			"$JS.API.DIRECT.GET."+stream,
			"$JS.API.CONSUMER.MSG.NEXT."+stream+".>",
			"$JS.API.STREAM.PURGE."+stream,
			"$JS.ACK."+stream+".>",
			// With domain and account before the stream: the form that newer
			// servers can be told to use (nats-server's feature js_ack_fc_v2).
			"$JS.ACK.*.*."+stream+".>")
	}
	for _, bucket := range []string{wire.RegistryBucket(code), wire.LedgerBucket(code), wire.LeaseBucket(code), wire.StatusBucket(code), wire.CursorBucket(code), wire.NamesBucket(code)} {
		u.Publish = append(u.Publish, readStream("KV_"+bucket)...)
		if bucket != wire.RegistryBucket(code) {
			u.Publish = append(u.Publish, "$KV."+bucket+".>")
		}
	}
	return u
}

// OperatorUser is the user of the operator itself for one Site: it makes the
// Site's streams and buckets, writes the registry, reads reports and says what
// became of conditions. It can delete no stream.
func OperatorUser(site *v1alpha1.Site) JetStreamUser {
	code := site.Spec.Code
	inbox := "_INBOX_operator_" + code
	u := JetStreamUser{
		Name:        "operator " + site.Namespace + "/" + site.Name,
		InboxPrefix: inbox,
		Publish:     append(harmless(), wire.HealthSubjects(code), "$KV."+wire.RegistryBucket(code)+".>"),
		Subscribe:   []string{inbox + ".>"},
	}
	var streams []string
	for _, s := range Streams(site) {
		streams = append(streams, s.Name)
	}
	for _, b := range Buckets(site) {
		streams = append(streams, "KV_"+b.Name)
	}
	for _, s := range streams {
		u.Publish = append(u.Publish, "$JS.API.STREAM.CREATE."+s, "$JS.API.STREAM.UPDATE."+s)
	}
	for _, bucket := range []string{wire.RegistryBucket(code), wire.StatusBucket(code)} {
		u.Publish = append(u.Publish, readStream("KV_"+bucket)...)
	}
	return u
}

// InboxPrefix begins the inboxes of a pool's programs.
func InboxPrefix(pool string) string { return "_INBOX_" + pool }

// harmless are requests about the account and the configuration of streams,
// and answers to flow control.
func harmless() []string {
	return []string{"$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.FC.>"}
}

// readStream are the requests that get a stream's newest message of a subject,
// and those that make, look at and delete its consumers: watching a key-value
// bucket makes one.
func readStream(stream string) []string {
	return []string{"$JS.API.DIRECT.GET." + stream + ".>", "$JS.API.CONSUMER.*." + stream + ".>"}
}

// Hash tells two users' permissions apart, so that credentials are issued anew
// only where they changed. Account and issuer are the public keys that the
// credentials are made with.
func (u JetStreamUser) Hash(account, issuer string) string {
	all := [][]string{{u.Name, u.InboxPrefix, account, issuer}, u.Publish, u.Subscribe}
	h := sha256.New()
	for _, list := range all {
		h.Write([]byte(strings.Join(list, "\n") + "\n\n"))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// CredentialsSecret holds a pool's credentials, and the hash of what they allow.
func (p Pool) CredentialsSecret(creds []byte) *coreac.SecretApplyConfiguration {
	return coreac.Secret(JetStreamSecret(p.Gateway.Name), p.Gateway.Namespace).
		WithLabels(p.labels()).
		WithAnnotations(map[string]string{AnnotationPermissions: p.Permissions}).
		WithOwnerReferences(p.owner()).
		WithType(corev1.SecretTypeOpaque).
		WithData(map[string][]byte{KeyUserCreds: creds})
}
