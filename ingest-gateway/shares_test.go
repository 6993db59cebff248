// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"testing"

	proxyproto "github.com/pires/go-proxyproto"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// header6 is the header of an IPv6 sender that an edge introduces.
func header6(t *testing.T, source string, port int) []byte {
	t.Helper()
	b, err := proxyproto.HeaderProxyFromAddrs(2, &net.TCPAddr{IP: net.ParseIP(source), Port: 4000},
		&net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: port}).Format()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// One address, or one site of IPv6, that opens as many connections to an open Instrument as this may have, and sends a
// byte on each, does not keep the Instrument's own sender out. A connection that gives way is counted, and reset
// without a line.
func TestOneAddressKeepsNoSenderOut(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const most = 8
	web, raw, edge := testenv.FreePort(t), testenv.FreePort(t), testenv.FreeEdgePort(t)
	camera, radar, lines := httpInstrument("camera", web), tcpInstrument("radar", raw), tcpInstrument("lines", testenv.FreePort(t))
	lines.Listeners[0].Framing = wire.FramingLines
	for _, e := range []*wire.InstrumentEntry{&camera, &radar, &lines} {
		e.MaxConnections = most
	}
	revision := l.declare(t, camera, radar, lines)
	g := l.start(t, gatewayOptions{flags: []string{"--edge-port", fmt.Sprint(edge), "--edge-sources", "127.0.0.0/8"}})
	g.awaitReady()
	l.awaitRevision(t, g.name, revision)
	awaitListening(t, web)
	full := func(metric, instrument string) {
		t.Helper()
		series := fmt.Sprintf("%s{instrument=%q}", metric, instrument)
		await(t, series, func() (bool, string) { v := g.metric(series); return v == fmt.Sprint(most), v })
	}
	displaced := func(instrument string, want int) {
		t.Helper()
		series := fmt.Sprintf("substorm_gateway_refused_total{cause=%q,instrument=%q}", wire.CauseDisplaced, instrument)
		await(t, series, func() (bool, string) { v := g.metric(series); return v == fmt.Sprint(want), v })
	}
	object := random(36, 1000)

	t.Run("TCP", func(t *testing.T) {
		attack := crowd(t, most, raw, "127.0.0.60", func(int) []byte { return []byte("x") })
		full("substorm_gateway_connections", "radar")
		if got := send(t, raw, object).receipt(t); got != receiptOf(object) {
			t.Errorf("the Instrument's own sender: %+v", got)
		}
		displaced("radar", 1)
		// The connections came at once, so that any of them may be the oldest.
		heard := make(chan answer, most)
		for _, c := range attack {
			go func() { heard <- hear(c) }()
		}
		if a := <-heard; a.line != "" || !isReset(a.err) {
			t.Errorf("the connection of the crowd that gave way hears %q, %v", a.line, a.err)
		}
	})
	t.Run("TCP behind the edge, from networks of one site", func(t *testing.T) {
		port := int(lines.Listeners[0].Port)
		crowd(t, most, edge, "127.0.0.60", func(i int) []byte {
			return append(header6(t, fmt.Sprintf("2001:db8:1:%x::1", i+1), port), "x"...)
		})
		full("substorm_gateway_connections", "lines")
		own := append(append([]byte(nil), header6(t, "2001:db8:2::1", port)...), "an object\n"...)
		conn := dial(t, edge)
		defer conn.Close()
		if _, err := conn.Write(own); err != nil {
			t.Fatal(err)
		}
		_ = conn.CloseWrite()
		if got := hear(conn).receipt(t); got != receiptOf([]byte("an object")) {
			t.Errorf("the Instrument's own sender: %+v", got)
		}
		displaced("lines", 1)
	})
	t.Run("HTTP", func(t *testing.T) {
		crowd(t, most, web, "127.0.0.61", func(i int) []byte {
			return fmt.Appendf(nil, "PUT /in/camera/slow%d HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx", i)
		})
		full("substorm_gateway_http_requests", "camera")
		put(in(web, "camera", "own"), object).wantReceipt(t, 201, object)
		displaced("camera", 1)
	})
}

// A crowd from 200 addresses, with two connections of each, fills an open Instrument of each framing, with silent, slow and
// unfinished senders. The Instrument's own sender is not kept out.
func TestManyAddressesKeepNoSenderOut(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const most, addresses = 64, 200
	object := random(37, 1000)
	attacks := []struct {
		framing     string // none: HTTP
		says, sends []byte
	}{
		{wire.FramingUntilClose, []byte("x"), object},
		{wire.FramingLines, []byte("x"), []byte("an object\n")},
		{wire.FramingLengthPrefixed, []byte{0, 0}, prefixed(object)},
		{wire.FramingIdle, []byte("x"), object},
		{"", []byte("PUT /in/none/slow HTTP/1.1\r\nHost: x\r\nContent-Le"), nil},
		{"", []byte("PUT /in/none/slow HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx"), nil},
	}
	var entries []wire.InstrumentEntry
	for i, a := range attacks {
		name, port := fmt.Sprintf("instrument-%d", i), testenv.FreePort(t)
		e := tcpInstrument(name, port)
		if a.framing == "" {
			e = httpInstrument(name, port)
		}
		e.Listeners[0].Framing, e.MaxConnections = a.framing, most
		if a.framing == wire.FramingIdle {
			e.Listeners[0].IdleAfterMillis = 60_000
		}
		entries = append(entries, e)
	}
	revision := l.declare(t, entries...)
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	l.awaitRevision(t, g.name, revision)
	for i, a := range attacks {
		e := entries[i]
		t.Run(fmt.Sprint(i, a.framing), func(t *testing.T) {
			port := int(e.Listeners[0].Port)
			awaitListening(t, port)
			says := bytes.ReplaceAll(a.says, []byte("none"), []byte(e.Instrument))
			for n := range addresses {
				crowd(t, 2, port, fmt.Sprintf("127.0.3.%d", n+1), func(int) []byte { return says })
			}
			headed := !bytes.HasSuffix(a.says, []byte("Content-Le")) // a request counts to its instrument once its head is whole
			await(t, "displaced", func() (bool, string) {
				if !headed {
					return true, ""
				}
				v := g.metric(fmt.Sprintf("substorm_gateway_refused_total{cause=%q,instrument=%q}", wire.CauseDisplaced, e.Instrument))
				return v != "" && v != "0", v
			})
			if a.framing == "" {
				var got reply
				await(t, "the Instrument's own request", func() (bool, string) {
					got = put(in(port, e.Instrument, "own"), object)
					return got.status != http.StatusTooManyRequests, ""
				})
				got.wantReceipt(t, 201, object)
				return
			}
			conn := dial(t, port)
			defer conn.Close()
			if _, err := conn.Write(a.sends); err != nil {
				t.Fatal(err)
			}
			_ = conn.CloseWrite()
			if got := hear(conn); got.err != nil || got.line == "" {
				t.Errorf("the Instrument's own sender hears %q, %v", got.line, got.err)
			}
		})
	}
}
