// SPDX-License-Identifier: Apache-2.0

// Package certificate holds the certificate that a program shows, and the
// authorities whose certificates it takes, and follows their files as they are
// renewed.
package certificate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/wire"
)

// Names of the files: keys of Secrets.
const (
	fileCertificate = "tls.crt"
	filePrivateKey  = "tls.key"
	fileAuthorities = "ca.crt"
)

// lookInterval is how often the files are looked at. The kubelet takes up to a
// minute to bring a changed Secret.
const lookInterval = 5 * time.Second

var (
	errNoCertificate = errors.New("the client presented no certificate")
	errNone          = errors.New("the pool has no certificate: give its IngestGateway spec.tls.certificateSecretRef")
	errNoAuthority   = errors.New("the pool knows no authority of client certificates: give its IngestGateway spec.tls.caSecretRef")
)

// Config says where the files are.
type Config struct {
	// Dir has tls.crt and tls.key.
	Dir string
	// ClientCADir has ca.crt; empty where no client authority is known.
	ClientCADir string
	Logger      *slog.Logger
	// Metrics, where set, gets the gauge <Subsystem>_certificate_expiry_seconds.
	Metrics   prometheus.Registerer
	Subsystem string
}

// Files are the certificates in force. Any number of goroutines may ask them. A
// nil Files has none.
type Files struct {
	cfg     Config
	current atomic.Pointer[loaded]
}

// loaded is what the files held at one moment.
type loaded struct {
	sum            [sha256.Size]byte
	server, mutual *tls.Config // mutual is nil without a client authority
	// optional takes a client's certificate where one is shown, and none otherwise.
	optional    *tls.Config
	authorities *x509.CertPool
	expires     time.Time
}

// Open reads the files. Errors name the file and what is wrong with it.
func Open(cfg Config) (*Files, error) {
	f := &Files{cfg: cfg}
	now, err := f.load()
	if err != nil {
		return nil, err
	}
	f.current.Store(now)
	if cfg.Metrics != nil {
		metric.GaugeFunc(cfg.Metrics, cfg.Subsystem+"_certificate_expiry_seconds",
			"When the certificate that clients see expires, in seconds since the Unix epoch.",
			func() float64 { return float64(f.current.Load().expires.Unix()) })
	}
	return f, nil
}

// Run follows the files until ctx ends. Files that cannot be read change nothing.
func (f *Files) Run(ctx context.Context) error {
	if f == nil {
		return nil
	}
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for said := ""; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, err := f.load()
		switch {
		case err != nil && err.Error() != said:
			said = err.Error()
			f.cfg.Logger.Error("cannot use the renewed certificate; the previous one stays in force", "error", err)
		case err == nil && now.sum != f.current.Load().sum:
			said = ""
			f.current.Store(now)
			f.cfg.Logger.Info("loaded a renewed certificate", "expires", now.expires)
		}
	}
}

// Config returns how a connection shakes hands. Mode is wire.TLSServer or
// wire.TLSMutual. It errs where the pool has no certificate for that.
func (f *Files) Config(mode string) (*tls.Config, error) {
	if f == nil {
		return nil, errNone
	}
	now := f.current.Load()
	if mode != wire.TLSMutual {
		return now.server, nil
	}
	if now.mutual == nil {
		return nil, errNoAuthority
	}
	return now.mutual, nil
}

// Optional is how a connection shakes hands whose client shows a certificate or none:
// one that no authority signed, or that is not valid now, is refused.
func (f *Files) Optional() *tls.Config { return f.current.Load().optional }

// Client is the certificate that a connection's client presented, if the current authorities signed it and it is valid at a time;
// otherwise nil. A connection may be older than what it is judged by.
func (f *Files) Client(state *tls.ConnectionState, at time.Time) *x509.Certificate {
	if f == nil || state == nil || len(state.VerifiedChains) == 0 {
		return nil
	}
	now, between := f.current.Load(), x509.NewCertPool()
	if now.authorities == nil {
		return nil
	}
	for _, c := range state.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: now.authorities, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil
	}
	return state.PeerCertificates[0]
}

// Bears says whether a certificate has one of some names: as a DNS name or URI among
// its subject alternative names, or as the common name of its subject.
func Bears(cert *x509.Certificate, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		dns := func(n string) bool { return strings.EqualFold(n, name) }
		uri := slices.ContainsFunc(cert.URIs, func(u *url.URL) bool { return u.String() == name })
		return uri || cert.Subject.CommonName == name || slices.ContainsFunc(cert.DNSNames, dns)
	})
}

// Refused says whether an error of a handshake is about the sender's certificate.
func Refused(err error) bool {
	var unverified *tls.CertificateVerificationError
	return errors.Is(err, errNoCertificate) || errors.As(err, &unverified)
}

// load reads the files as they are now.
func (f *Files) load() (*loaded, error) {
	crt, err := os.ReadFile(filepath.Join(f.cfg.Dir, fileCertificate))
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	key, err := os.ReadFile(filepath.Join(f.cfg.Dir, filePrivateKey))
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(crt, key)
	if err != nil {
		return nil, fmt.Errorf("certificate in %s: %w", f.cfg.Dir, err)
	}
	now := &loaded{server: config(pair), optional: config(pair), expires: pair.Leaf.NotAfter}
	var authorities []byte
	if f.cfg.ClientCADir != "" {
		if authorities, err = os.ReadFile(filepath.Join(f.cfg.ClientCADir, fileAuthorities)); err != nil {
			return nil, fmt.Errorf("client authorities: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("client authorities: %s in %s holds no certificate", fileAuthorities, f.cfg.ClientCADir)
		}
		now.authorities, now.mutual = pool, mutual(pair, pool)
		now.optional.ClientAuth, now.optional.ClientCAs = tls.VerifyClientCertIfGiven, pool
	}
	now.sum = sha256.Sum256(bytes.Join([][]byte{crt, key, authorities}, []byte{0}))
	return now, nil
}

// config: no tickets, so that each connection is judged by what is in force now.
func config(pair tls.Certificate) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true,
	}
}

// mutual: crypto/tls verifies the certificate; VerifyConnection checks that there is one, so that this refusal can be distinguished from
// others.
func mutual(pair tls.Certificate, authorities *x509.CertPool) *tls.Config {
	cfg := config(pair)
	cfg.ClientAuth, cfg.ClientCAs = tls.VerifyClientCertIfGiven, authorities
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.VerifiedChains) == 0 {
			return errNoCertificate
		}
		return nil
	}
	return cfg
}
