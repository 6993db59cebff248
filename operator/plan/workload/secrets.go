// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// Keys of the Secrets that a Site names.
const (
	KeyAccessKeyID     = "accessKeyID"
	KeySecretAccessKey = "secretAccessKey"
	KeyAccountSeed     = "account.seed"
	KeyAccountID       = "account.id"
	KeyUserCreds       = "user.creds"
	KeyCA              = "ca.crt"
	KeyCertificate     = corev1.TLSCertKey
	KeyPrivateKey      = corev1.TLSPrivateKeyKey
)

// SecretNeed is a Secret that a Site names, and the keys that it must have.
type SecretNeed struct {
	// Field of the Site that names it.
	Field string
	Name  string
	Keys  []string
}

// ObjectStoreSecrets are the Secrets that the object store needs.
func ObjectStoreSecrets(site *v1alpha1.Site) []SecretNeed {
	store := &site.Spec.ObjectStore
	needs := []SecretNeed{{"spec.objectStore.credentialsSecretRef", store.CredentialsSecretRef.Name,
		[]string{KeyAccessKeyID, KeySecretAccessKey}}}
	return append(needs, TLSSecrets("spec.objectStore.tls", store.TLS)...)
}

// TLSSecrets are the Secrets for the TLS settings of one of our fields.
func TLSSecrets(field string, tls *v1alpha1.TLS) (needs []SecretNeed) {
	if tls == nil {
		return nil
	}
	if ref := tls.CertificateSecretRef; ref != nil {
		needs = append(needs, SecretNeed{field + ".certificateSecretRef", ref.Name, []string{KeyCertificate, KeyPrivateKey}})
	}
	if ref := tls.CASecretRef; ref != nil {
		needs = append(needs, SecretNeed{field + ".caSecretRef", ref.Name, []string{KeyCA}})
	}
	return needs
}

// asUser has the object store asked as the user of a Secret that another field names, if it does.
func asUser(needs []SecretNeed, field string, ref *v1alpha1.LocalReference) []SecretNeed {
	if ref != nil {
		i := slices.IndexFunc(needs, func(n SecretNeed) bool { return slices.Contains(n.Keys, KeyAccessKeyID) })
		needs[i] = SecretNeed{"spec.objectStore." + field, ref.Name, needs[i].Keys}
	}
	return needs
}

// userOr names the Secret of a user of the object store: the Site's if the user has none.
func userOr(store *v1alpha1.ObjectStore, ref *v1alpha1.LocalReference) string {
	if ref == nil {
		return store.CredentialsSecretRef.Name
	}
	return ref.Name
}

// JetStreamSecrets are the Secrets that JetStream needs.
func JetStreamSecrets(site *v1alpha1.Site) []SecretNeed {
	js := &site.Spec.JetStream
	needs := accountKey("accountKeySecretRef", js.AccountKeySecretRef)
	if ref := js.CredentialsSecretRef; ref != nil {
		needs = append(needs, SecretNeed{"spec.jetStream.credentialsSecretRef", ref.Name, []string{KeyUserCreds}})
	}
	return append(needs, TLSSecrets("spec.jetStream.tls", js.TLS)...)
}

// ConsumerAccountSecrets are the Secrets that it takes to issue users of the account of
// consumers. The rest of the Site does not need them.
func ConsumerAccountSecrets(site *v1alpha1.Site) []SecretNeed {
	return accountKey("consumerAccountKeySecretRef", site.Spec.JetStream.ConsumerAccountKeySecretRef)
}

// CommandAccountSecrets are the Secrets that it takes to issue users of the account of
// commands. Only the substorm command reads them.
func CommandAccountSecrets(site *v1alpha1.Site) []SecretNeed {
	return accountKey("commandAccountKeySecretRef", site.Spec.JetStream.CommandAccountKeySecretRef)
}

// LeavesAccountSecrets are the Secrets that the account of leaves needs.
func LeavesAccountSecrets(site *v1alpha1.Site) []SecretNeed {
	return accountKey("leafAccountKeySecretRef", site.Spec.JetStream.LeafAccountKeySecretRef)
}

// accountKey is the Secret that issues users of the account whose key a field of spec.jetStream names.
func accountKey(field string, ref *v1alpha1.LocalReference) []SecretNeed {
	if ref == nil {
		return nil
	}
	return []SecretNeed{{"spec.jetStream." + field, ref.Name, []string{KeyAccountSeed, KeyAccountID}}}
}

// PoolSecrets are the Secrets that a pool itself names.
func PoolSecrets(gw *v1alpha1.IngestGateway) []SecretNeed {
	return TLSSecrets("spec.tls", gw.Spec.TLS)
}

// GatewaySecrets are the Secrets that a pool needs, its Site's among them.
func GatewaySecrets(site *v1alpha1.Site, gw *v1alpha1.IngestGateway) []SecretNeed {
	store := asUser(ObjectStoreSecrets(site), "gatewayCredentialsSecretRef", site.Spec.ObjectStore.GatewayCredentialsSecretRef)
	return slices.Concat(store, JetStreamSecrets(site), PoolSecrets(gw))
}

// podSecrets are the Secrets that gateway pods mount: all but the account's key,
// which only the operator sees.
func podSecrets(site *v1alpha1.Site, gw *v1alpha1.IngestGateway) []SecretNeed {
	return slices.DeleteFunc(GatewaySecrets(site, gw), func(n SecretNeed) bool {
		return slices.Contains(n.Keys, KeyAccountSeed)
	})
}

// Secrets are the existing Secrets, by name.
type Secrets map[string]*corev1.Secret

// Missing reports what the first unmet need lacks.
func (s Secrets) Missing(needs []SecretNeed) (finding.Finding, bool) {
	for _, need := range needs {
		secret := s[need.Name]
		if secret == nil {
			return finding.Bad(v1alpha1.ReasonSecretNotFound, fmt.Sprintf(
				"Secret %q, which %s names, does not exist: create it with the %s",
				need.Name, need.Field, keys(need.Keys))), true
		}
		for _, key := range need.Keys {
			if len(strings.TrimSpace(string(secret.Data[key]))) == 0 {
				return finding.Bad(v1alpha1.ReasonSecretIncomplete, fmt.Sprintf(
					"Secret %q, which %s names, has no %s: it must hold the %s",
					need.Name, need.Field, key, keys(need.Keys))), true
			}
		}
	}
	return finding.Finding{}, false
}

func keys(all []string) string {
	if len(all) == 1 {
		return "key " + all[0]
	}
	return "keys " + strings.Join(all, " and ")
}
