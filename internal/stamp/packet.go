// SPDX-License-Identifier: Apache-2.0

// Package stamp measures a path by the Simple Two-Way Active Measurement Protocol
// (RFC 8762), in unauthenticated mode: a Session sends packets, a Reflector answers
// each with its own clock and count, and a Tracker makes of that how long packets
// take and which way they are lost.
//
// Both ends are ours: nothing here was tried against another implementation.
package stamp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

const (
	// Port is where reflectors of ours listen. The protocol's own, 862, is one of
	// those that only root may open.
	Port = 8862
	// Size of a packet in bytes, either way (RFC 8762, sections 4.2.1 and 4.3.1).
	Size = 44
)

// ErrMalformed: what came is no packet of the protocol.
var ErrMalformed = errors.New("not a STAMP packet")

// Timestamp counts seconds since 1900 in 32 bits before the point and 32 behind it, as NTP does (RFC 5905, section 6). It wraps around in
// 2036.
type Timestamp uint64

// unixEpoch is 1970 by NTP's count.
const unixEpoch = 2_208_988_800

// TimestampOf returns a time, to within a quarter of a nanosecond.
func TimestampOf(t time.Time) Timestamp {
	seconds := uint64(t.Unix()+unixEpoch) << 32
	return Timestamp(seconds | (uint64(t.Nanosecond())<<32)/uint64(time.Second))
}

// Sub returns t - u, whichever of them is in a later era, for as long as they are
// within 68 years.
func (t Timestamp) Sub(u Timestamp) time.Duration {
	d := int64(t - u)
	whole, rest := d>>32, d&0xffffffff // rest counts up from whole, also where that is negative
	return time.Duration(whole)*time.Second + time.Duration((rest*int64(time.Second)+1<<31)>>32)
}

// ErrorEstimate says how good a clock is (RFC 4656, section 4.1.2): a bit for
// whether it is synchronized, one for another format of time, six of scale and
// eight of multiplier.
type ErrorEstimate uint16

// unknownError is the error estimate for a clock whose state is unknown to the program: not synchronized, and right to 2^-32 * 2^32 = 1
// second.
const unknownError ErrorEstimate = 32<<8 | 1

const multiplierMask = 0xff

// Request is what a Session sends.
type Request struct {
	Sequence uint32
	Sent     Timestamp
	Error    ErrorEstimate
}

// Append writes the packet behind b.
func (r Request) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, r.Sequence)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Sent))
	b = binary.BigEndian.AppendUint16(b, uint16(r.Error))
	return append(b, make([]byte, Size-14)...)
}

// ParseRequest reads a packet; what stands behind its Size bytes (RFC 8972) is
// passed over. Error: ErrMalformed.
func ParseRequest(b []byte) (Request, error) {
	if len(b) < Size {
		return Request{}, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	r := Request{
		Sequence: binary.BigEndian.Uint32(b),
		Sent:     Timestamp(binary.BigEndian.Uint64(b[4:])),
		Error:    ErrorEstimate(binary.BigEndian.Uint16(b[12:])),
	}
	if r.Error&multiplierMask == 0 {
		return Request{}, fmt.Errorf("%w: an error estimate without a multiplier", ErrMalformed)
	}
	return r, nil
}

// Reply is what a Reflector answers.
type Reply struct {
	// Sequence counts the answers of a session: the reflector is stateful.
	Sequence uint32
	Sent     Timestamp
	Error    ErrorEstimate
	// Received is when the request came, by the reflector's clock.
	Received Timestamp
	// Request that is answered.
	Request Request
	// TTL with which the request came; 0 if it is unknown.
	TTL uint8
}

// Append writes the packet behind b.
func (r Reply) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, r.Sequence)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Sent))
	b = binary.BigEndian.AppendUint16(b, uint16(r.Error))
	b = append(b, 0, 0)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Received))
	b = binary.BigEndian.AppendUint32(b, r.Request.Sequence)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Request.Sent))
	b = binary.BigEndian.AppendUint16(b, uint16(r.Request.Error))
	return append(b, 0, 0, r.TTL, 0, 0, 0)
}

// ParseReply reads a packet. Error: ErrMalformed.
func ParseReply(b []byte) (Reply, error) {
	if len(b) < Size {
		return Reply{}, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	return Reply{
		Sequence: binary.BigEndian.Uint32(b),
		Sent:     Timestamp(binary.BigEndian.Uint64(b[4:])),
		Error:    ErrorEstimate(binary.BigEndian.Uint16(b[12:])),
		Received: Timestamp(binary.BigEndian.Uint64(b[16:])),
		Request: Request{
			Sequence: binary.BigEndian.Uint32(b[24:]),
			Sent:     Timestamp(binary.BigEndian.Uint64(b[28:])),
			Error:    ErrorEstimate(binary.BigEndian.Uint16(b[36:])),
		},
		TTL: b[40],
	}, nil
}
