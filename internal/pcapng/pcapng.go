// SPDX-License-Identifier: Apache-2.0

// Package pcapng writes datagrams as segments hold them: files that tools for network captures read.
package pcapng

import (
	"fmt"
	"io"
	"net"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/substorm/substorm/internal/wire"
)

// PerPacket is what a datagram takes in a segment besides its payload: an
// Enhanced Packet Block with padding (35 bytes) and the headers of IPv6 and UDP.
const PerPacket = 35 + 40 + 8

// The largest payloads whose length UDP and IPv4, or UDP alone, can say.
const (
	maxPayload  = 65535 - 20 - 8
	maxPayload6 = 65535 - 8
)

// Writer writes datagrams as pcapng (IETF draft-ietf-opsawg-pcapng): raw IP
// (LINKTYPE_RAW, 101), times in nanoseconds. The IP and UDP headers are made out
// of what we know: source, destination port and length. The destination address
// is not known and stands as 0.0.0.0 or ::. The bytes depend on nothing but the
// arguments, so that a segment that is cut again is the same object.
type Writer struct {
	ng     *pcapgo.NgWriter
	buffer gopacket.SerializeBuffer
}

// NewWriter begins a file; comment stands in its head. All that is written is held back until Flush.
func NewWriter(w io.Writer, comment string) (*Writer, error) {
	options := pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "substorm", Comment: comment}}
	ng, err := pcapgo.NewNgWriterInterface(w, pcapgo.NgInterface{LinkType: layers.LinkTypeRaw, TimestampResolution: 9}, options)
	if err != nil {
		return nil, err
	}
	return &Writer{ng: ng, buffer: gopacket.NewSerializeBuffer()}, nil
}

// Flush writes what is held back.
func (p *Writer) Flush() error { return p.ng.Flush() }

// Write writes one datagram. Errors: wire.ErrMalformed for one that is no packet,
// which leaves the others as they are, and those of the writer below.
func (p *Writer) Write(d wire.Datagram) error {
	source := d.Source.Addr().Unmap()
	most := maxPayload
	if source.Is6() {
		most = maxPayload6
	}
	if len(d.Payload) > most {
		return fmt.Errorf("datagram of %d bytes from %s: too large for UDP: %w", len(d.Payload), d.Source, wire.ErrMalformed)
	}
	udp := &layers.UDP{SrcPort: layers.UDPPort(d.Source.Port()), DstPort: layers.UDPPort(d.DestinationPort)}
	ip, err := networkLayer(source, udp)
	if err != nil {
		return err
	}
	err = gopacket.SerializeLayers(p.buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		ip, udp, gopacket.Payload(d.Payload))
	if err != nil {
		return fmt.Errorf("datagram of %d bytes from %s: %w: %w", len(d.Payload), d.Source, wire.ErrMalformed, err)
	}
	packet := p.buffer.Bytes()
	return p.ng.WritePacket(gopacket.CaptureInfo{
		Timestamp: d.ReceivedAt, CaptureLength: len(packet), Length: len(packet)}, packet)
}

// networkLayer makes the IP header from the sender to us. An absent source
// stands as 0.0.0.0.
func networkLayer(source netip.Addr, udp *layers.UDP) (gopacket.SerializableLayer, error) {
	if source.Is6() {
		ip := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolUDP, HopLimit: 64,
			SrcIP: source.AsSlice(), DstIP: net.IPv6zero}
		return ip, udp.SetNetworkLayerForChecksum(ip)
	}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP,
		SrcIP: net.IPv4zero.To4(), DstIP: net.IPv4zero.To4()}
	if source.IsValid() {
		ip.SrcIP = source.AsSlice()
	}
	return ip, udp.SetNetworkLayerForChecksum(ip)
}

// Packets is a Writer that holds nothing back.
type Packets struct{ w *Writer }

// NewPackets begins with the head of a file; comment stands in it.
func NewPackets(w io.Writer, comment string) (*Packets, error) {
	p, err := NewWriter(w, comment)
	if err != nil {
		return nil, err
	}
	return &Packets{p}, p.Flush()
}

// Write writes one datagram. Errors: those of Writer.Write.
func (p *Packets) Write(d wire.Datagram) error {
	if err := p.w.Write(d); err != nil {
		return err
	}
	return p.w.Flush()
}
