// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"slices"

	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// secretMode lets the programs' group read the mounted Secrets.
const secretMode = 0o440

// secretMount is a folder of a container with keys of Secrets as files.
type secretMount struct {
	volume, dir string
	from        []secretKeys
}

// secretKeys are keys of a Secret; none: all that it has.
type secretKeys struct {
	secret string
	keys   []string
	// as are the names of the files of keys that do not have their own.
	as map[string]string
}

// allKeys mounts all that a Secret has.
func allKeys(volume, secret, dir string) secretMount {
	return secretMount{volume, dir, []secretKeys{{secret: secret}}}
}

// clientTLS mounts the keys that a client needs, in one folder, and nothing else of the Secrets.
func clientTLS(volume string, tls *v1alpha1.TLS, dir string) []secretMount {
	if tls == nil {
		return nil
	}
	m := secretMount{volume: volume, dir: dir}
	for _, need := range TLSSecrets("", tls) {
		i := slices.IndexFunc(m.from, func(s secretKeys) bool { return s.secret == need.Name })
		if i < 0 {
			m.from = append(m.from, secretKeys{secret: need.Name, keys: need.Keys})
			continue
		}
		m.from[i].keys = append(m.from[i].keys, need.Keys...)
	}
	return []secretMount{m}
}

// serverTLS mounts a server's certificate, and the authorities of its clients in a folder
// of their own.
func serverTLS(tls *v1alpha1.TLS) (all []secretMount) {
	if tls == nil {
		return nil
	}
	if ref := tls.CertificateSecretRef; ref != nil {
		all = append(all, secretMount{"tls", tlsDir, []secretKeys{{secret: ref.Name, keys: []string{KeyCertificate, KeyPrivateKey}}}})
	}
	if ref := tls.CASecretRef; ref != nil {
		all = append(all, secretMount{"client-ca", clientCADir, []secretKeys{{secret: ref.Name, keys: []string{KeyCA}}}})
	}
	return all
}

// source is the volume: the kubelet starts no pod before all keys that are named exist.
func (m secretMount) source() *coreac.VolumeApplyConfiguration {
	volume := coreac.Volume().WithName(m.volume)
	if len(m.from) == 1 {
		return volume.WithSecret(coreac.SecretVolumeSource().
			WithSecretName(m.from[0].secret).WithDefaultMode(secretMode).WithItems(m.from[0].items()...))
	}
	joined := coreac.ProjectedVolumeSource().WithDefaultMode(secretMode)
	for _, s := range m.from {
		joined.WithSources(coreac.VolumeProjection().WithSecret(coreac.SecretProjection().WithName(s.secret).WithItems(s.items()...)))
	}
	return volume.WithProjected(joined)
}

func (s secretKeys) items() []*coreac.KeyToPathApplyConfiguration {
	items := make([]*coreac.KeyToPathApplyConfiguration, len(s.keys))
	for i, key := range s.keys {
		items[i] = coreac.KeyToPath().WithKey(key).WithPath(cmp.Or(s.as[key], key))
	}
	return items
}

func (m secretMount) mount() *coreac.VolumeMountApplyConfiguration {
	return coreac.VolumeMount().WithName(m.volume).WithMountPath(m.dir).WithReadOnly(true)
}
