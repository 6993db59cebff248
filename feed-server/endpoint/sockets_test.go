// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// from127 connects from 127.0.x.y.
func from127(t *testing.T, n int, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, byte(n>>8)+1, byte(n))}}
	c, err := d.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(3 * time.Minute))
	return c
}

// ask asks once, and leaves the connection open; 0: it was closed.
func askOn(c net.Conn, authorization string) int {
	_, _ = fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\n%s\r\n", authorization)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// A server has so many sockets. A client that takes them all and asks for nothing loses some to
// new clients; a connection by which a token was shown, and a proxy's, stays.
func TestSockets(t *testing.T) {
	t.Parallel()
	const most = 40
	snapshot := &registry.Snapshot{Revision: 1, Readers: map[string]wire.ReaderEntry{"uni": {Tokens: []wire.TokenHash{wire.HashToken([]byte("salt"), "secret")}}}}
	proxies, err := ParseProxies([]string{"127.0.9.9"})
	if err != nil {
		t.Fatal(err)
	}
	log, metrics := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	a := NewAdmission(AdmissionConfig{Proxies: proxies, MaxSockets: most, Logger: log, Metrics: metrics})
	g := NewAccessCheck(AccessCheckConfig{Registry: func() *registry.Snapshot { return snapshot }, Admission: a, Logger: log, Metrics: metrics})
	server := httptest.NewUnstartedServer(g.Answer(func(v *Request) *problem.Problem {
		v.Finish("/", v.Send([]byte("yes")))
		return nil
	}))
	server.Config.ConnState, server.Config.ConnContext = a.Sockets.ConnState, WithConnection
	server.Start()
	t.Cleanup(server.Close)
	to := server.Listener.Addr().String()
	const token = "Authorization: Bearer secret\r\n"
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 9, 9)}}
	proxy, err := d.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	early := from127(t, 1, to)
	if status := askOn(early, token); status != http.StatusOK {
		t.Fatalf("a reader: %d", status)
	}
	quiet := from127(t, 500, to)
	var idle []net.Conn
	for round := range 3 {
		for n := range 200 {
			idle = append(idle, from127(t, n, to))
		}
		if status := askOn(early, token); status != http.StatusOK {
			t.Errorf("round %d: a reader that is connected: %d", round, status)
		}
		if status := askOn(from127(t, 600+round, to), token); status != http.StatusOK {
			t.Errorf("round %d: a reader that comes: %d", round, status)
		}
	}
	if status := askOn(proxy, ""); status != http.StatusOK {
		t.Errorf("a proxy that is believed: %d", status)
	}
	_ = quiet
	a.Sockets.mu.Lock()
	held := len(a.Sockets.all)
	a.Sockets.mu.Unlock()
	if held > most {
		t.Errorf("%d sockets are open", held)
	}
	if status := askOn(idle[0], ""); status != 0 {
		t.Errorf("the first that asked for nothing: %d", status)
	}
	// One address that takes all loses its own, and not another's.
	alone := from127(t, 700, to)
	for range 3 * most {
		from127(t, 701, to)
	}
	if status := askOn(alone, ""); status != http.StatusOK {
		t.Errorf("an address with one connection, while another takes all: %d", status)
	}
}
