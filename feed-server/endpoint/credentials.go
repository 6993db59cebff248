// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"crypto/x509"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/certificate"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/registry"
)

// Token is what a request shows: a bearer token, or one in place of the password, which
// basic says: a browser shows that by itself, also for other sites' pages.
func Token(r *http.Request) (secret string, basic bool) {
	scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(rest), false
	}
	_, password, basic := r.BasicAuth()
	return password, basic
}

// CertificateReader returns the reader of the Site whose name stands in the certificate that a
// request shows, and that certificate; nothing if none was shown. A certificate of no reader is
// refused. Check the token first: clients show a certificate at each server that asks for one.
func CertificateReader(files *certificate.Files, s *registry.Snapshot, r *http.Request) (reader string, cert *x509.Certificate, refused *problem.Problem) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return "", nil, nil
	}
	if cert = files.Client(r.TLS, time.Now()); cert == nil {
		return "", nil, problem.New(http.StatusUnauthorized, "the certificate is not valid any more: connect with a new one")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Readers)) { // who bears the names of two is the first
		if certificate.Bears(cert, s.Readers[name].CertificateNames) {
			return name, cert, nil
		}
	}
	return "", nil, problem.New(http.StatusUnauthorized, "the certificate has no name of a reader of the Site: see spec.readers of the Site")
}

// Challenge says in the head of a 401 what may be shown.
func Challenge(h http.Header) {
	h.Add("WWW-Authenticate", `Bearer realm="substorm"`)
	h.Add("WWW-Authenticate", `Basic realm="substorm", charset="UTF-8"`)
}
