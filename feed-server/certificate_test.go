// SPDX-License-Identifier: Apache-2.0

package feedserver_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// certified is a feed server that takes certificates, of an authority for its readers
// that is not its own.
func (l *lab) certified(own, readers *testenv.CA, flags ...string) *testenv.FeedServer {
	l.t.Helper()
	return l.start(append([]string{"--tls-dir", own.Dir(l.t, "feed-server"), "--client-ca-dir", readers.Dir(l.t, "authority")}, flags...)...)
}

// named is a certificate with a name in one of the places.
func named(change func(*x509.Certificate)) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.DNSNames, c.Subject = []string{"host.example"}, pkix.Name{CommonName: "somebody"}
		change(c)
	}
}

func dnsName(name string) func(*x509.Certificate) {
	return named(func(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, name) })
}

func by(cfg *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}}
}

// ask asks and reads no more than the head of an answer; 0 where the connection was
// refused.
func ask(t *testing.T, h *http.Client, address string, header http.Header) (status int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	resp, err := h.Do(r)
	if err != nil {
		return 0, err
	}
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}

// Readers show certificates as they show tokens: who they are is what the Site says of
// the names, and what they may, the Instruments.
func TestWhoMayReadByCertificate(t *testing.T) {
	t.Parallel()
	only := func(name string) func(*wire.ConsumerEntry) {
		return func(c *wire.ConsumerEntry) { c.Instruments = []string{name} }
	}
	l := newLab(t, consumer("public", wire.DeliveryServerSentEvents, only("mag-1")), consumer("restricted", wire.DeliveryServerSentEvents, only("mag-2")),
		consumer("authenticated", wire.DeliveryServerSentEvents, only("cam-1")), consumer("sockets", wire.DeliveryWebSocket, only("mag-2")))
	l.registry.Instruments[0].Access = &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}
	l.registry.Instruments[1].Access = &wire.AccessEntry{Live: wire.AccessRestricted, Archive: wire.AccessPublic, Readers: []string{"uni"}}
	l.registry.Readers = []wire.ReaderEntry{
		{Reader: "uni", CertificateNames: []string{"reader.uni.example", "spiffe://uni.example/reader", "Uni Reader"}},
		{Reader: "other", Tokens: []wire.TokenHash{hash("other")}, CertificateNames: []string{"other.example"}},
	}
	l.declare()
	own, readers, foreign := testenv.NewCA(t), testenv.NewCA(t), testenv.NewCA(t)
	f := l.certified(own, readers)
	of := func(name string) string { return at(f, "https", "events", name, "") }
	none := own.ClientTLS()
	none.Certificates = nil
	uni, other := readers.As(own, dnsName("reader.uni.example")), readers.As(own, dnsName("other.example"))
	const refused = 0
	for _, c := range []struct {
		name   string
		cfg    *tls.Config
		url    string
		header http.Header
		want   int
	}{
		{"restricted for its reader", uni, of("restricted"), nil, 200},
		{"its reader, by a URI", readers.As(own, named(func(c *x509.Certificate) {
			c.URIs = append(c.URIs, &url.URL{Scheme: "spiffe", Host: "uni.example", Path: "/reader"})
		})), of("restricted"), nil, 200},
		{"its reader, by the subject", readers.As(own, named(func(c *x509.Certificate) { c.Subject.CommonName = "Uni Reader" })), of("restricted"), nil, 200},
		{"restricted for another reader", other, of("restricted"), nil, 403},
		{"restricted for an anonymous reader", none, of("restricted"), nil, 401},
		{"authenticated for a reader", other, of("authenticated"), nil, 200},
		{"authenticated for an anonymous reader", none, of("authenticated"), nil, 401},
		{"a name that is no reader's", readers.As(own, dnsName("nobody.example")), of("authenticated"), nil, 401},
		{"no reader, where none is needed", readers.As(own, dnsName("nobody.example")), of("public"), nil, 401},
		{"no name at all", readers.As(own, func(*x509.Certificate) {}), of("authenticated"), nil, 401},
		{"the reader's own name is no name of a certificate", readers.As(own, dnsName("uni")), of("restricted"), nil, 401},
		{"public for a reader", uni, of("public"), nil, 200},
		{"public for an anonymous reader", none, of("public"), nil, 200},
		{"a token goes first", other, of("restricted"), bearer("restricted"), 403},
		{"a token of somebody else, and a good certificate", uni, of("restricted"), bearer("public"), 401},
		{"a token of a reader, without a certificate", none, of("authenticated"), bearer("other"), 200},
		{"another authority's", foreign.As(own, dnsName("reader.uni.example")), of("restricted"), nil, refused},
		{"another authority's, where none is needed", foreign.As(own, dnsName("reader.uni.example")), of("public"), nil, refused},
		{"the server's own authority's", own.As(own, dnsName("reader.uni.example")), of("restricted"), nil, refused},
		{"expired", readers.As(own, func(c *x509.Certificate) {
			dnsName("reader.uni.example")(c)
			c.NotAfter = time.Now().Add(-time.Minute)
		}), of("restricted"), nil, refused},
		{"not valid yet", readers.As(own, func(c *x509.Certificate) {
			dnsName("reader.uni.example")(c)
			c.NotBefore = time.Now().Add(time.Minute)
		}), of("restricted"), nil, refused},
		{"a server's certificate", readers.As(own, func(c *x509.Certificate) {
			dnsName("reader.uni.example")(c)
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}), of("restricted"), nil, refused},
		{"a certificate asks for no sampling", uni, at(f, "https", "sampling", "restricted", ""), nil, 405},
	} {
		if status, err := ask(t, by(c.cfg), c.url, c.header); status != c.want {
			t.Errorf("%s: %d, want %d: %v", c.name, status, c.want, err)
		}
	}
	// A client that guesses tokens has to wait, but not one at the same address that shows a certificate.
	for n := 0; ; n++ {
		status, err := ask(t, by(none), of("restricted"), bearer(fmt.Sprint("guess-", n)))
		if status == http.StatusTooManyRequests {
			break
		}
		if err != nil || status != http.StatusUnauthorized || n > 1000 {
			t.Fatalf("guess %d: %d %v", n, status, err)
		}
	}
	if status, err := ask(t, by(uni), of("restricted"), nil); status != http.StatusOK {
		t.Errorf("a certificate from an address that guesses tokens: %d %v", status, err)
	}
	// Without authorities the server requests no certificate, and ignores one that is shown.
	plain := l.start("--tls-dir", own.Dir(t, "feed-server"), "--pod", "feed-server-1")
	if status, err := ask(t, by(uni), at(plain, "https", "events", "restricted", ""), nil); status != http.StatusUnauthorized {
		t.Errorf("without authorities: %d %v", status, err)
	}
	// A page of another site is not let in by what a browser shows by itself.
	dial := func(cfg *tls.Config, header http.Header) (*websocket.Conn, int) {
		conn, resp, err := websocket.Dial(t.Context(), at(f, "wss", "ws", "sockets", ""), &websocket.DialOptions{
			HTTPClient: by(cfg), HTTPHeader: header, Subprotocols: []string{wire.SubprotocolBinary}})
		if err != nil {
			return nil, resp.StatusCode
		}
		t.Cleanup(func() { _ = conn.CloseNow() })
		return conn, 0
	}
	if _, status := dial(uni, http.Header{"Origin": {"https://elsewhere.example"}}); status != http.StatusForbidden {
		t.Errorf("another site's page: %d", status)
	}
	if _, status := dial(other, nil); status != http.StatusForbidden {
		t.Errorf("WebSocket, another reader: %d", status)
	}
	// Open connections end when the name is removed from the reader.
	conn, status := dial(uni, nil)
	if conn == nil {
		t.Fatalf("WebSocket, its reader: %d", status)
	}
	l.registry.Readers[0].CertificateNames = []string{"new.uni.example"}
	l.declare()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var closed websocket.CloseError
	var err error
	for err == nil { // beats come before that
		_, _, err = conn.Read(ctx)
	}
	if !errors.As(err, &closed) || closed.Code != websocket.StatusPolicyViolation {
		t.Errorf("the name is taken away: %v", err)
	}
	if status, _ := ask(t, by(uni), of("restricted"), nil); status != http.StatusUnauthorized {
		t.Errorf("the old name: %d", status)
	}
}

