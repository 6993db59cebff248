// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// over is a client of HTTPS, with HTTP/1.1 or HTTP/2.
func (l *tlsLab) over(cfg *tls.Config, two bool) *http.Client {
	transport := &http.Transport{TLSClientConfig: cfg.Clone(), ForceAttemptHTTP2: two, DisableKeepAlives: true}
	if !two {
		transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	return &http.Client{Timeout: patience, Transport: transport}
}

func putOver(t *testing.T, c *http.Client, port int, path, token string, object []byte) (status int, text string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPut, fmt.Sprintf("https://localhost:%d/in/%s", port, path), bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// TestTokens: over HTTPS the path names the instrument, and its token, its
// certificate and its source must all be there.
func TestTokens(t *testing.T) {
	t.Parallel()
	l := newTLSLab(t)
	const mine, newer, hers, third = "0123456789abcdef-camera-old", "0123456789abcdef-camera-new", "0123456789abcdef-radar", "0123456789abcdef-both"
	port := testenv.FreePort(t)
	camera, radar, both := httpInstrument("camera", port), httpInstrument("radar", port), httpInstrument("both", port)
	camera.Listeners[0].TLS, camera.Listeners[0].Tokens = wire.TLSServer, []wire.TokenHash{wire.HashToken([]byte("salt"), mine), wire.HashToken([]byte("pepper"), newer)}
	radar.Listeners[0].TLS, radar.Listeners[0].Tokens = wire.TLSServer, []wire.TokenHash{wire.HashToken([]byte("thyme"), hers)}
	both.Listeners[0].TLS, both.Listeners[0].CertificateNames, both.Listeners[0].Tokens = wire.TLSMutual, []string{"it"}, []wire.TokenHash{wire.HashToken([]byte("rosemary"), third)}
	l.awaitRevision(t, l.gateway.name, l.declare(t, camera, radar, both))
	awaitListening(t, port)
	anybody, it, unknown := l.client(t, nil, ""), l.client(t, l.field, "it"), l.client(t, l.field, "another")
	for i, c := range []struct {
		path, token string
		cfg         *tls.Config
		status      int
		cause       wire.Cause
	}{
		{"camera/a", mine, anybody, 201, ""},
		{"camera/b", newer, anybody, 201, ""},
		{"camera/c", mine, it, 201, ""},
		{"camera/d", "", anybody, 401, wire.CauseBadToken},
		{"camera/e", hers, anybody, 401, wire.CauseBadToken},
		{"camera/f", mine + "x", anybody, 401, wire.CauseBadToken},
		{"nobody/g", mine, anybody, 404, wire.CauseUnknownInstrument},
		{"both/h", third, it, 201, ""},
		{"both/i", third, anybody, 403, wire.CauseBadCertificate},
		{"both/j", third, unknown, 403, wire.CauseBadCertificate},
		{"both/k", mine, it, 401, wire.CauseBadToken},
	} {
		status, text := putOver(t, l.over(c.cfg, i%2 == 0), port, c.path, c.token, random(uint64(i), 1000))
		if status != c.status || !strings.Contains(text, string(c.cause)) {
			t.Errorf("PUT %s with %q: %d %s, want %d %s", c.path, c.token, status, text, c.status, c.cause)
		}
	}
	if seen := l.awaitRefusal(t, l.gateway, "radar", wire.CauseBadToken, 1); !strings.Contains(seen.Shown, "camera") {
		t.Errorf("radar's people are told %+v", seen)
	}
	for _, secret := range []string{mine, newer, hers, third} {
		if strings.Contains(l.gateway.readLog(), secret) {
			t.Error("the log holds a token")
		}
	}
	if status, text := putOver(t, &http.Client{Timeout: patience}, port, "camera/l", mine, nil); status != 0 {
		t.Errorf("a certificate of nobody's authority is taken: %d %s", status, text)
	}

	// A token that is taken away is refused as soon as the registry says so.
	camera.Generation, camera.Listeners[0].Tokens = 2, camera.Listeners[0].Tokens[1:]
	l.awaitRevision(t, l.gateway.name, l.declare(t, camera, radar, both))
	if status, text := putOver(t, l.over(anybody, true), port, "camera/m", mine, random(20, 10)); status != 401 {
		t.Errorf("a revoked token: %d %s", status, text)
	}
	if status, text := putOver(t, l.over(anybody, true), port, "camera/n", newer, random(21, 10)); status != 201 {
		t.Errorf("the one that stayed: %d %s", status, text)
	}

	// A listener that has none left still asks for one.
	camera.Generation, camera.Listeners[0].Tokens = 3, []wire.TokenHash{wire.NoToken()}
	l.awaitRevision(t, l.gateway.name, l.declare(t, camera, radar, both))
	for i, token := range []string{newer, ""} {
		status, text := putOver(t, l.over(anybody, true), port, fmt.Sprintf("camera/o%d", i), token, random(uint64(22+i), 10))
		if status != 401 || !strings.Contains(text, string(wire.CauseBadToken)) {
			t.Errorf("a listener that takes no token, with %q: %d %s", token, status, text)
		}
	}
}

// A client that shows wrong tokens again and again is answered slowly, and a client that
// shows a right one from the same address is not.
func TestGuessedTokens(t *testing.T) {
	t.Parallel()
	l := newTLSLab(t)
	const token = "0123456789abcdef-camera"
	port := testenv.FreePort(t)
	camera := httpInstrument("camera", port)
	camera.Listeners[0].TLS, camera.Listeners[0].Tokens = wire.TLSServer, []wire.TokenHash{wire.HashToken([]byte("salt"), token)}
	l.awaitRevision(t, l.gateway.name, l.declare(t, camera))
	awaitListening(t, port)
	var guesses sync.WaitGroup
	for i := range 14 {
		guesses.Go(func() {
			if status, text := putOver(t, l.over(l.client(t, nil, ""), i%2 == 0), port, "camera/a", fmt.Sprint(token, i), []byte("x")); status != 401 {
				t.Errorf("a guess: %d %s", status, text)
			}
		})
	}
	guesses.Wait()
	if status, text := putOver(t, l.over(l.client(t, nil, ""), false), port, "camera/a", token, []byte("x")); status != 201 {
		t.Errorf("the right token: %d %s", status, text)
	}
	series := fmt.Sprintf("substorm_gateway_authentication_delayed_total{cause=%q}", wire.CauseBadToken)
	if v := l.gateway.metric(series); v == "0" || v == "" {
		t.Errorf("%s is %q", series, v)
	}
	if log := l.gateway.readLog(); !strings.Contains(log, `"cause":"BadToken"`) || strings.Contains(log, token) {
		t.Error("the log holds no wrong token, or which")
	}
}

// A request without an Authorization header asks which token is wanted, as clients that wait to be asked do before each object: it is no
// failed attempt. One with a header that shows no token is.
func TestChallengesAreNoFailures(t *testing.T) {
	t.Parallel()
	l := newTLSLab(t)
	port := testenv.FreePort(t)
	camera := httpInstrument("camera", port)
	camera.Listeners[0].TLS, camera.Listeners[0].Tokens = wire.TLSServer, []wire.TokenHash{wire.HashToken([]byte("salt"), "0123456789abcdef-camera")}
	l.awaitRevision(t, l.gateway.name, l.declare(t, camera))
	awaitListening(t, port)
	anybody, at := l.over(l.client(t, nil, ""), false), fmt.Sprintf("https://localhost:%d/in/camera/a", port)
	const asked = 30
	for range asked {
		r := askBy(anybody, http.MethodPut, at, strings.NewReader("frame"))
		r.wantRefusal(t, http.StatusUnauthorized, wire.CauseBadToken)
		if got := r.header["Www-Authenticate"]; len(got) != 2 {
			t.Fatalf("the sender is asked for %q", got)
		}
	}
	delayed := fmt.Sprintf("substorm_gateway_authentication_delayed_total{cause=%q}", wire.CauseBadToken)
	refused := fmt.Sprintf("substorm_gateway_refused_total{cause=%q,instrument=%q}", wire.CauseBadToken, wire.UnknownInstrument)
	for series, want := range map[string]string{delayed: "", refused: "", `substorm_gateway_challenged_total{instrument="camera"}`: fmt.Sprint(asked)} {
		if got := l.gateway.metric(series); got != want {
			t.Errorf("%s is %q, want %q", series, got, want)
		}
	}
	if strings.Contains(l.gateway.readLog(), `"cause":"BadToken"`) {
		t.Error("the log calls a question a failed attempt")
	}
	for _, shown := range []string{"", "Basic Og==", "Bearer ", "Digest x"} {
		askBy(anybody, http.MethodPut, at, strings.NewReader("frame"), "Authorization", shown).wantRefusal(t, http.StatusUnauthorized, wire.CauseBadToken)
	}
	await(t, refused, func() (bool, string) { v := l.gateway.metric(refused); return v == "4", v })
	l.awaitRefusal(t, l.gateway, "camera", wire.CauseBadToken, 4)
}

// TestEdgeToHTTP: behind a proxy, a header that names a port of HTTP selects it.
func TestEdgeToHTTP(t *testing.T) {
	t.Parallel()
	edge, port := testenv.FreeEdgePort(t), testenv.FreePort(t)
	l := newTLSLab(t, "--edge-port", fmt.Sprint(edge), "--edge-sources", "127.0.0.0/8")
	camera := httpInstrument("camera", port)
	camera.Listeners[0].TLS, camera.Listeners[0].Sources = wire.TLSServer, []string{"198.51.100.7/32"}
	l.awaitRevision(t, l.gateway.name, l.declare(t, camera))
	for source, want := range map[string]string{"198.51.100.7:4001": "201", "198.51.100.8:4001": "403"} {
		conn := dial(t, edge)
		if _, err := conn.Write(header(t, 2, source, port)); err != nil {
			t.Fatal(err)
		}
		over := tls.Client(conn, l.client(t, nil, ""))
		if _, err := fmt.Fprintf(over, "PUT /in/camera/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nConnection: close\r\n\r\nframe", want); err != nil {
			t.Fatal(err)
		}
		if a := hear(over); !strings.HasPrefix(a.line, "HTTP/1.1 "+want) {
			t.Errorf("from %s: %q, %v", source, a.line, a.err)
		}
		conn.Close()
	}
	for _, n := range l.notices(t) {
		if n.Source != "198.51.100.7:4001" || int(n.Port) != port {
			t.Errorf("the notice says that it came from %s to %d", n.Source, n.Port)
		}
	}
}
