// SPDX-License-Identifier: Apache-2.0

package https_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/https"
)

// certificate is one of a server that is good for a time, and what trusts it.
func certificate(t *testing.T, from, to time.Time, address net.IP) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: to, IPAddresses: []net.IP{address}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// TestReasons: a problem of a server is reported by its reason, and what a retry cannot change is tried once.
func TestReasons(t *testing.T) {
	now, here := time.Now(), net.IPv4(127, 0, 0, 1)
	past, future := now.Add(-24*time.Hour), now.Add(24*time.Hour)
	expired, trustsExpired := certificate(t, past, now.Add(-time.Hour), here)
	early, trustsEarly := certificate(t, now.Add(364*24*time.Hour), now.Add(366*24*time.Hour), here)
	elsewhere, trustsElsewhere := certificate(t, past, future, net.IPv4(192, 0, 2, 1))
	good, trustsGood := certificate(t, past, future, here)
	for name, c := range map[string]struct {
		shown    tls.Certificate
		trusts   *x509.CertPool
		client   tls.ClientAuthType
		status   int
		reason   string
		requests int32
	}{
		"its certificate expired":                     {expired, trustsExpired, 0, 200, wire.MirrorReasonCertificate, 0},
		"our clock, or its, is a year off":            {early, trustsEarly, 0, 200, wire.MirrorReasonCertificate, 0},
		"its certificate is another server's":         {elsewhere, trustsElsewhere, 0, 200, wire.MirrorReasonCertificate, 0},
		"nobody that we trust signed it":              {good, x509.NewCertPool(), 0, 200, wire.MirrorReasonCertificate, 0},
		"it asks for a certificate, and we have none": {good, trustsGood, tls.RequireAnyClientCert, 200, wire.MirrorReasonCertificate, 0},
		"it does not know us":                         {good, trustsGood, 0, http.StatusUnauthorized, wire.MirrorReasonAccessDenied, 1},
		"it lets us not in":                           {good, trustsGood, 0, http.StatusForbidden, wire.MirrorReasonAccessDenied, 1},
		"it is no Substorm":                           {good, trustsGood, 0, http.StatusNotFound, wire.MirrorReasonProtocol, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				w.WriteHeader(c.status)
			}))
			server.TLS = &tls.Config{Certificates: []tls.Certificate{c.shown}, ClientAuth: c.client}
			server.StartTLS()
			defer server.Close()
			at, err := url.Parse(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			client := https.New(https.Config{URL: at, Connections: 1, TLS: &tls.Config{RootCAs: c.trusts}})
			defer client.Close()
			_, _, _, err = client.Root(t.Context(), "")
			if reason := https.ReasonOf(err); err == nil || reason != c.reason || requests.Load() != c.requests {
				t.Errorf("%v: the reason is %s, after %d requests", err, reason, requests.Load())
			}
		})
	}
}

// The text of a server's refusal cannot control a terminal, and is at most as long as a status may be.
func TestRefusalSaid(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", problem.ContentType)
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"detail": "\u001b[2Jgone\u202e\n` + strings.Repeat("x", 50_000) + `"}`))
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := https.New(https.Config{URL: u, Connections: 1})
	defer c.Close()
	_, _, _, err = c.Root(t.Context(), "")
	var refused *https.RefusedError
	if !errors.As(err, &refused) || !strings.Contains(refused.Detail, "gone x") || strings.ContainsAny(err.Error(), "\x1b\u202e\n") || len(err.Error()) > 3<<10 {
		t.Errorf("%.100q, of %d bytes", err, len(err.Error()))
	}
}
