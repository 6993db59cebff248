// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/substorm/substorm/internal/wire"
)

// buffers are large enough for pcapgo to take them as they are.
var buffers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 64<<10) }}

// Datagrams calls each for every datagram of a segment, in its order: pcapng with raw IP, see docs/reference/archive-format.md. A payload
// is good until each returns. Errors: wire.ErrMalformed, those of in, and an error of each, which ends the read.
func Datagrams(in io.Reader, each func(payload []byte, receivedAt time.Time) error) error {
	source := &watched{Reader: in}
	buffer := buffers.Get().(*bufio.Reader)
	buffer.Reset(source)
	defer func() {
		buffer.Reset(nil) // it holds in's memory
		buffers.Put(buffer)
	}()
	ng, err := pcapgo.NewNgReader(buffer, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		return source.explain(err)
	}
	if t := ng.LinkType(); t != layers.LinkTypeRaw {
		return fmt.Errorf("segment: link type %s, not raw IP: %w", t, wire.ErrMalformed)
	}
	for {
		packet, info, err := ng.ZeroCopyReadPacketData()
		if errors.Is(err, io.EOF) && source.err == nil {
			return nil
		}
		if err != nil {
			return source.explain(err)
		}
		payload, err := udpPayload(packet)
		if err != nil {
			return err
		}
		if err := each(payload, info.Timestamp); err != nil {
			return err
		}
	}
}

// ReadSegment decodes the datagrams of a segment. Errors: *Undecodable, with an entry for each datagram that cannot be read in full, and
// one for everything behind a break of the framing; those of in and of emit. In may not be read to its end.
func (d *Decoder) ReadSegment(in io.Reader, emit func(Sample) error) error {
	var bad Undecodable
	r := d.begin(time.Time{}, emit)
	err := Datagrams(in, func(payload []byte, receivedAt time.Time) error {
		r.beginPayload(receivedAt)
		d.layout.payload(r, payload)
		if r.bad > 0 && r.failed == nil {
			bad.add(r.first)
		}
		return r.failed
	})
	_ = d.end(r) // its error about the last datagram was recorded above
	if errors.Is(err, wire.ErrMalformed) {
		bad.add(err)
		err = nil
	}
	if err == nil && bad.Records > 0 {
		return &bad
	}
	return err
}

// Sizes and places of the headers of IPv4 (RFC 791), IPv6 (RFC 8200) and UDP.
const (
	ipv4Least, ipv4Protocol = 20, 9
	ipv6Head, ipv6Next      = 40, 6
	udpHead, udpLength      = 8, 4
	protocolUDP             = 17
)

var errPacket = fmt.Errorf("segment: a packet is not UDP over IP: %w", wire.ErrMalformed)

// udpPayload returns the payload of a packet of raw IP.
func udpPayload(packet []byte) ([]byte, error) {
	if len(packet) < ipv4Least {
		return nil, errPacket
	}
	var head int
	switch packet[0] >> 4 {
	case 4:
		if head = int(packet[0]&0xf) * 4; head < ipv4Least || packet[ipv4Protocol] != protocolUDP {
			return nil, errPacket
		}
	case 6:
		if head = ipv6Head; packet[ipv6Next] != protocolUDP {
			return nil, errPacket
		}
	default:
		return nil, errPacket
	}
	if len(packet) < head+udpHead {
		return nil, errPacket
	}
	udp := packet[head:]
	length := int(binary.BigEndian.Uint16(udp[udpLength:]))
	if length < udpHead || length > len(udp) {
		return nil, errPacket
	}
	return udp[udpHead:length], nil
}

// watched remembers why its reader failed.
type watched struct {
	io.Reader
	err error
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		w.err = err
	}
	return n, err
}

// explain returns the reader's own error where it had one: then nothing is wrong with
// the segment.
func (w *watched) explain(err error) error {
	if w.err != nil {
		return w.err
	}
	return fmt.Errorf("segment: %w: %v", wire.ErrMalformed, err)
}
