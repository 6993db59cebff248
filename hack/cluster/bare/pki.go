// SPDX-License-Identifier: Apache-2.0

package bare

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// lifetime of every certificate. A cluster for tests and demos is thrown away long before.
const lifetime = 365 * 24 * time.Hour

func (c *Cluster) pki(name string) string { return filepath.Join(c.Dir, "pki", name) }

// authority is a certificate authority of the cluster.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// subject is what a certificate is issued for; organizations are Kubernetes groups.
type subject struct {
	name          string
	organizations []string
	hosts         []string // names and addresses; empty for clients
}

// makePKI makes what the control plane needs, unless it was made before.
func (c *Cluster) makePKI() error {
	if _, err := os.Stat(c.Kubeconfig()); err == nil {
		return nil
	}
	a := addresses{c.rec.Base}
	cluster, err := c.makeAuthority("ca")
	if err != nil {
		return err
	}
	etcd, err := c.makeAuthority("etcd-ca")
	if err != nil {
		return err
	}
	front, err := c.makeAuthority("front-proxy-ca")
	if err != nil {
		return err
	}
	own := []string{"localhost", "127.0.0.1", a.api()}
	certificates := []struct {
		by   *authority
		file string
		subject
	}{
		{etcd, "etcd", subject{"etcd", nil, own}},
		{etcd, "etcd-client", subject{"kube-apiserver", nil, nil}},
		{cluster, "apiserver", subject{"kube-apiserver", nil, append(own, a.firstService(), "kubernetes",
			"kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")}},
		{cluster, "apiserver-kubelet", subject{"kube-apiserver-kubelet-client", []string{"system:masters"}, nil}},
		{front, "front-proxy-client", subject{"front-proxy-client", nil, nil}},
		{cluster, "controller-manager-serving", subject{"kube-controller-manager", nil, own}},
		{cluster, "scheduler-serving", subject{"kube-scheduler", nil, own}},
	}
	for _, cert := range certificates {
		if _, _, err := c.issue(cert.by, cert.file, cert.subject); err != nil {
			return err
		}
	}
	if err := c.makeServiceAccountKey(); err != nil {
		return err
	}
	for _, name := range []string{"controller-manager", "scheduler", "proxy"} {
		user := subject{name: "system:kube-" + name}
		if err := c.makeKubeconfig(cluster, "kube-"+name, c.pki("kube-"+name+".kubeconfig"), user); err != nil {
			return err
		}
	}
	admin := subject{c.Name + "-admin", []string{"system:masters"}, nil}
	return c.makeKubeconfig(cluster, "admin", c.Kubeconfig(), admin)
}

// makeNodePKI makes a node's client and serving certificates.
func (c *Cluster) makeNodePKI(n int) error {
	name := NodeName(n)
	cluster, err := c.loadAuthority("ca")
	if err != nil {
		return err
	}
	user := subject{"system:node:" + name, []string{"system:nodes"}, nil}
	if err := c.makeKubeconfig(cluster, "kubelet-"+name, c.pki("kubelet-"+name+".kubeconfig"), user); err != nil {
		return err
	}
	user.hosts = []string{name, addresses{c.rec.Base}.node(n), "127.0.0.1"}
	_, _, err = c.issue(cluster, "kubelet-"+name+"-serving", user)
	return err
}

func (c *Cluster) makeAuthority(file string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := unsigned(subject{name: c.Name + " " + file})
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.KeyUsage |= x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	if _, _, err := c.sign(&authority{cert: template, key: key}, file, template, key); err != nil {
		return nil, err
	}
	return c.loadAuthority(file)
}

func (c *Cluster) loadAuthority(file string) (*authority, error) {
	certPEM, err := os.ReadFile(c.pki(file + ".crt"))
	if err != nil {
		return nil, err
	}
	keyPEM, err := os.ReadFile(c.pki(file + ".key"))
	if err != nil {
		return nil, err
	}
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, fmt.Errorf("%s.crt or .key is not PEM", c.pki(file))
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	return &authority{cert, key, certPEM}, err
}

// issue makes a certificate that serves as client and as server, writes it to file.crt and file.key and returns both
// as PEM.
func (c *Cluster) issue(by *authority, file string, s subject) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template, err := unsigned(s)
	if err != nil {
		return nil, nil, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	return c.sign(by, file, template, private)
}

// unsigned returns a certificate to be signed, valid from an hour ago in case clocks differ.
func unsigned(s subject) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: s.name, Organization: s.organizations},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
	}
	for _, host := range s.hosts {
		if address := net.ParseIP(host); address != nil {
			t.IPAddresses = append(t.IPAddresses, address)
		} else {
			t.DNSNames = append(t.DNSNames, host)
		}
	}
	return t, nil
}

func (c *Cluster) sign(by *authority, file string, t *x509.Certificate, private *ecdsa.PrivateKey) (cert, key []byte, err error) {
	der, err := x509.CreateCertificate(rand.Reader, t, by.cert, &private.PublicKey, by.key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign %s: %w", file, err)
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if key, err = encodeKey(private); err != nil {
		return nil, nil, err
	}
	if err := writeFile(c.pki(file+".crt"), cert, 0o644); err != nil {
		return nil, nil, err
	}
	return cert, key, writeFile(c.pki(file+".key"), key, 0o600)
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func (c *Cluster) makeServiceAccountKey() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := encodeKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	if err := writeFile(c.pki("service-accounts.key"), private, 0o600); err != nil {
		return err
	}
	return writeFile(c.pki("service-accounts.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o644)
}

func (c *Cluster) makeKubeconfig(by *authority, file, path string, user subject) error {
	cert, key, err := c.issue(by, file, user)
	if err != nil {
		return err
	}
	data := base64.StdEncoding.EncodeToString
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: %[1]s
  cluster: {server: %[2]q, certificate-authority-data: %[3]s}
users:
- name: %[4]q
  user: {client-certificate-data: %[5]s, client-key-data: %[6]s}
contexts:
- name: %[1]s
  context: {cluster: %[1]s, user: %[4]q}
current-context: %[1]s
`, c.Name, addresses{c.rec.Base}.server(), data(by.pem), user.name, data(cert), data(key))
	return writeFile(path, []byte(text), 0o600)
}
