// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// validity of all certificates. Nothing here renews them, and a quickstart that stops at midnight in its second winter would be a poor
// one; an installation that needs shorter lifetimes uses servers of its own with cert-manager.
const validity = 10 * 365 * 24 * time.Hour

// keyCA holds the authority's certificate, as cert-manager and the Site's tls.caSecretRef have it.
const keyCA = "ca.crt"

// authority makes the certificate authority that signs the others.
func authority(c Config) recipe {
	r := recipe{
		name: c.Prefix + "-tls-ca",
		kind: corev1.SecretTypeTLS,
		keys: []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey},
		make: func() (map[string][]byte, error) {
			template := certificate(c.Prefix + " quickstart CA")
			template.IsCA = true
			template.BasicConstraintsValid = true
			template.MaxPathLenZero = true
			template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
			return sign(template, nil)
		},
		check: func(data map[string][]byte) error {
			pair, err := parse(data)
			if err == nil && !pair.Leaf.IsCA {
				err = fmt.Errorf("%s is not the certificate of an authority", corev1.TLSCertKey)
			}
			return err
		},
	}
	for _, l := range leafNames(c) {
		r.children = append(r.children, l.secret)
	}
	return r
}

// leaf is a certificate that the authority signs.
type leaf struct {
	secret string
	// services whose DNS names it carries; none for a client.
	services []string
	// client says whether it is for a client, too.
	client bool
}

func leafNames(c Config) []leaf {
	return []leaf{
		{secret: c.Prefix + "-tls-nats", services: []string{c.Prefix + "-nats", "*." + c.Prefix + "-nats-pods"}, client: true}, // servers connect to each other
		{secret: c.Prefix + "-tls-s3", services: []string{c.Prefix + "-s3"}},
		{secret: c.Prefix + "-tls-client", client: true},
	}
}

func leaves(c Config, ca map[string][]byte) []recipe {
	var recipes []recipe
	for _, l := range leafNames(c) {
		recipes = append(recipes, recipe{
			name: l.secret,
			kind: corev1.SecretTypeTLS,
			keys: []string{keyCA, corev1.TLSCertKey, corev1.TLSPrivateKeyKey},
			make: func() (map[string][]byte, error) {
				template := certificate(l.secret)
				template.KeyUsage = x509.KeyUsageDigitalSignature
				if l.client {
					template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
				}
				if l.services != nil {
					template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
					template.DNSNames = serverNames(c, l.services)
					template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
				}
				return sign(template, ca)
			},
			check: func(data map[string][]byte) error { return checkLeaf(c, l, data, ca) },
		})
	}
	return recipes
}

// serverNames are a Service's names in each form that the cluster's DNS answers, and localhost for port-forwards.
func serverNames(c Config, services []string) []string {
	names := []string{"localhost"}
	for _, s := range services {
		names = append(names, s, s+"."+c.Namespace, s+"."+c.Namespace+".svc", s+"."+c.Namespace+".svc."+c.ClusterDomain)
	}
	return names
}

func checkLeaf(c Config, l leaf, data, ca map[string][]byte) error {
	pair, err := parse(data)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca[corev1.TLSCertKey])
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return fmt.Errorf("%w: delete the secret to have a new certificate made, and restart the pods that use it", err)
	}
	if l.services == nil {
		return nil
	}
	for _, name := range serverNames(c, l.services) {
		// A route is taken from a server only whose certificate has the pods' names.
		name = strings.Replace(name, "*", "pod", 1)
		if err := pair.Leaf.VerifyHostname(name); err != nil {
			return fmt.Errorf("%w: delete the secret to have a new certificate made, and restart the server", err)
		}
	}
	return nil
}

func certificate(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: name, Organization: []string{"Substorm"}},
		NotBefore: now.Add(-5 * time.Minute), // a node's clock may be behind ours
		NotAfter:  now.Add(validity),
	}
}

// sign makes a key and its certificate, signed by ca or, without one, by itself.
func sign(template *x509.Certificate, ca map[string][]byte) (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	parent, signer := template, any(key)
	if ca != nil {
		pair, err := parse(ca)
		if err != nil {
			return nil, fmt.Errorf("authority: %w", err)
		}
		parent, signer = pair.Leaf, pair.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	var crt, pkcs8 bytes.Buffer
	if err := pem.Encode(&crt, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
		return nil, err
	}
	if err := pem.Encode(&pkcs8, &pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}); err != nil {
		return nil, err
	}
	data := map[string][]byte{corev1.TLSCertKey: crt.Bytes(), corev1.TLSPrivateKeyKey: pkcs8.Bytes()}
	if ca != nil {
		data[keyCA] = ca[corev1.TLSCertKey]
	}
	return data, nil
}

func parse(data map[string][]byte) (tls.Certificate, error) {
	pair, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s and %s do not match: %w", corev1.TLSCertKey, corev1.TLSPrivateKeyKey, err)
	}
	return pair, nil
}
