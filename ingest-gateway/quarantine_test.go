// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// quarantined returns what is in the quarantine.
func (l *lab) quarantined(t *testing.T) map[string]wire.Quarantined {
	t.Helper()
	all := map[string]wire.Quarantined{}
	for _, key := range l.keys(t, wire.QuarantinePrefix(l.site)) {
		info, err := l.store.Head(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if all[key], err = wire.QuarantinedFromMetadata(info.Metadata); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func (l *lab) content(t *testing.T, key string) []byte {
	t.Helper()
	body, _, err := l.store.Get(t.Context(), key, objectstore.Range{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestQuarantine: what unknown senders send is kept apart within its bounds, with a
// receipt for what is safe, and never announced.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	elsewhere, nobodys, telemetry := testenv.FreePort(t), testenv.FreePort(t), testenv.FreePort(t)
	edge, closed := testenv.FreeEdgePort(t), testenv.FreePort(t)
	camera := tcpInstrument("camera", elsewhere)
	camera.Listeners[0].Sources = []string{"192.0.2.0/24"}
	mag := tcpInstrument("mag", 0)
	mag.Listeners = []wire.ListenerEntry{{Protocol: wire.ProtocolUDP, Port: uint16(telemetry), Channel: "raw", Sources: []string{"192.0.2.0/24"}}}
	const maxSize = 300_000
	g := l.start(t, gatewayOptions{flags: []string{"--unknown-senders", "Quarantine", "--quarantine-max-size", fmt.Sprint(maxSize),
		"--quarantine-ports", fmt.Sprint(nobodys), "--edge-port", fmt.Sprint(edge), "--edge-sources", "127.0.0.0/8"}})
	l.awaitRevision(t, g.name, l.declare(t, camera, mag))
	begun := time.Now().Add(-time.Second)

	// Until the bucket was looked at nothing is kept, and senders are reset.
	var first answer
	attempts := uint64(0)
	object := append([]byte("SIMPLE  =                    T"), random(1, 100_000)...)
	await(t, "the quarantine takes something", func() (bool, string) {
		first = send(t, elsewhere, object)
		if !errors.Is(first.err, syscall.ECONNREFUSED) {
			attempts++ // each that is accepted is counted, also one that is reset
		}
		return first.line != "", fmt.Sprint(first.err)
	})
	if got := first.receipt(t); got != receiptOf(object) {
		t.Fatalf("receipt %+v", got)
	}
	second := random(2, 50_000)
	if got := send(t, nobodys, second).receipt(t); got != receiptOf(second) {
		t.Fatalf("receipt %+v", got)
	}
	if got := send(t, nobodys, nil).receipt(t); got.Refused != wire.CauseEmpty {
		t.Errorf("nothing is answered with %+v", got)
	}
	kept := l.quarantined(t)
	if len(kept) != 2 {
		t.Fatalf("%d objects are kept: %v", len(kept), kept)
	}
	for key, is := range kept {
		want, port, looks := object, elsewhere, "image/fits"
		if int(is.Port) == nobodys {
			want, port, looks = second, nobodys, "application/octet-stream"
		}
		if is.Digest != receiptOf(want).Digest || is.Size != int64(len(want)) || int(is.Port) != port || is.Looks != looks || is.Protocol != wire.ProtocolTCP ||
			!strings.HasPrefix(is.Source, "127.0.0.1:") || is.ReceivedAt.Before(begun) || !bytes.Equal(l.content(t, key), want) {
			t.Errorf("%s: %+v", key, is)
		}
	}
	l.awaitRefusal(t, g, "camera", wire.CauseUnknownSource, attempts)

	// An edge may name any port: what would come to one that is not open is refused.
	for _, port := range []int{edge, closed} {
		if got := throughEdge(t, edge, header(t, 2, "203.0.113.1:4004", port), second).receipt(t); got.Refused != wire.CauseUnknownSource {
			t.Errorf("by the edge to port %d, which is not open: %+v", port, got)
		}
	}

	// The bound holds: the oldest stays.
	if got := send(t, elsewhere, random(3, 200_000)).receipt(t); got.Refused != wire.CauseQuarantineFull {
		t.Errorf("beyond the bound: %+v", got)
	}
	conn, err := net.Dial("udp", loopback(telemetry))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const datagrams, size = 60, 1200 // more than a segment holds
	for i := range datagrams {
		if _, err := conn.Write(random(uint64(100+i), size)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // so that the kernel's buffer loses none
	}
	var segment string
	await(t, "a segment is kept", func() (bool, string) {
		for key, is := range l.quarantined(t) {
			if is.Protocol == wire.ProtocolUDP {
				segment = key
			}
		}
		return segment != "", fmt.Sprint(l.keys(t, wire.QuarantinePrefix(l.site)))
	})
	is := l.quarantined(t)[segment]
	if is.Source != "127.0.0.1" || int(is.Port) != telemetry || is.FirstAt == nil || is.FirstAt.After(is.ReceivedAt) || is.Looks != wire.MediaTypeSegment {
		t.Errorf("%+v", is)
	}
	in, err := pcapgo.NewNgReader(bytes.NewReader(l.content(t, segment)), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; ; n++ {
		data, _, err := in.ReadPacketData()
		if err != nil {
			break
		}
		udp, _ := gopacket.NewPacket(data, layers.LayerTypeIPv4, gopacket.Default).Layer(layers.LayerTypeUDP).(*layers.UDP)
		if udp == nil || int(udp.DstPort) != telemetry || !bytes.Equal(udp.Payload, random(uint64(100+n), size)) {
			t.Fatalf("packet %d is another", n)
		}
	}
	if n != is.Datagrams || n < 40 {
		t.Errorf("%d packets, %d datagrams", n, is.Datagrams)
	}
	if err := g.stop(); err != nil { // which stores the rest
		t.Fatal(err)
	}
	sum := 0
	for _, is := range l.quarantined(t) {
		sum += is.Datagrams
	}
	if sum != datagrams {
		t.Errorf("%d of %d datagrams are kept", sum, datagrams)
	}
	if notices := l.notices(t); len(notices) != 0 {
		t.Errorf("announced: %+v", notices)
	}

	// Objects that are older than the max age are removed, those of this gateway and of others.
	old := wire.QuarantineKey(l.site, "north-7", time.Now().Add(-2*time.Hour), receiptOf(object).Digest)
	if err := l.store.Put(t.Context(), old, bytes.NewReader(object), int64(len(object)), objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	l.start(t, gatewayOptions{flags: []string{"--unknown-senders", "Quarantine", "--quarantine-retention", "1h"}})
	await(t, "only the old is removed", func() (bool, string) {
		keys := l.keys(t, wire.QuarantinePrefix(l.site))
		return len(keys) >= 3 && !slices.Contains(keys, old), fmt.Sprint(keys)
	})
}

// TestQuarantineAway: the datagrams of an unknown sender count as quarantined once they are in
// the bucket. While the store is away they wait; those that it never takes are
// counted as lost by that.
func TestQuarantineAway(t *testing.T) {
	t.Parallel()
	l := newLabAlone(t)
	telemetry := testenv.FreePort(t)
	mag := tcpInstrument("mag", 0)
	mag.Listeners = []wire.ListenerEntry{{Protocol: wire.ProtocolUDP, Port: uint16(telemetry), Channel: "raw", Sources: []string{"192.0.2.0/24"}}}
	g := l.start(t, gatewayOptions{flags: []string{"--unknown-senders", "Quarantine"}})
	l.awaitRevision(t, g.name, l.declare(t, mag))
	conn, err := net.Dial("udp", loopback(telemetry))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sent := uint64(0)
	send := func(datagrams int) {
		t.Helper()
		for range datagrams {
			if _, err := conn.Write(random(sent, 1200)); err != nil {
				t.Fatal(err)
			}
			sent++
			time.Sleep(time.Millisecond) // so that the kernel's buffer loses none
		}
	}
	series := func(cause wire.Cause) string {
		return fmt.Sprintf("substorm_gateway_datagrams_dropped_total{cause=%q,instrument=%q}", cause, wire.UnknownInstrument)
	}
	// Until the bucket was looked at nothing is kept.
	await(t, "the quarantine takes a segment", func() (bool, string) {
		send(1)
		return g.number(series(wire.CauseQuarantined)) > 0, ""
	})
	early := uint64(g.number(series(wire.CauseStoreUnavailable)))
	const few = 20
	l.minio.Kill()
	before := uint64(g.number(series(wire.CauseQuarantined)))
	send(2 * 60) // more than two segments hold
	await(t, "the store refuses a segment", func() (bool, string) {
		v := g.metric("substorm_gateway_quarantine_waiting_segments")
		return v != "" && v != "0", v
	})
	if now := uint64(g.number(series(wire.CauseQuarantined))); now != before {
		t.Errorf("%d datagrams count as quarantined that are not in the bucket", now-before)
	}
	l.minio.Start()
	await(t, "what waited is in the bucket", func() (bool, string) {
		v := g.number(series(wire.CauseQuarantined))
		return uint64(v) >= before+100 && g.metric("substorm_gateway_quarantine_waiting_segments") == "0", fmt.Sprint(v)
	})
	l.minio.Kill()
	send(few)
	await(t, "all datagrams were read", func() (bool, string) {
		v := g.metric(fmt.Sprintf("substorm_gateway_datagrams_received_total{instrument=%q}", wire.UnknownInstrument))
		return v == fmt.Sprint(sent), v
	})
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	l.minio.Start()
	var kept uint64
	for _, is := range l.quarantined(t) {
		kept += uint64(is.Datagrams)
	}
	var totals wire.Totals
	l.awaitLedger(t, wire.UnknownInstrument, wire.StepReceived, func(s wire.Totals) bool {
		totals = s
		return s.Dropped[wire.CauseQuarantined] == kept && s.Dropped[wire.CauseStoreUnavailable] == sent-kept && s.Unknown == 0
	})
	if lost := totals.Dropped[wire.CauseStoreUnavailable]; lost < early+few || kept < before+100 {
		t.Errorf("%d of %d are kept, %d lost", kept, sent, lost)
	}
}

// TestLimits: an instrument that sends more than it may is slowed down over TCP,
// and loses datagrams that are counted; others are not touched.
func TestLimits(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	slow := framed("slow", testenv.FreePort(t), wire.FramingLengthPrefixed)
	slow.BytesPerSecond = 100_000
	few := framed("few", testenv.FreePort(t), wire.FramingLengthPrefixed)
	few.ObjectsPerSecond = 5
	mag := tcpInstrument("mag", 0)
	udpPort := testenv.FreePort(t)
	mag.BytesPerSecond = 1000
	mag.Listeners = []wire.ListenerEntry{{Protocol: wire.ProtocolUDP, Port: uint16(udpPort), Channel: "raw"}}
	g := l.start(t, gatewayOptions{})
	l.awaitRevision(t, g.name, l.declare(t, slow, few, mag))

	t.Run("bytes", func(t *testing.T) {
		d := newDialog(t, int(slow.Listeners[0].Port))
		object := random(1, 300_000)
		begin := time.Now()
		d.write(prefixed(object))
		d.stored(object)
		// The first 100,000 come at once, and after the last, as many at most, there is no wait. A
		// slow machine makes it longer, none shorter.
		if took := time.Since(begin); took < 990*time.Millisecond {
			t.Errorf("300,000 bytes at 100,000 a second took %v", took)
		}
		if g.number(`substorm_gateway_paced_total{instrument="slow"}`) == 0 {
			t.Error("nothing was paced")
		}
	})
	t.Run("objects", func(t *testing.T) {
		d := newDialog(t, int(few.Listeners[0].Port))
		var objects [][]byte
		for i := range 12 {
			objects = append(objects, random(uint64(i), 100))
		}
		begin := time.Now()
		d.write(prefixed(objects...))
		d.stored(objects...)
		if took := time.Since(begin); took < 1300*time.Millisecond {
			t.Errorf("12 objects at 5 a second took %v", took)
		}
	})
	t.Run("datagrams", func(t *testing.T) {
		conn, err := net.Dial("udp", loopback(udpPort))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		const sent, size = 200, 1000 // 64 KiB may come at once
		for i := range sent {
			if _, err := conn.Write(random(uint64(i), size)); err != nil {
				t.Fatal(err)
			}
		}
		var totals wire.Totals
		l.awaitLedger(t, "mag", wire.StepReceived, func(s wire.Totals) bool {
			totals = s
			return s.Datagrams+s.Dropped[wire.CauseRateLimited] == sent
		})
		if dropped := totals.Dropped[wire.CauseRateLimited]; dropped == 0 || totals.Datagrams < 60 {
			t.Errorf("%d kept, %d dropped", totals.Datagrams, dropped)
		}
	})
}
