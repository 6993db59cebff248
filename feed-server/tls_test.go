// SPDX-License-Identifier: Apache-2.0

package feedserver_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// Over TLS, WebSocket and events work alike, the latter also over HTTP/2.
func TestTLS(t *testing.T) {
	t.Parallel()
	l := newLab(t, consumer("sockets", wire.DeliveryWebSocket), consumer("stream", wire.DeliveryServerSentEvents))
	ca := testenv.NewCA(t)
	f := l.start("--tls-dir", ca.Dir(t, "feed-server"))
	h := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.ClientTLS(), ForceAttemptHTTP2: true}}
	resp := eventsOverHTTP2(t, h, f)
	defer resp.Body.Close()
	stream := l.client(f, "stream")
	stream.events, stream.body = true, bufio.NewReader(resp.Body)

	h1 := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.ClientTLS()}}
	sockets := l.client(f, "sockets")
	conn, _, err := websocket.Dial(t.Context(), at(f, "wss", "ws", "sockets", ""), &websocket.DialOptions{
		HTTPClient: h1, HTTPHeader: bearer("sockets"), Subprotocols: []string{wire.SubprotocolBinary},
	})
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(-1)
	t.Cleanup(func() { _ = conn.CloseNow() })
	sockets.conn = conn
	for range 20 {
		l.telemetry("mag-1", 2, 60_000)
	}
	stream.expect(0, 40)
	sockets.expect(0, 40)
	_, metrics, _ := get(t, f.Metrics(), nil)
	if !strings.Contains(metrics, "substorm_feed_certificate_expiry_seconds ") {
		t.Error("no metric says when the certificate expires")
	}
}

// Clients that leave amid an answer end no other client's answer, also over HTTP/2, where one
// connection carries many.
func TestLeaveOverHTTP2(t *testing.T) {
	t.Parallel()
	l := newLab(t, consumer("stream", wire.DeliveryServerSentEvents))
	ca := testenv.NewCA(t)
	f := l.start("--tls-dir", ca.Dir(t, "feed-server"))
	h := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.ClientTLS(), ForceAttemptHTTP2: true}}
	for range 500 {
		_ = eventsOverHTTP2(t, h, f).Body.Close()
	}
	testenv.Await(t, "they are gone", func() bool { return metric(t, f, "substorm_feed_connections", `"stream"`) == 0 })
}

// eventsOverHTTP2 begins to read what the consumer stream is given.
func eventsOverHTTP2(t *testing.T, h *http.Client, f *testenv.FeedServer) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at(f, "https", "events", "stream", ""), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = bearer("stream")
	resp, err := h.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
		t.Fatalf("%s over %s", resp.Status, resp.Proto)
	}
	return resp
}
