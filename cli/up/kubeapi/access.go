// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Files of a folder, beside the log.
const (
	tokenName      = "token"
	caName         = "ca.crt"
	caKeyName      = "ca.key"
	kubeconfigName = "kubeconfig"
	addressName    = "address"
)

// certificateLife: a computer without a clock starts in 1970, and a station is not visited for years. A user that can read the key can
// read the token.
const certificateLife = 100 * 365 * 24 * time.Hour

// access is how clients get in, the same over restarts.
type access struct {
	dir   string
	token string
	ca    []byte // PEM
	pair  tls.Certificate
}

// openAccess reads a folder's token and authority, or makes them, and a certificate for a
// server on loopback.
func openAccess(dir string, host string) (*access, error) {
	a := &access{dir: dir}
	token, err := os.ReadFile(filepath.Join(dir, tokenName))
	if errors.Is(err, fs.ErrNotExist) {
		random := make([]byte, 32)
		_, _ = rand.Read(random) // never fails
		token = []byte(base64.RawURLEncoding.EncodeToString(random))
		err = replaceFile(filepath.Join(dir, tokenName), token)
	}
	if err != nil {
		return nil, err
	}
	if a.token = strings.TrimSpace(string(token)); a.token == "" {
		return nil, fmt.Errorf("%s is empty: remove it, and a new one is made", filepath.Join(dir, tokenName))
	}
	authority, err := openAuthority(dir)
	if err != nil {
		return nil, err
	}
	a.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate[0]})
	a.pair, err = issue(authority, host)
	return a, err
}

// openAuthority: the key is written first, the certificate last; in a folder with a key alone both are replaced.
func openAuthority(dir string) (tls.Certificate, error) {
	certFile, keyFile := filepath.Join(dir, caName), filepath.Join(dir, caKeyName)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return pair, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair, err
	}
	template := &x509.Certificate{SerialNumber: serial(), Subject: pkix.Name{CommonName: "substorm"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(certificateLife),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return pair, err
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return pair, err
	}
	if err := replaceFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})); err != nil {
		return pair, err
	}
	if err := replaceFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})); err != nil {
		return pair, err
	}
	return tls.LoadX509KeyPair(certFile, keyFile)
}

// issue makes the server's certificate, whose key is nowhere but in memory.
func issue(authority tls.Certificate, host string) (tls.Certificate, error) {
	ca, err := x509.ParseCertificate(authority.Certificate[0])
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: serial(), Subject: pkix.Name{CommonName: "substorm"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = append(template.IPAddresses, ip)
	} else if host != "" {
		template.DNSNames = append(template.DNSNames, host)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, &key.PublicKey, authority.PrivateKey)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // crypto/rand never fails
	}
	return n
}

// listen takes the address of the last start where the port is not given and still free.
func listen(dir, wanted string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(wanted)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w", wanted, err)
	}
	if port == "0" {
		if last, err := os.ReadFile(filepath.Join(dir, addressName)); err == nil {
			if before, _, err := net.SplitHostPort(string(last)); err == nil && before == host {
				if l, err := net.Listen("tcp", string(last)); err == nil {
					return l, nil
				}
			}
		}
	}
	l, err := net.Listen("tcp", wanted)
	if err != nil {
		return nil, err
	}
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err == nil {
		err = replaceFile(filepath.Join(dir, addressName), []byte(net.JoinHostPort(host, port)))
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// writeKubeconfig writes how clients get in.
func (a *access) writeKubeconfig(address string) error {
	const name = "substorm"
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + address, CertificateAuthorityData: a.ca}
	cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: a.token}
	cfg.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "default"}
	cfg.CurrentContext = name
	content, err := clientcmd.Write(*cfg)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(a.dir, kubeconfigName), content)
}

func (a *access) restConfig(address string) *rest.Config {
	return &rest.Config{Host: "https://" + address, BearerToken: a.token, QPS: -1, DisableCompression: true,
		TLSClientConfig: rest.TLSClientConfig{CAData: a.ca}}
}
