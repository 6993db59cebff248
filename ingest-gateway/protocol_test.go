// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// A request of HTTP and a TLS hello at a port of raw TCP are refused with a line, whatever the framing: nothing of them is
// kept, each is counted, and the log says what to do. An Instrument that declares HTTP messages sends them.
func TestOtherProtocolsAtRawPorts(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	request := []byte("POST / HTTP/1.1\r\nHost: 192.0.2.1:30101\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nevil")
	var entries []wire.InstrumentEntry
	for _, framing := range []string{wire.FramingUntilClose, wire.FramingLines, wire.FramingLengthPrefixed, wire.FramingIdle} {
		e := tcpInstrument(strings.ToLower(framing), testenv.FreePort(t))
		if e.Listeners[0].Framing = framing; framing == wire.FramingIdle {
			e.Listeners[0].IdleAfterMillis = 60_000
		}
		entries = append(entries, e)
	}
	declared := tcpInstrument("declared", testenv.FreePort(t))
	declared.MediaType = "message/http"
	g := l.start(t, gatewayOptions{})
	l.awaitRevision(t, g.name, l.declare(t, append(entries, declared)...))
	for _, e := range entries {
		conn := dial(t, int(e.Listeners[0].Port))
		defer conn.Close()
		if _, err := conn.Write(request); err != nil { // and no end of it: its client waits for the answer
			t.Fatal(err)
		}
		if a := hear(conn); a.line != "refused WrongProtocol\n" {
			t.Errorf("%s: a request of HTTP is answered %q, %v", e.Instrument, a.line, a.err)
		}
		l.expectRefused(t, g, e.Instrument, wire.CauseWrongProtocol)
	}
	hello := bytes.Buffer{}
	conn := dial(t, int(entries[0].Listeners[0].Port))
	defer conn.Close()
	if err := tls.Client(&teed{conn, &hello}, &tls.Config{ServerName: "gateway.example"}).Handshake(); err == nil {
		t.Error("there is TLS")
	}
	if got := hello.String(); !strings.HasPrefix(got, "refused WrongProtocol\n") {
		t.Errorf("a TLS hello is answered %q", got)
	}
	series := fmt.Sprintf("substorm_gateway_refused_total{cause=%q,instrument=%q}", wire.CauseWrongProtocol, entries[0].Instrument)
	await(t, series, func() (bool, string) { v := g.metric(series); return v == "2", v })
	for _, advice := range []string{"a listener with protocol HTTP", "set tcp.tls of the listener"} {
		if !strings.Contains(g.readLog(), advice) {
			t.Errorf("the log does not say %q", advice)
		}
	}
	if got := send(t, int(declared.Listeners[0].Port), request).receipt(t); got != receiptOf(request) {
		t.Errorf("a declared message of HTTP: %+v", got)
	}
}

// teed keeps what is read.
type teed struct {
	net.Conn
	read *bytes.Buffer
}

func (c *teed) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Write(b[:n])
	return n, err
}
