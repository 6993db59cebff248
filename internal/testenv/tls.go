// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// CA is a certificate authority that lives as long as the test.
type CA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// PEM of the authority's certificate.
	PEM []byte
}

// NewCA makes an authority.
func NewCA(t testing.TB) *CA {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "substorm test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	return &CA{t: t, cert: must(x509.ParseCertificate(der))(t), key: key,
		PEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// Issue makes a certificate for a server on loopback or for a client, in PEM,
// which is good for further DNS names too.
func (c *CA) Issue(t testing.TB, commonName string, names ...string) (certificate, key []byte) {
	t.Helper()
	leaf := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: must(rand.Int(rand.Reader, big.NewInt(1<<62)))(t), Subject: pkix.Name{CommonName: commonName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    append([]string{"localhost"}, names...), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der := must(x509.CreateCertificate(rand.Reader, template, c.cert, &leaf.PublicKey, c.key))(t)
	raw := must(x509.MarshalECPrivateKey(leaf))(t)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})
}

// Dir makes a folder with ca.crt and a new tls.crt and tls.key, as a Secret of
// ours is mounted.
func (c *CA) Dir(t testing.TB, commonName string, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	certificate, key := c.Issue(t, commonName, names...)
	write(t, filepath.Join(dir, "ca.crt"), c.PEM)
	write(t, filepath.Join(dir, "tls.crt"), certificate)
	write(t, filepath.Join(dir, "tls.key"), key)
	return dir
}

// As shows a server of the authority a certificate of a client, which change makes what
// it is: its names, when it is valid. Trusts is the server's authority, where that is
// another one.
func (c *CA) As(trusts *CA, change func(*x509.Certificate)) *tls.Config {
	c.t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(c.t)
	template := &x509.Certificate{
		SerialNumber: must(rand.Int(rand.Reader, big.NewInt(1<<62)))(c.t),
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	change(template)
	der := must(x509.CreateCertificate(rand.Reader, template, c.cert, &key.PublicKey, c.key))(c.t)
	cfg := trusts.ClientTLS()
	cfg.Certificates = nil
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { // whatever the server asks for
		return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
	}
	return cfg
}

// ClientTLS trusts the authority and shows a certificate of its.
func (c *CA) ClientTLS() *tls.Config {
	certificate, key := c.Issue(c.t, "client")
	pool := x509.NewCertPool()
	pool.AddCert(c.cert)
	pair := must(tls.X509KeyPair(certificate, key))(c.t)
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{pair}}
}

func deadline(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}
