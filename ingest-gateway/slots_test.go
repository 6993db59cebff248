// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// crowd opens connections that are kept, and says something on each.
func crowd(t *testing.T, n, port int, from string, say func(i int) []byte) []net.Conn {
	t.Helper()
	var all []net.Conn
	for i := range n {
		d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := d.DialContext(t.Context(), "tcp", loopback(port))
		if err != nil {
			continue // the gateway may close what comes: the crowd is there all the same
		}
		t.Cleanup(func() { c.Close() })
		_, _ = c.Write(say(i))
		all = append(all, c)
	}
	return all
}

// Unknown senders that open connections and keep them leave a slot for permitted senders, over
// every listener.
func TestCrowdOfUnknownSenders(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const connections, clients = 64, 300
	web, raw, edge := testenv.FreePort(t), testenv.FreePort(t), testenv.FreeEdgePort(t)
	camera, aurora, radar := httpInstrument("camera", web), httpInstrument("aurora", web), tcpInstrument("radar", raw)
	aurora.Listeners[0].Sources = []string{"192.0.2.0/24"}
	radar.Listeners[0].Sources = []string{"127.0.0.1/32", "198.51.100.0/24"}
	revision := l.declare(t, camera, aurora, radar)
	g := l.start(t, gatewayOptions{flags: []string{
		"--max-connections", fmt.Sprint(connections), "--edge-port", fmt.Sprint(edge), "--edge-sources", "127.0.0.0/8"}})
	g.awaitReady()
	l.awaitRevision(t, g.name, revision)
	awaitListening(t, web)

	refused := []byte("GET /in/aurora/x HTTP/1.1\r\nHost: x\r\n\r\n")
	silent := []byte("PUT /in/camera/x HT")
	sends := func(name string) {
		t.Helper()
		object := random(uint64(len(name)), 1000)
		stored := put(in(web, "camera", name), object)
		for end := time.Now().Add(patience); stored.err != nil && time.Now().Before(end); {
			// While the crowd is still coming, so many may come from more addresses than
			// there are slots, before a request's header is read: its sender tries again,
			// perhaps with what was stored all the same.
			if stored = put(in(web, "camera", name), object); stored.status == http.StatusOK {
				stored.status = http.StatusCreated
			}
		}
		stored.wantReceipt(t, 201, object)
		if got := send(t, raw, object).receipt(t); got != receiptOf(object) {
			t.Errorf("%s: over TCP: %+v", name, got)
		}
		if got := throughEdge(t, edge, header(t, 2, "198.51.100.7:4001", raw), object).receipt(t); got != receiptOf(object) {
			t.Errorf("%s: behind the edge: %+v", name, got)
		}
	}
	sends("alone")

	kept := crowd(t, clients, web, "127.0.0.9", func(int) []byte { return refused })
	sends("beside-refused-requests")
	for _, c := range kept { // a refusal ends its connection
		_ = c.SetReadDeadline(within())
		answers := bufio.NewReader(c)
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			continue // it made space before its answer
		}
		if resp.StatusCode != http.StatusForbidden || !resp.Close {
			t.Errorf("a refusal that keeps its connection: %v", resp)
		}
	}
	crowd(t, clients, web, "127.0.0.9", func(int) []byte { return silent })
	sends("beside-requests-without-an-end")
	crowd(t, clients, raw, "127.0.0.9", func(int) []byte { return []byte("x") })
	sends("beside-unknown-senders-of-TCP")
	crowd(t, clients, edge, "127.0.0.9", func(i int) []byte {
		return append(header(t, 2, fmt.Sprintf("203.0.113.%d:4000", i%250+1), web), silent...)
	})
	sends("beside-unknown-senders-behind-the-edge")
	series := fmt.Sprintf("substorm_gateway_refused_total{cause=%q,instrument=%q}", wire.CauseTooManyConnections, wire.UnknownInstrument)
	if v := g.metric(series); v == "" || v == "0" {
		t.Errorf("%s is %q", series, v)
	}
}

// Senders that may send keep no slot between two requests of HTTP where others need one, whatever their requests were
// answered: here each connection asked for what there is not (405).
func TestIdleConnectionsOfIdentifiedSenders(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const connections = 64
	web, raw := testenv.FreePort(t), testenv.FreePort(t)
	camera, radar := httpInstrument("camera", web), tcpInstrument("radar", raw)
	camera.MaxConnections = 4
	revision := l.declare(t, camera, radar)
	g := l.start(t, gatewayOptions{flags: []string{"--max-connections", fmt.Sprint(connections)}})
	g.awaitReady()
	l.awaitRevision(t, g.name, revision)
	awaitListening(t, web)
	answer := make([]byte, 4096)
	for i := range connections { // one after the other: each is identified before the next comes
		for _, c := range crowd(t, 1, web, "127.0.0.9", func(int) []byte { return []byte("GET /in/camera/x HTTP/1.1\r\nHost: x\r\n\r\n") }) {
			_ = c.SetReadDeadline(time.Now().Add(testenv.Patience))
			if n, err := c.Read(answer); err != nil || !bytes.Contains(answer[:n], []byte(" 405 ")) {
				t.Fatalf("connection %d: %q, %v", i, answer[:n], err)
			}
		}
	}
	c, err := net.Dial("tcp", loopback(raw))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("an object of the radar")); err != nil {
		t.Fatal(err)
	}
	_ = c.(*net.TCPConn).CloseWrite()
	_ = c.SetReadDeadline(time.Now().Add(testenv.Patience))
	if n, err := c.Read(answer); n == 0 {
		t.Errorf("the radar is not answered beside idle connections of another sender: %v", err)
	}
}

// Many connections that one address opens at once displace none of them if the address alone identifies the sender:
// none counts as an unknown sender's.
func TestManyConnectionsOfOneSender(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	raw := testenv.FreePort(t)
	radar := tcpInstrument("radar", raw)
	radar.MaxConnections = 64
	revision := l.declare(t, radar)
	g := l.start(t, gatewayOptions{flags: []string{"--max-connections", "64"}})
	g.awaitReady()
	l.awaitRevision(t, g.name, revision)
	awaitListening(t, raw)
	object := []byte("an object of the radar")
	for i, c := range crowd(t, 48, raw, "127.0.0.9", func(int) []byte { return object }) {
		_ = c.(*net.TCPConn).CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(testenv.Patience))
		if n, err := c.Read(make([]byte, 4096)); n == 0 {
			t.Errorf("connection %d is not answered: %v", i, err)
		}
	}
	series := fmt.Sprintf("substorm_gateway_refused_total{cause=%q,instrument=%q}", wire.CauseTooManyConnections, wire.UnknownInstrument)
	if v := g.metric(series); v != "" && v != "0" {
		t.Errorf("%s is %q", series, v)
	}
}
