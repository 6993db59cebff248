// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Certificates are a pool's: a folder with ca.crt, tls.crt and tls.key, which is read again when it
// changes. A peer with a certificate of that authority and the pool's name is one of its gateways;
// the authority signs for no one else.
type Certificates struct {
	dir, pool string

	mu     sync.Mutex
	loaded time.Time
	pair   *tls.Certificate
	roots  *x509.CertPool
}

// reread is how often files are looked at.
const reread = 10 * time.Second

// LoadCertificates reads the folder.
func LoadCertificates(dir, pool string) (*Certificates, error) {
	c := &Certificates{dir: dir, pool: pool}
	_, _, err := c.current()
	return c, err
}

func (c *Certificates) current() (*tls.Certificate, *x509.CertPool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pair != nil && time.Since(c.loaded) < reread {
		return c.pair, c.roots, nil
	}
	pair, roots, err := c.read()
	if err != nil && c.pair == nil {
		return nil, nil, err
	}
	if err == nil {
		c.pair, c.roots = pair, roots
	} // what is half written is read the next time
	c.loaded = time.Now()
	return c.pair, c.roots, nil
}

func (c *Certificates) read() (*tls.Certificate, *x509.CertPool, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(c.dir, "tls.crt"), filepath.Join(c.dir, "tls.key"))
	if err != nil {
		return nil, nil, fmt.Errorf("certificate of the pool: %w", err)
	}
	ca, err := os.ReadFile(filepath.Join(c.dir, "ca.crt"))
	if err != nil {
		return nil, nil, fmt.Errorf("certificate of the pool: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, nil, fmt.Errorf("%s holds no certificate", filepath.Join(c.dir, "ca.crt"))
	}
	return &pair, roots, nil
}

func (c *Certificates) server() *tls.Config {
	base := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pair, roots, err := c.current()
		if err != nil {
			return nil, err
		}
		return &tls.Config{
			MinVersion: tls.VersionTLS13, NextProtos: base.NextProtos,
			Certificates: []tls.Certificate{*pair}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
			VerifyConnection: func(s tls.ConnectionState) error {
				return s.PeerCertificates[0].VerifyHostname(wire.GatewayName(c.pool))
			},
		}, nil
	}
	return base
}

// client verifies against the authority that stands when it connects.
func (c *Certificates) client() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: wire.GatewayName(c.pool),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, _, err := c.current()
			return pair, err
		},
		InsecureSkipVerify: true, // VerifyConnection verifies, with roots that may change
		VerifyConnection: func(s tls.ConnectionState) error {
			_, roots, err := c.current()
			if err != nil {
				return err
			}
			if len(s.PeerCertificates) == 0 {
				return errors.New("the peer shows no certificate")
			}
			chain := x509.NewCertPool()
			for _, cert := range s.PeerCertificates[1:] {
				chain.AddCert(cert)
			}
			_, err = s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: chain, DNSName: wire.GatewayName(c.pool)})
			return err
		},
	}
}
