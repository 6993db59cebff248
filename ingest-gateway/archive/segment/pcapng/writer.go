// SPDX-License-Identifier: Apache-2.0

// Package pcapng writes datagrams as pcapng with raw IP packets: the format of
// segments. Wireshark, tshark and every pcap library read it, and the sender's
// address, both ports and the receive time survive in it.
//
// The same datagrams always make the same bytes, so that a segment that is cut
// again after a kill is the same object.
package pcapng

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/substorm/substorm/internal/wire"
)

// Writer writes one segment.
type Writer struct {
	ng     *pcapgo.NgWriter
	packet []byte // of the last datagram, used again
}

// NewWriter begins a segment; comment, for people, goes into its section header.
// Timestamps are in nanoseconds (if_tsresol 9).
func NewWriter(w io.Writer, comment string) (*Writer, error) {
	ng, err := pcapgo.NewNgWriterInterface(w,
		pcapgo.NgInterface{LinkType: layers.LinkTypeRaw},
		pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "substorm", Comment: comment}})
	if err != nil {
		return nil, fmt.Errorf("beginning a segment: %w", err)
	}
	return &Writer{ng: ng}, nil
}

// Add writes a datagram as an IP packet from its source to its destination
// port. The destination address is the unspecified one (0.0.0.0 or ::): which
// of the gateway's addresses the sender used is not part of the observation.
func (w *Writer) Add(d wire.Datagram) error {
	var err error
	if w.packet, err = appendPacket(w.packet[:0], d); err != nil {
		return err
	}
	info := gopacket.CaptureInfo{Timestamp: d.ReceivedAt, CaptureLength: len(w.packet), Length: len(w.packet)}
	if err := w.ng.WritePacket(info, w.packet); err != nil {
		return fmt.Errorf("writing a segment: %w", err)
	}
	return nil
}

// Close writes what is still buffered. It does not close the underlying writer.
func (w *Writer) Close() error {
	if err := w.ng.Flush(); err != nil {
		return fmt.Errorf("writing a segment: %w", err)
	}
	return nil
}

const (
	udpProtocol   = 17
	udpHeaderSize = 8
	hopLimit      = 64
)

var errTooLarge = errors.New("a datagram is larger than an IP packet can be")

// appendPacket appends the IP packet (RFC 791, RFC 8200) that carries a
// datagram (RFC 768).
func appendPacket(b []byte, d wire.Datagram) ([]byte, error) {
	source := d.Source.Addr().Unmap()
	if source.Is6() {
		return appendIPv6(b, source, d)
	}
	if !source.IsValid() {
		source = netip.IPv4Unspecified()
	}
	return appendIPv4(b, source, d)
}

func appendIPv4(b []byte, source netip.Addr, d wire.Datagram) ([]byte, error) {
	const headerSize = 20
	size := headerSize + udpHeaderSize + len(d.Payload)
	if size > 0xffff {
		return b, errTooLarge
	}
	start := len(b)
	b = append(b, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(size))
	b = append(b, 0, 0, 0, 0, hopLimit, udpProtocol, 0, 0)
	from := source.As4()
	b = append(b, from[:]...)
	b = append(b, 0, 0, 0, 0)
	binary.BigEndian.PutUint16(b[start+10:], checksum(0, b[start:start+headerSize]))
	// No UDP checksum, which IPv4 allows: the sender's is gone, ours would say nothing.
	return append(appendUDPHeader(b, d), d.Payload...), nil
}

func appendIPv6(b []byte, source netip.Addr, d wire.Datagram) ([]byte, error) {
	const headerSize = 40
	size := udpHeaderSize + len(d.Payload)
	if size > 0xffff {
		return b, errTooLarge
	}
	start := len(b)
	b = append(b, 0x60, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(size))
	b = append(b, udpProtocol, hopLimit)
	from := source.As16()
	b = append(b, from[:]...)
	b = append(b, make([]byte, 16)...)
	b = append(appendUDPHeader(b, d), d.Payload...)
	// IPv6 demands a UDP checksum, over a pseudo-header (RFC 8200, 8.1).
	pseudo := sum(0, b[start+8:start+headerSize]) + uint32(size) + udpProtocol
	check := checksum(pseudo, b[start+headerSize:])
	if check == 0 {
		check = 0xffff
	}
	binary.BigEndian.PutUint16(b[start+headerSize+6:], check)
	return b, nil
}

func appendUDPHeader(b []byte, d wire.Datagram) []byte {
	b = binary.BigEndian.AppendUint16(b, d.Source.Port())
	b = binary.BigEndian.AppendUint16(b, d.DestinationPort)
	b = binary.BigEndian.AppendUint16(b, uint16(udpHeaderSize+len(d.Payload)))
	return append(b, 0, 0)
}

// sum adds up 16-bit words, an odd last byte padded with zero. 2^15 words of a
// packet cannot overflow 32 bits.
func sum(total uint32, data []byte) uint32 {
	for ; len(data) >= 2; data = data[2:] {
		total += uint32(binary.BigEndian.Uint16(data))
	}
	if len(data) == 1 {
		total += uint32(data[0]) << 8
	}
	return total
}

// checksum is the Internet checksum (RFC 1071).
func checksum(total uint32, data []byte) uint16 {
	total = sum(total, data)
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return ^uint16(total)
}
