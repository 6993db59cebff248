// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/certificate"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// A reader may show a certificate instead of a token, and over HTTP/2 all is the same.
func TestCertificates(t *testing.T) {
	t.Parallel()
	ca, anonymous := testenv.NewCA(t), testenv.NewCA(t)
	files, err := certificate.Open(certificate.Config{Dir: ca.Dir(t, "feed-server"), ClientCADir: ca.Dir(t, "x"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t, func(c *config) { c.endpoint.Certificates = files }, wire.InstrumentEntry{Instrument: "readers"})
	l.snapshot.Readers["uni"] = wire.ReaderEntry{Reader: "uni", CertificateNames: []string{"observatory"}, Tokens: l.snapshot.Readers["uni"].Tokens}
	body := noise(9 << 20)
	l.put("readers", "a.jpg", body)
	server := httptest.NewUnstartedServer(l.endpoints)
	server.TLS = files.Optional().Clone()
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)

	bearing := func(name string) *tls.Config {
		certificate, key := ca.Issue(t, name)
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			t.Fatal(err)
		}
		config := ca.ClientTLS().Clone()
		config.Certificates = []tls.Certificate{pair}
		return config
	}
	none := ca.ClientTLS().Clone()
	none.Certificates = nil
	for name, c := range map[string]struct {
		config        *tls.Config
		authorization string
		status        int
	}{
		"none": {none, "", 401}, "the reader's": {bearing("observatory"), "", 200}, "another's": {bearing("elsewhere"), "", 401},
		"another's, and a token": {bearing("elsewhere"), "Bearer uni-token", 200}, "a token": {none, "Bearer uni-token", 200},
	} {
		h := &http.Client{Transport: &http.Transport{TLSClientConfig: c.config, ForceAttemptHTTP2: true}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/archive/readers/a.jpg", nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.authorization != "" {
			r.Header.Set("Authorization", c.authorization)
		}
		resp, err := h.Do(r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.status || resp.ProtoMajor != 2 || c.status == 200 && string(got) != body {
			t.Errorf("%s: %s over %s, %d bytes, %v", name, resp.Status, resp.Proto, len(got), err)
		}
		h.CloseIdleConnections()
	}
	h := &http.Client{Transport: &http.Transport{TLSClientConfig: anonymous.ClientTLS()}}
	if resp, err := h.Get(server.URL); err == nil {
		resp.Body.Close()
		t.Error("a server of another authority is trusted")
	}
	h = &http.Client{Transport: &http.Transport{TLSClientConfig: none, ForceAttemptHTTP2: true}}
	resp, err := h.Get(server.URL + "/robots.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if robots, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(robots), "Sitemap: https://") {
		t.Errorf("robots.txt: %s, %v", robots, err)
	}
}
