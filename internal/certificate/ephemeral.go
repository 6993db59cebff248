// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Ephemeral is a certificate that a process signs for itself when it starts. Its key is in memory only. Two processes that have exchanged
// the SHA-256 of theirs over a channel that both trust need no authority to authenticate each other.
type Ephemeral struct {
	pair   tls.Certificate
	digest wire.Digest
}

// Peers go by the SHA-256. The times are there because a certificate must have some: clocks that disagree do not
// matter, and no process runs for so long.
const (
	ephemeralBefore = 24 * time.Hour
	ephemeralAfter  = 10 * 365 * 24 * time.Hour
)

// NewEphemeral makes a certificate for a process. Name is for those who read it.
func NewEphemeral(name string) (*Ephemeral, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("ephemeral certificate: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("ephemeral certificate: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-ephemeralBefore), NotAfter: now.Add(ephemeralAfter),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("ephemeral certificate: %w", err)
	}
	return &Ephemeral{pair: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, digest: sha256.Sum256(der)}, nil
}

// Digest is the SHA-256 of the certificate (DER).
func (e *Ephemeral) Digest() wire.Digest { return e.digest }

// Server is how a connection shakes hands whose client must show a certificate, whichever: Shown tells which it was, and who
// accepts the connection judges that.
func (e *Ephemeral) Server() *tls.Config {
	cfg := e.config()
	cfg.ClientAuth = tls.RequestClientCert
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return errNoCertificate
		}
		return nil
	}
	return cfg
}

// errOtherServer: what answers is not who was meant, or is a later process of it.
var errOtherServer = errors.New("the server presents a certificate other than the expected one")

// Client is how to connect to the server whose certificate has a SHA-256, and to no other.
func (e *Ephemeral) Client(server wire.Digest) *tls.Config {
	cfg := e.config()
	cfg.InsecureSkipVerify = true //nolint:gosec // one certificate is accepted: see below
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		if shown, ok := Shown(&state); !ok || shown != server {
			return errOtherServer
		}
		return nil
	}
	return cfg
}

// config: no tickets, so that each connection is judged by its own handshake.
func (e *Ephemeral) config() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{e.pair}, MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true}
}

// Shown is the SHA-256 of the certificate that the other side of a connection showed; false where it showed none. That it
// has the certificate's key, the handshake has proved.
func Shown(state *tls.ConnectionState) (digest wire.Digest, ok bool) {
	if state == nil || len(state.PeerCertificates) == 0 {
		return wire.Digest{}, false
	}
	return sha256.Sum256(state.PeerCertificates[0].Raw), true
}
