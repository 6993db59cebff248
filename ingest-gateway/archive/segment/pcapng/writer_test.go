// SPDX-License-Identifier: Apache-2.0

package pcapng

import (
	"bytes"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/substorm/substorm/internal/wire"
)

func datagrams() []wire.Datagram {
	at := time.Date(2026, 3, 17, 4, 45, 0, 123456789, time.UTC)
	return []wire.Datagram{
		{ReceivedAt: at, Source: netip.MustParseAddrPort("192.0.2.7:4001"), DestinationPort: 30102, Payload: []byte("BOU 20714.31")},
		{ReceivedAt: at.Add(time.Nanosecond), Source: netip.MustParseAddrPort("[2001:db8::7]:4002"), DestinationPort: 30102, Payload: []byte("odd")},
		{ReceivedAt: at.Add(time.Second), Source: netip.MustParseAddrPort("192.0.2.8:1"), DestinationPort: 1, Payload: []byte{}},
		{ReceivedAt: at.Add(time.Hour), Source: netip.MustParseAddrPort("192.0.2.9:65535"), DestinationPort: 65535, Payload: bytes.Repeat([]byte{0xff}, 65507)},
		{ReceivedAt: at.Add(time.Hour), Source: netip.MustParseAddrPort("[fe80::1]:9"), DestinationPort: 2, Payload: bytes.Repeat([]byte{0xff}, 65527)},
	}
}

func write(t *testing.T, all []wire.Datagram) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, "demo/magnetometer/raw 1-5")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if err := w.Add(d); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestReadsBack(t *testing.T) {
	r, err := pcapgo.NewNgReader(bytes.NewReader(write(t, datagrams())), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	var got []wire.Datagram
	for {
		data, info, err := r.ReadPacketData()
		if err != nil {
			break
		}
		got = append(got, parse(t, data, info.Timestamp))
	}
	if diff := cmp.Diff(datagrams(), got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("what was read differs from what was written (-written +read):\n%s", diff)
	}
}

// parse takes a packet apart with a decoder that is not ours.
func parse(t *testing.T, data []byte, at time.Time) wire.Datagram {
	t.Helper()
	first := layers.LayerTypeIPv4
	if data[0]>>4 == 6 {
		first = layers.LayerTypeIPv6
	}
	p := gopacket.NewPacket(data, first, gopacket.Default)
	if p.ErrorLayer() != nil {
		t.Fatal(p.ErrorLayer().Error())
	}
	udp, ok := p.TransportLayer().(*layers.UDP)
	if !ok {
		t.Fatalf("no UDP in %v", p)
	}
	source, _ := netip.AddrFromSlice(p.NetworkLayer().NetworkFlow().Src().Raw())
	return wire.Datagram{
		ReceivedAt: at, Source: netip.AddrPortFrom(source, uint16(udp.SrcPort)),
		DestinationPort: uint16(udp.DstPort), Payload: append([]byte{}, udp.Payload...),
	}
}

func TestSameBytes(t *testing.T) {
	if !bytes.Equal(write(t, datagrams()), write(t, datagrams())) {
		t.Error("the same datagrams made different bytes")
	}
}

func TestTooLarge(t *testing.T) {
	w, err := NewWriter(&bytes.Buffer{}, "")
	if err != nil {
		t.Fatal(err)
	}
	d := datagrams()[0]
	d.Payload = make([]byte, 65508)
	if w.Add(d) == nil {
		t.Error("a payload of 65508 bytes went into an IPv4 packet")
	}
}

func TestTshark(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("needs tshark: apt-get install tshark")
	}
	file := filepath.Join(t.TempDir(), "segment.pcapng")
	if err := os.WriteFile(file, write(t, datagrams()[:3]), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(tshark, "-r", file, "-T", "fields", "-E", "separator=,",
		"-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE",
		"-e", "frame.time_epoch", "-e", "ip.src", "-e", "ipv6.src", "-e", "udp.srcport", "-e", "udp.dstport",
		"-e", "udp.payload", "-e", "ip.checksum.status", "-e", "udp.checksum.status").Output()
	if err != nil {
		t.Fatal(err)
	}
	// Status 1: checked and good; 3: not present (UDP over IPv4).
	want := []string{
		"1773722700.123456789,192.0.2.7,,4001,30102,424f552032303731342e3331,1,3",
		"1773722700.123456790,,2001:db8::7,4002,30102,6f6464,,1",
		"1773722701.123456789,192.0.2.8,,1,1,,1,3",
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(string(out)), "\n")); diff != "" {
		t.Errorf("tshark reads something else (-want +tshark):\n%s", diff)
	}
}
