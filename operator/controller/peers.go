// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

// applyPeers keeps the certificates by which a pool's gateways know each other.
func (r *gatewayReconciler) applyPeers(ctx context.Context, view plan.GatewayView, pool workload.Pool) (*finding.Finding, error) {
	name := view.Gateway.Name
	have, err := r.secrets.read(ctx, view.Gateway.Namespace, workload.PeersSecrets(name))
	if err != nil {
		return nil, err
	}
	for _, secret := range have {
		if !metav1.IsControlledBy(secret, view.Gateway) {
			return new(plan.NotOurs("Secret", secret.Name)), nil
		}
	}
	authority, ok := readPair(have[workload.PeersAuthoritySecret(name)])
	if !ok || workload.Renew(authority.Leaf.NotBefore, authority.Leaf.NotAfter, view.Now) {
		data, err := newAuthority(name, view.Now)
		if err != nil {
			return nil, err
		}
		if f, err := r.applyCertificate(ctx, pool, workload.PeersAuthoritySecret(name), have[workload.PeersAuthoritySecret(name)], data); f != nil || err != nil {
			return f, err
		}
		if authority, err = tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey]); err != nil {
			return nil, err
		}
	}
	leaf, ok := readPair(have[workload.PeersSecret(name)])
	if ok && !workload.Renew(leaf.Leaf.NotBefore, leaf.Leaf.NotAfter, view.Now) && leaf.Leaf.CheckSignatureFrom(authority.Leaf) == nil {
		return nil, nil
	}
	data, err := newPeersCertificate(name, authority, view.Now)
	if err != nil {
		return nil, err
	}
	return r.applyCertificate(ctx, pool, workload.PeersSecret(name), have[workload.PeersSecret(name)], data)
}

func (r *gatewayReconciler) applyCertificate(ctx context.Context, pool workload.Pool, name string, current *corev1.Secret, data map[string][]byte) (*finding.Finding, error) {
	defer r.secrets.forget(types.NamespacedName{Namespace: pool.Gateway.Namespace, Name: name})
	return r.applySecret(ctx, pool.Gateway, current, pool.CertificateSecret(name, data))
}

func readPair(secret *corev1.Secret) (tls.Certificate, bool) {
	if secret == nil {
		return tls.Certificate{}, false
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	return pair, err == nil && pair.Leaf != nil
}

// clockSkew is how far a node's clock may be behind ours.
const clockSkew = 5 * time.Minute

func newAuthority(pool string, now time.Time) (map[string][]byte, error) {
	return newCertificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: "gateways of " + pool, Organization: []string{"Substorm"}}, NotAfter: now.Add(workload.PeersAuthorityAge),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, nil, now)
}

func newPeersCertificate(pool string, authority tls.Certificate, now time.Time) (map[string][]byte, error) {
	return newCertificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: "gateway of " + pool, Organization: []string{"Substorm"}}, NotAfter: now.Add(workload.PeersCertificateAge),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames: []string{wire.GatewayName(pool)},
	}, &authority, now)
}

// newCertificate makes a key and its certificate, signed by an authority or by itself.
func newCertificate(template *x509.Certificate, authority *tls.Certificate, now time.Time) (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, err
	}
	template.NotBefore = now.Add(-clockSkew)
	parent, signer := template, any(key)
	if authority != nil {
		parent, signer = authority.Leaf, authority.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", template.Subject.CommonName, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}
	data[workload.KeyCA] = data[corev1.TLSCertKey]
	if authority != nil {
		data[workload.KeyCA] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate[0]})
	}
	return data, nil
}
