// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/stamp"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// prober asks the reflector from an address of this machine.
type prober struct {
	t    *testing.T
	conn *net.UDPConn
	next uint32
}

func newProber(t *testing.T, from string, port int) *prober {
	t.Helper()
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(from)}, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &prober{t: t, conn: conn}
}

func (p *prober) send() {
	p.t.Helper()
	b := stamp.Request{Sequence: p.next, Sent: stamp.TimestampOf(time.Now()), Error: 0x2001}.Append(nil)
	p.next++
	if _, err := p.conn.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// answered expects the answer to the last packet.
func (p *prober) answered() {
	p.t.Helper()
	b := make([]byte, 100)
	_ = p.conn.SetReadDeadline(time.Now().Add(patience))
	n, err := p.conn.Read(b)
	if err != nil {
		p.t.Fatal(err)
	}
	if r, err := stamp.ParseReply(b[:n]); err != nil || r.Request.Sequence != p.next-1 {
		p.t.Errorf("%+v, %v", r, err)
	}
}

// A host that an Instrument names as a source, or from which a sender reports, can
// measure the link to the pool; others get no answer. A sender's report of the link shows
// in metrics.
func TestPath(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port, path := testenv.FreePort(t), testenv.FreeEdgePort(t)
	g := l.start(t, gatewayOptions{flags: []string{"--link-probe-port", fmt.Sprint(path)}})
	named := framed("named", testenv.FreePort(t), wire.FramingLengthPrefixed)
	named.Listeners[0].Sources = []string{"127.0.1.0/24"}
	l.awaitRevision(t, g.name, l.declare(t, framed("spectra", port, wire.FramingLengthPrefixed), named))

	source, unknown, sender := newProber(t, "127.0.1.7", path), newProber(t, "127.0.2.7", path), newProber(t, "127.0.0.1", path)
	source.send()
	source.answered()
	unknown.send()
	sender.send()
	refused := func(n string) {
		t.Helper()
		await(t, n+" packets are not answered", func() (bool, string) {
			v := g.metric(`substorm_gateway_link_probe_packets_total{result="UnknownSender"}`)
			return v == n, v
		})
	}
	refused("2")
	_ = unknown.conn.SetReadDeadline(time.Now())
	if n, err := unknown.conn.Read(make([]byte, 100)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an unknown sender gets %d bytes, %v", n, err)
	}

	d := newDialog(t, port)
	frame, err := wire.Heartbeat{SentAt: time.Now(), LinkProbe: &wire.LinkProbe{To: "gateway:8862", Window: wire.Span(time.Minute), Sent: 200, Answered: 190, LostOut: 8, LostBack: 1,
		Delay: &wire.LinkDelay{Min: wire.Span(time.Millisecond), Mean: wire.Span(2 * time.Millisecond), P99: wire.Span(3 * time.Millisecond), Max: wire.Span(4 * time.Millisecond),
			JitterOut: wire.Span(500 * time.Microsecond)}}}.Frame()
	if err != nil {
		t.Fatal(err)
	}
	d.write(frame)
	await(t, "what was reported shows", func() (bool, string) {
		v := g.metric(`substorm_link_loss_ratio{direction="all",instrument="spectra"}`)
		return v == "0.05", v
	})
	for name, want := range map[string]string{
		`substorm_link_loss_ratio{direction="out",instrument="spectra"}`:          "0.04",
		`substorm_link_loss_ratio{direction="back",instrument="spectra"}`:         "0.005",
		`substorm_link_round_trip_seconds{instrument="spectra",statistic="mean"}`: "0.002",
		`substorm_link_round_trip_seconds{instrument="spectra",statistic="p99"}`:  "0.003",
		`substorm_link_jitter_seconds{direction="out",instrument="spectra"}`:      "0.0005",
		`substorm_link_packets{instrument="spectra"}`:                             "200",
	} {
		if v := g.metric(name); v != want {
			t.Errorf("%s is %s, want %s", name, v, want)
		}
	}
	sender.send() // from where a sender reported
	sender.answered()
	refused("2")
}
