// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/pires/go-proxyproto"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// header is what a proxy says before it passes a sender's bytes on.
func header(t *testing.T, version byte, source string, port int) []byte {
	t.Helper()
	from, err := net.ResolveTCPAddr("tcp", source)
	if err != nil {
		t.Fatal(err)
	}
	b, err := proxyproto.HeaderProxyFromAddrs(version, from, &net.TCPAddr{IP: net.IPv4(198, 51, 100, 1), Port: port}).Format()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestEdge: behind a proxy, the port and the source in its header select the listener,
// and without a header of version 2 nothing does.
func TestEdge(t *testing.T) {
	t.Parallel()
	edge, north, secured := testenv.FreeEdgePort(t), testenv.FreePort(t), testenv.FreePort(t)
	l := newTLSLab(t, "--edge-port", fmt.Sprint(edge), "--edge-sources", "192.0.2.0/24,127.0.0.0/8")
	g := l.gateway
	camera, radar := tcpInstrument("camera", north), tcpInstrument("radar", north)
	camera.Listeners[0].Sources, radar.Listeners[0].Sources = []string{"198.51.100.7/32"}, []string{"2001:db8::/32"}
	private := tlsListener(tcpInstrument("private", secured), wire.TLSMutual, "it")
	private.Listeners[0].Sources = []string{"198.51.100.0/24"}
	l.awaitRevision(t, g.name, l.declare(t, camera, radar, private))

	through := func(t *testing.T, head []byte, object []byte) answer {
		t.Helper()
		return throughEdge(t, edge, head, object)
	}
	for source, instrument := range map[string]string{"198.51.100.7:4001": "camera", "[2001:db8::7]:4002": "radar"} {
		t.Run(instrument, func(t *testing.T) {
			object := random(uint64(len(source)), 200_000)
			if got := through(t, header(t, 2, source, north), object).receipt(t); got != receiptOf(object) {
				t.Fatalf("receipt %+v", got)
			}
			l.awaitLedger(t, instrument, wire.StepStored, func(s wire.Totals) bool { return s.Objects == 1 })
			for _, n := range l.notices(t) {
				if n.Instrument == instrument && n.Source != source {
					t.Errorf("the notice says that it came from %s", n.Source)
				}
			}
		})
	}
	t.Run("TLS is the gateway's", func(t *testing.T) {
		conn := dial(t, edge)
		defer conn.Close()
		if _, err := conn.Write(header(t, 2, "198.51.100.9:4003", secured)); err != nil {
			t.Fatal(err)
		}
		over := tls.Client(conn, l.client(t, l.field, "it"))
		object := random(9, 100_000)
		if _, err := over.Write(object); err != nil {
			t.Fatal(err)
		}
		if err := over.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got := hear(over).receipt(t); got != receiptOf(object) {
			t.Fatalf("receipt %+v", got)
		}
	})
	t.Run("another source", func(t *testing.T) {
		a := through(t, header(t, 2, "203.0.113.1:4004", north), random(10, 1000))
		if got := a.receipt(t); got.Refused != wire.CauseUnknownSource {
			t.Errorf("receipt %+v", got)
		}
		if seen := l.awaitRefusal(t, g, "camera", wire.CauseUnknownSource, 1); seen.Source != "203.0.113.1" || int(seen.Port) != north {
			t.Errorf("told as %+v", seen)
		}
	})
	headers := map[string][]byte{
		"no header":   nil,
		"version 1":   header(t, 1, "198.51.100.7:4001", north),
		"half of one": header(t, 2, "198.51.100.7:4001", north)[:20],
	}
	for name, head := range headers {
		t.Run(name, func(t *testing.T) {
			object := random(11, 1000)
			if name == "half of one" {
				object = nil
			}
			if a := through(t, head, object); a.line != "" || !isReset(a.err) {
				t.Errorf("%q, %v; want a reset", a.line, a.err)
			}
		})
	}
	series := fmt.Sprintf("substorm_gateway_refused_total{cause=%q,instrument=%q}", wire.CauseProxyHeader, wire.UnknownInstrument)
	await(t, series, func() (bool, string) { v := g.metric(series); return v == fmt.Sprint(len(headers)), v })
	t.Run("a header where none is due", func(t *testing.T) {
		conn := dial(t, north)
		defer conn.Close()
		_, _ = conn.Write(header(t, 2, "198.51.100.7:4001", north))
		if a := hear(conn); !strings.Contains(a.line, string(wire.CauseUnknownSource)) {
			t.Errorf("whoever reaches a port speaks for another: %q, %v", a.line, a.err)
		}
	})
	if n := len(l.notices(t)); n != 3 {
		t.Errorf("%d objects were announced", n)
	}
}

// throughEdge sends an object behind a header of PROXY.
func throughEdge(t *testing.T, edge int, head, object []byte) answer {
	t.Helper()
	conn := dial(t, edge)
	defer conn.Close()
	if _, err := conn.Write(append(head, object...)); err != nil {
		return answer{err: err}
	}
	if err := conn.CloseWrite(); err != nil {
		return answer{err: err}
	}
	return hear(conn)
}
