// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"net/netip"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// MaxTelemetrySize is the size at which a telemetry message closes, in bytes.
const MaxTelemetrySize = 256 << 10

// TelemetryMaxAge is the age at which a telemetry message closes.
const TelemetryMaxAge = 100 * time.Millisecond

// MaxDatagramOverhead bounds what AppendDatagram adds to a payload, in bytes.
const MaxDatagramOverhead = 64

// Field numbers of telemetry.proto.
const (
	fieldFormat     = 1
	fieldInstrument = 2
	fieldChannel    = 3
	fieldDatagram   = 4

	fieldReceived        = 1
	fieldSourceAddress   = 2
	fieldSourcePort      = 3
	fieldDestinationPort = 4
	fieldPayload         = 5
)

// Datagram is one UDP packet of telemetry.
type Datagram struct {
	ReceivedAt      time.Time
	Source          netip.AddrPort
	DestinationPort uint16
	// Payload as it arrived. Readers share the message's memory.
	Payload []byte
}

// AppendTelemetryHeader begins a telemetry message in b.
func AppendTelemetryHeader(b []byte, instrument, channel string) []byte {
	b = protowire.AppendTag(b, fieldFormat, protowire.VarintType)
	b = protowire.AppendVarint(b, Format)
	b = protowire.AppendTag(b, fieldInstrument, protowire.BytesType)
	b = protowire.AppendString(b, instrument)
	b = protowire.AppendTag(b, fieldChannel, protowire.BytesType)
	return protowire.AppendString(b, channel)
}

// AppendDatagram adds a datagram to a message that AppendTelemetryHeader began.
// It allocates nothing where b has len(d.Payload)+MaxDatagramOverhead to spare.
func AppendDatagram(b []byte, d Datagram) []byte {
	addr := d.Source.Addr().Unmap()
	var raw [16]byte
	var address []byte
	if addr.Is4() {
		a := addr.As4()
		address = append(raw[:0], a[:]...)
	} else {
		raw = addr.As16()
		address = raw[:]
	}
	size := protowire.SizeTag(fieldReceived) + protowire.SizeFixed64() +
		protowire.SizeTag(fieldSourceAddress) + protowire.SizeBytes(len(address)) +
		protowire.SizeTag(fieldSourcePort) + protowire.SizeVarint(uint64(d.Source.Port())) +
		protowire.SizeTag(fieldDestinationPort) + protowire.SizeVarint(uint64(d.DestinationPort)) +
		protowire.SizeTag(fieldPayload) + protowire.SizeBytes(len(d.Payload))
	b = protowire.AppendTag(b, fieldDatagram, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	b = protowire.AppendTag(b, fieldReceived, protowire.Fixed64Type)
	b = binary.LittleEndian.AppendUint64(b, uint64(d.ReceivedAt.UnixNano()))
	b = protowire.AppendTag(b, fieldSourceAddress, protowire.BytesType)
	b = protowire.AppendBytes(b, address)
	b = protowire.AppendTag(b, fieldSourcePort, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(d.Source.Port()))
	b = protowire.AppendTag(b, fieldDestinationPort, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(d.DestinationPort))
	b = protowire.AppendTag(b, fieldPayload, protowire.BytesType)
	return protowire.AppendBytes(b, d.Payload)
}

// Datagrams yields the datagrams of a telemetry message in order. After an
// error (ErrMalformed, ErrNewerFormat) it ends. Unknown fields are skipped.
func Datagrams(message []byte) iter.Seq2[Datagram, error] {
	return func(yield func(Datagram, error) bool) {
		format := 0
		for b := message; len(b) > 0; {
			num, typ, value, rest, err := nextField(b)
			if err != nil {
				yield(Datagram{}, err)
				return
			}
			b = rest
			switch {
			case num == fieldFormat && typ == protowire.VarintType:
				v, _ := protowire.ConsumeVarint(value)
				format = int(min(v, 1<<30))
			case num == fieldDatagram && typ == protowire.BytesType:
				if err := CheckFormat(format); err != nil {
					yield(Datagram{}, fmt.Errorf("telemetry message: %w", err))
					return
				}
				payload, _ := protowire.ConsumeBytes(value)
				d, err := parseDatagram(payload)
				if !yield(d, err) || err != nil {
					return
				}
			}
		}
		if err := CheckFormat(format); err != nil {
			yield(Datagram{}, fmt.Errorf("telemetry message: %w", err))
		}
	}
}

// nextField splits the first field off b: its number, type and encoded value.
func nextField(b []byte) (num protowire.Number, typ protowire.Type, value, rest []byte, err error) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 {
		return 0, 0, nil, nil, fmt.Errorf("telemetry message: %w: %v", ErrMalformed, protowire.ParseError(n))
	}
	m := protowire.ConsumeFieldValue(num, typ, b[n:])
	if m < 0 {
		return 0, 0, nil, nil, fmt.Errorf("telemetry message: %w: %v", ErrMalformed, protowire.ParseError(m))
	}
	return num, typ, b[n : n+m], b[n+m:], nil
}

func parseDatagram(b []byte) (Datagram, error) {
	d := Datagram{ReceivedAt: time.Unix(0, 0).UTC()} // proto3: what is absent is 0
	var addr netip.Addr
	var port uint16
	for len(b) > 0 {
		num, typ, value, rest, err := nextField(b)
		if err != nil {
			return Datagram{}, err
		}
		b = rest
		switch {
		case num == fieldReceived && typ == protowire.Fixed64Type:
			v, _ := protowire.ConsumeFixed64(value)
			d.ReceivedAt = time.Unix(0, int64(v)).UTC()
		case num == fieldSourceAddress && typ == protowire.BytesType:
			raw, _ := protowire.ConsumeBytes(value)
			var ok bool
			if addr, ok = netip.AddrFromSlice(raw); !ok {
				return Datagram{}, fmt.Errorf("telemetry message: source address of %d bytes: %w", len(raw), ErrMalformed)
			}
		case num == fieldSourcePort && typ == protowire.VarintType:
			if port, err = parsePort(value); err != nil {
				return Datagram{}, err
			}
		case num == fieldDestinationPort && typ == protowire.VarintType:
			if d.DestinationPort, err = parsePort(value); err != nil {
				return Datagram{}, err
			}
		case num == fieldPayload && typ == protowire.BytesType:
			d.Payload, _ = protowire.ConsumeBytes(value)
		}
	}
	if !addr.IsValid() {
		return Datagram{}, fmt.Errorf("telemetry message: datagram without a source address: %w", ErrMalformed)
	}
	d.Source = netip.AddrPortFrom(addr, port)
	return d, nil
}

func parsePort(value []byte) (uint16, error) {
	v, _ := protowire.ConsumeVarint(value)
	if v > math.MaxUint16 {
		return 0, fmt.Errorf("telemetry message: port %d: %w", v, ErrMalformed)
	}
	return uint16(v), nil
}
