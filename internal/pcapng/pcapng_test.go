// SPDX-License-Identifier: Apache-2.0

package pcapng

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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

var noon = time.Date(2026, 11, 21, 12, 0, 0, 123_456_789, time.UTC)

func samples() []wire.Datagram {
	return []wire.Datagram{
		{ReceivedAt: noon, Source: netip.MustParseAddrPort("192.0.2.7:40001"), DestinationPort: 30102, Payload: []byte("48123.4 -12.9\n")},
		{ReceivedAt: noon.Add(1), Source: netip.MustParseAddrPort("[2001:db8::7]:65535"), DestinationPort: 1, Payload: []byte("odd")},
		{ReceivedAt: noon.Add(2), Source: netip.MustParseAddrPort("[::ffff:192.0.2.8]:7"), DestinationPort: 30102, Payload: []byte{}},
		{ReceivedAt: noon.Add(time.Second), Source: netip.MustParseAddrPort("192.0.2.9:1"), DestinationPort: 65535, Payload: bytes.Repeat([]byte{0xff, 0}, 65507/2)},
		{ReceivedAt: noon.Add(-time.Second), DestinationPort: 30102, Payload: []byte("of an unknown source")},
	}
}

func writeSamples(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	p, err := NewWriter(&out, "a comment")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range samples() {
		if err := p.Write(d); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A packet as a reader sees it that knows nothing of us.
type packet struct {
	At       string
	Source   string
	Ports    string
	Length   int
	Checksum string
}

func wantPackets() []packet {
	var all []packet
	for _, d := range samples() {
		source := d.Source.Addr().Unmap().String()
		if !d.Source.Addr().IsValid() {
			source = "0.0.0.0"
		}
		all = append(all, packet{
			At:     fmt.Sprintf("%d.%09d", d.ReceivedAt.Unix(), d.ReceivedAt.Nanosecond()),
			Source: source, Ports: fmt.Sprintf("%d-%d", d.Source.Port(), d.DestinationPort), Length: len(d.Payload) + 8, Checksum: "Good",
		})
	}
	return all
}

func TestPacketsForGopacket(t *testing.T) {
	data := writeSamples(t)
	if !bytes.Equal(data, writeSamples(t)) {
		t.Error("the same datagrams gave other bytes")
	}
	ng, err := pcapgo.NewNgReader(bytes.NewReader(data), pcapgo.NgReaderOptions{ErrorOnMismatchingLinkType: true})
	if err != nil {
		t.Fatal(err)
	}
	if ng.LinkType() != layers.LinkTypeRaw || ng.SectionInfo().Comment != "a comment" || ng.SectionInfo().OS != "" {
		t.Errorf("link type %v, section %+v", ng.LinkType(), ng.SectionInfo())
	}
	var got []packet
	for {
		raw, info, err := ng.ReadPacketData()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		p := gopacket.NewPacket(raw, ng.LinkType(), gopacket.Default)
		udp, ok := p.TransportLayer().(*layers.UDP)
		if !ok {
			t.Fatalf("packet %d: %v", len(got), p.ErrorLayer())
		}
		if want := samples()[len(got)].Payload; !bytes.Equal(udp.Payload, want) {
			t.Errorf("packet %d holds %q, want %q", len(got), udp.Payload, want)
		}
		if err := udp.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
			t.Fatal(err)
		}
		err, wrong := p.VerifyChecksums()
		if err != nil || len(wrong) > 0 {
			t.Errorf("packet %d: checksums %v, %v", len(got), wrong, err)
		}
		got = append(got, packet{At: fmt.Sprintf("%d.%09d", info.Timestamp.Unix(), info.Timestamp.Nanosecond()),
			Source: p.NetworkLayer().NetworkFlow().Src().String(), Ports: fmt.Sprintf("%d-%d", udp.SrcPort, udp.DstPort),
			Length: int(udp.Length), Checksum: "Good"})
	}
	if diff := cmp.Diff(wantPackets(), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed (Debian: apt install tshark)", name)
	}
	return path
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, stderr.String())
	}
	return string(out)
}

func TestPacketsForTshark(t *testing.T) {
	tshark := tool(t, "tshark")
	file := filepath.Join(t.TempDir(), "segment.pcapng")
	if err := os.WriteFile(file, writeSamples(t), 0o644); err != nil {
		t.Fatal(err)
	}
	out := run(t, tshark, "-n", "-r", file, "-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-T", "fields",
		"-e", "frame.time_epoch", "-e", "ip.src", "-e", "ipv6.src", "-e", "udp.srcport", "-e", "udp.dstport", "-e", "udp.length",
		"-e", "udp.checksum.status", "-e", "_ws.malformed")
	var got []packet
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimRight(line, "\n"), "\t")
		p := packet{At: f[0], Source: f[1] + f[2], Ports: f[3] + "-" + f[4], Checksum: f[6] + f[7]}
		if f[6] == "1" || f[6] == "Good" {
			p.Checksum = "Good" + f[7]
		}
		if _, err := fmt.Sscan(f[5], &p.Length); err != nil {
			t.Fatalf("tshark says %q", line)
		}
		got = append(got, p)
	}
	if diff := cmp.Diff(wantPackets(), got); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, out)
	}
}

func TestPacketsForCapinfos(t *testing.T) {
	capinfos := tool(t, "capinfos")
	file := filepath.Join(t.TempDir(), "segment.pcapng")
	if err := os.WriteFile(file, writeSamples(t), 0o644); err != nil {
		t.Fatal(err)
	}
	out := run(t, capinfos, file)
	for _, want := range []string{"pcapng", "Raw IP", "nanosecond", "a comment", fmt.Sprint(len(samples()))} {
		if !strings.Contains(out, want) {
			t.Errorf("capinfos does not say %q:\n%s", want, out)
		}
	}
}

func TestPacketTooLarge(t *testing.T) {
	p, err := NewWriter(io.Discard, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{"192.0.2.7:1", "[2001:db8::7]:1"} {
		d := wire.Datagram{ReceivedAt: noon, Source: netip.MustParseAddrPort(source), Payload: make([]byte, 65_600)}
		if err := p.Write(d); err == nil {
			t.Errorf("a datagram of %d bytes from %s was written", len(d.Payload), source)
		}
	}
}