// A connection outlives neither the certificate that it began with, nor, for another
// request, its authority.
func TestCertificateEnds(t *testing.T) {
	t.Parallel()
	l := newLab(t, consumer("stream", wire.DeliveryServerSentEvents))
	l.registry.Readers = []wire.ReaderEntry{{Reader: "uni", CertificateNames: []string{"reader.uni.example"}}}
	l.declare()
	own, readers, next := testenv.NewCA(t), testenv.NewCA(t), testenv.NewCA(t)
	authorities := readers.Dir(t, "authority")
	f := l.start("--tls-dir", own.Dir(t, "feed-server"), "--client-ca-dir", authorities)
	short := readers.As(own, func(c *x509.Certificate) {
		dnsName("reader.uni.example")(c)
		c.NotAfter = time.Now().Add(5 * time.Second)
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at(f, "https", "events", "stream", ""), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := by(short).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil { // until it is over
		t.Errorf("it ends with %v", err)
	}
	if status, _ := ask(t, by(short), at(f, "https", "events", "stream", ""), nil); status != 0 {
		t.Errorf("an expired certificate: %d", status)
	}
	// One connection for all requests, and the authority changes under it.
	kept := &http.Client{Transport: &http.Transport{TLSClientConfig: readers.As(own, dnsName("reader.uni.example")), MaxConnsPerHost: 1, ForceAttemptHTTP2: true}}
	if status, err := ask(t, kept, at(f, "https", "events", "stream", ""), nil); status != http.StatusOK {
		t.Fatalf("%d %v", status, err)
	}
	if err := os.WriteFile(filepath.Join(authorities, "ca.crt"), next.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, "the old authority's certificates open nothing", func() bool {
		status, _ := ask(t, kept, at(f, "https", "events", "stream", ""), nil)
		return status == http.StatusUnauthorized || status == 0
	})
	if status, err := ask(t, by(next.As(own, dnsName("reader.uni.example"))), at(f, "https", "events", "stream", ""), nil); status != http.StatusOK {
		t.Errorf("the new authority's: %d %v", status, err)
	}
}
