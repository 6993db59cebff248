// SPDX-License-Identifier: Apache-2.0

package metricsbridge

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/util/cert"
)

const (
	lifetime = 90 * 24 * time.Hour
	// renewBefore is how long before its end a certificate is replaced.
	renewBefore = lifetime / 3
)

// certificate is one for the API, with an authority of its own. Its key never leaves the process.
type certificate struct {
	host string

	mu         sync.Mutex
	chain, key []byte
	// authorities are what clients must trust: the authority of this certificate, and of the one before.
	authorities []byte
	renewAt     time.Time
	listeners   []dynamiccertificates.Listener
}

var _ dynamiccertificates.CertKeyContentProvider = (*certificate)(nil)

func newCertificate(host string) (*certificate, error) {
	c := &certificate{host: host}
	return c, c.renew(time.Now())
}

// renew makes a new certificate, if it is time.
func (c *certificate) renew(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.renewAt) {
		return nil
	}
	chain, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{Host: c.host, MaxAge: lifetime})
	if err != nil {
		return fmt.Errorf("make a certificate for %s: %w", c.host, err)
	}
	_, authority := pem.Decode(chain) // what follows the certificate itself
	var before []byte
	if block, _ := pem.Decode(c.authorities); block != nil {
		before = pem.EncodeToMemory(block)
	}
	c.chain, c.key, c.renewAt = chain, key, now.Add(lifetime-renewBefore)
	c.authorities = bytes.Join([][]byte{authority, before}, nil)
	for _, l := range c.listeners {
		l.Enqueue()
	}
	return nil
}

// trusted are the authorities that clients must trust, as PEM.
func (c *certificate) trusted() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.authorities
}

// Name implements dynamiccertificates.CertKeyContentProvider.
func (c *certificate) Name() string { return "certificate of the bridge" }

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider.
func (c *certificate) CurrentCertKeyContent() (chain, key []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.chain, c.key
}

// AddListener implements dynamiccertificates.Notifier.
func (c *certificate) AddListener(l dynamiccertificates.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners, l)
}
