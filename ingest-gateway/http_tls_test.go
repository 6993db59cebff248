// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// Over TLS, in both versions of HTTP, with tokens and certificates that decide which senders may
// send for the instrument that the path names.
func TestHTTPOverTLS(t *testing.T) {
	t.Parallel()
	l := newTLSLab(t)
	port := testenv.FreePort(t)
	token := tlsListener(httpInstrument("token", port), wire.TLSServer)
	token.Listeners[0].Tokens = []wire.TokenHash{wire.HashToken([]byte("0123456789abcdef"), "a token of enough letters")}
	l.awaitRevision(t, l.gateway.name, l.declare(t, token, tlsListener(httpInstrument("camera", port), wire.TLSMutual, "camera.example")))
	url := func(instrument string, n int) string {
		return fmt.Sprintf("https://localhost:%d/in/%s/%d", port, instrument, n)
	}
	for i, h2 := range []bool{false, true} {
		object := random(uint64(i), 20<<20)
		as := func(cfg *tls.Config) *http.Client {
			transport := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: h2, DialContext: (&net.Dialer{}).DialContext}
			t.Cleanup(transport.CloseIdleConnections)
			return &http.Client{Timeout: patience, Transport: transport}
		}
		send := func(c *http.Client, url string, header ...string) reply {
			r := askBy(c, http.MethodPut, url, io.MultiReader(bytes.NewReader(object)), header...)
			if want := "HTTP/1.1"; r.err == nil && (r.proto == want) == h2 {
				t.Errorf("the protocol is %s", r.proto)
			}
			return r
		}
		nobody, camera := as(l.client(t, nil, "")), as(l.client(t, l.field, "camera.example"))
		send(nobody, url("token", i), "Authorization", "Bearer a token of enough letters").wantReceipt(t, 201, object)
		wrong := send(nobody, url("token", i), "Authorization", "Bearer another token, and long enough")
		wrong.wantRefusal(t, 401, wire.CauseBadToken)
		if wrong.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("401 without WWW-Authenticate: %v", wrong)
		}
		send(camera, url("camera", i)).wantReceipt(t, 201, object)
		send(nobody, url("camera", i)).wantRefusal(t, 403, wire.CauseBadCertificate)
		send(as(l.client(t, l.field, "other.example")), url("camera", i)).wantRefusal(t, 403, wire.CauseBadCertificate)
	}
	// Plain bytes reach no instrument.
	if r := put(in(port, "token", "x"), []byte("x"), "Authorization", "Bearer a token of enough letters"); r.status == 201 || r.status == 200 {
		t.Errorf("over plain HTTP: %v", r)
	}
}

// A client whose TLS handshake fails is counted by cause, as over TCP, and reported near
// the one instrument that it could have been; other clients are not.
func TestHTTPHandshakesThatFail(t *testing.T) {
	t.Parallel()
	l := newTLSLab(t)
	port := testenv.FreePort(t)
	l.awaitRevision(t, l.gateway.name, l.declare(t, tlsListener(httpInstrument("camera", port), wire.TLSMutual)))
	url := fmt.Sprintf("https://localhost:%d/in/camera/x", port)
	send := func(url string, cfg *tls.Config) reply {
		transport := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		return askBy(&http.Client{Timeout: patience, Transport: transport}, http.MethodPut, url, bytes.NewReader([]byte("x")))
	}
	counted := func(cause wire.Cause, want int) {
		t.Helper()
		series := fmt.Sprintf("substorm_gateway_refused_total{cause=%q,instrument=%q}", cause, wire.UnknownInstrument)
		await(t, fmt.Sprint(series, " ", want), func() (bool, string) {
			v := l.gateway.metric(series)
			return v == fmt.Sprint(want), v
		})
	}
	if r := send(url, &tls.Config{ServerName: "localhost"}); r.err == nil { // trusts another authority
		t.Errorf("an authority that is not trusted: %v", r)
	}
	counted(wire.CauseTLSHandshake, 1)
	if r := send(fmt.Sprintf("http://localhost:%d/in/camera/x", port), nil); r.err == nil && r.status != http.StatusBadRequest {
		t.Errorf("over plain HTTP: %v", r)
	}
	counted(wire.CauseTLSHandshake, 2)
	if r := send(url, l.client(t, testenv.NewCA(t), "camera.example")); r.err == nil {
		t.Errorf("a certificate of another authority: %v", r)
	}
	counted(wire.CauseBadCertificate, 1)
	send(url, l.client(t, l.field, "camera.example")).wantReceipt(t, 201, []byte("x"))
	l.awaitRefusal(t, l.gateway, "camera", wire.CauseBadCertificate, 1)
	if seen := l.awaitRefusal(t, l.gateway, "camera", wire.CauseTLSHandshake, 2); seen.Protocol != wire.ProtocolHTTP || int(seen.Port) != port {
		t.Errorf("told as %+v", seen)
	}
	l.awaitLedger(t, wire.UnknownInstrument, wire.StepReceived, func(s wire.Totals) bool {
		return s.Unfinished[wire.CauseTLSHandshake] == 2 && s.Unfinished[wire.CauseBadCertificate] == 1
	})
}

// Senders that are silent, or send a byte now and then, hold no memory and do not block others.
func TestHTTPSlowSenders(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	e := httpInstrument("camera", port)
	narrow := httpInstrument("narrow", port)
	narrow.MaxConnections = 1
	l.declare(t, e, narrow)
	g := l.start(t, gatewayOptions{flags: []string{"--memory-budget", "8388608"}})
	g.awaitReady()
	awaitListening(t, port)
	// Half of them chunked; in all far more than the budget's first slabs.
	const slow = 256
	for i := range slow {
		conn := dial(t, port)
		t.Cleanup(func() { conn.Close() })
		head := "Content-Length: 1000000\r\n\r\n"
		if i%2 == 0 {
			head = "Transfer-Encoding: chunked\r\n\r\n400\r\n"
		}
		if _, err := fmt.Fprintf(conn, "PUT /in/camera/slow/%d HTTP/1.1\r\nHost: x\r\n%s%s", i, head, random(uint64(i), 500)); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "all of them are being received", func() (bool, string) {
		n := g.metric(`substorm_gateway_http_requests{instrument="camera"}`)
		return n == fmt.Sprint(slow), n
	})
	for i := range 4 {
		object := random(uint64(1000+i), 3<<20)
		put(in(port, "camera", fmt.Sprintf("quick/%d", i)), object).wantReceipt(t, 201, object)
	}
	// A header that does not end is cut off.
	conn := dial(t, port)
	defer conn.Close()
	if _, err := fmt.Fprint(conn, "PUT /in/camera/never HTTP/1.1\r\nHost: "); err != nil {
		t.Fatal(err)
	}
	if a := hear(conn); a.err != nil {
		t.Errorf("a header that does not end: %q, %v", a.line, a.err)
	}
	// Requests beyond the limit get an answer that says so.
	busy := dial(t, port)
	defer busy.Close()
	if _, err := fmt.Fprint(busy, "PUT /in/narrow/first HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	await(t, "the only request that may be is", func() (bool, string) {
		n := g.metric(`substorm_gateway_http_requests{instrument="narrow"}`)
		return n == "1", n
	})
	r := put(in(port, "narrow", "second"), []byte("x"))
	if r.wantRefusal(t, 429, wire.CauseTooManyConnections); r.header.Get("Retry-After") == "" {
		t.Errorf("429 without Retry-After: %v", r)
	}
}
