// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
)

// How long certificates of a pool's gateways are good for. The authority signs
// for one pool only, and its key is in no pod; a gateway reads a new certificate
// within seconds, without a restart.
const (
	PeersAuthorityAge   = 10 * 365 * 24 * time.Hour
	PeersCertificateAge = 365 * 24 * time.Hour
)

// PeersSecret is the name of the Secret with which a pool's gateways show each
// other that they belong to it.
func PeersSecret(pool string) string { return pool + "-peers" }

// PeersAuthoritySecret is the name of the Secret of the authority behind it.
func PeersAuthoritySecret(pool string) string { return pool + "-peers-ca" }

// PeersSecrets are both.
func PeersSecrets(pool string) []SecretNeed {
	return []SecretNeed{{Name: PeersAuthoritySecret(pool)}, {Name: PeersSecret(pool)}}
}

// Renew says whether a certificate is to be renewed: two thirds of its time are
// over, so that an operator that is away for months does no harm.
func Renew(notBefore, notAfter, now time.Time) bool {
	return now.After(notBefore.Add(notAfter.Sub(notBefore) / 3 * 2))
}

// CertificateSecret holds a certificate and its key, and of what signed it ca.crt.
func (p Pool) CertificateSecret(name string, data map[string][]byte) *coreac.SecretApplyConfiguration {
	return coreac.Secret(name, p.Gateway.Namespace).
		WithLabels(p.labels()).
		WithOwnerReferences(p.owner()).
		WithType(corev1.SecretTypeTLS).
		WithData(data)
}
