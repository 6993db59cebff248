// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"encoding/binary"
	"io"
)

// outputBuffer is how much is written to a client at a time.
const outputBuffer = 64 << 10

// output writes what a client is sent. The first error stays: who writes may look at it
// once in a while.
type output struct {
	w   io.Writer
	err error
	// written are the bytes that were written, and data those that are neither heads of frames nor
	// messages.
	written, data int64
	// framed: bytes go in frames. The buffer begins with space for the head of one.
	framed bool
	buffer []byte
	// The last indexes that were sent, since an index is sent as a difference.
	positive, negative int32
}

const frameHead = 4

func newOutput(w io.Writer) *output {
	return &output{w: w, buffer: make([]byte, frameHead, frameHead+outputBuffer), positive: -1, negative: 1}
}

// bytes writes some.
func (out *output) bytes(p []byte) {
	for len(p) > 0 {
		n := min(len(p), cap(out.buffer)-len(out.buffer))
		out.buffer = append(out.buffer, p[:n]...)
		p = p[n:]
		if len(out.buffer) == cap(out.buffer) {
			out.send()
		}
	}
}

func (out *output) text(s string) {
	for len(s) > 0 {
		n := min(len(s), cap(out.buffer)-len(out.buffer))
		out.buffer = append(out.buffer, s[:n]...)
		s = s[n:]
		if len(out.buffer) == cap(out.buffer) {
			out.send()
		}
	}
}

// send writes what is in the buffer to the client.
func (out *output) send() {
	p := out.buffer[frameHead:]
	if len(p) == 0 {
		return
	}
	out.data += int64(len(p))
	if out.framed {
		binary.LittleEndian.PutUint32(out.buffer, frameBase<<24|uint32(len(p)))
		p = out.buffer
	}
	out.write(p)
	out.buffer = out.buffer[:frameHead]
}

func (out *output) write(p []byte) {
	if out.err != nil {
		return
	}
	n, err := out.w.Write(p)
	out.written += int64(n)
	out.err = err
}

// flush writes all that was given. Errors: those of the connection.
func (out *output) flush() error {
	out.send()
	return out.err
}

// message sends a frame that is no data.
func (out *output) message(kind int, p []byte) {
	out.send()
	head := binary.LittleEndian.AppendUint32(nil, uint32(frameBase+kind)<<24|uint32(len(p)))
	out.write(append(head, p...))
}

func (out *output) messageInt(kind int, value int32) {
	out.message(kind, binary.LittleEndian.AppendUint32(nil, uint32(value)))
}

func (out *output) byte(b byte) { out.bytes([]byte{b}) }

func (out *output) short(v uint16) {
	out.bytes([]byte{byte(v), byte(v >> 8)})
}

func (out *output) int(v int32) {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], uint32(v))
	out.bytes(b[:])
}

// varint writes a number of 32 bits in as few bytes as it needs.
func (out *output) varint(v int32) { out.number(uint64(uint32(v)), 4, 1) }

// varlong writes one of 64 bits, in least bytes or more.
func (out *output) varlong(v int64, least int) { out.number(uint64(v), 8, least) }

// number writes the bytes of a value up to the highest that is not 0. The first byte
// holds that highest one, below as many ones as there are bytes more than least; where
// both do not fit it holds the ones alone.
func (out *output) number(v uint64, size, least int) {
	var b [9]byte
	binary.LittleEndian.PutUint64(b[1:], v)
	count := size
	for count > least && b[count] == 0 {
		count--
	}
	bit := byte(1) << (7 - count + least)
	switch {
	case b[count] >= bit:
		count++
		b[0] = ^(bit - 1)
	case count > least:
		b[0] = b[count] | ^(bit*2 - 1)
	default:
		b[0] = b[count]
	}
	out.bytes(b[:count])
}

// vtext writes a text behind its length.
func (out *output) vtext(s string) {
	if len(s) > 0x7f {
		out.byte(byte(len(s)>>8) | 0x80)
	}
	out.byte(byte(len(s)))
	out.text(s)
}

// index writes the index of a file, or a special index.
func (out *output) index(ndx int32) {
	if ndx == ndxDone {
		out.byte(0)
		return
	}
	var b [6]byte
	n, last := 0, &out.positive
	if ndx < 0 {
		b[0], n = 0xff, 1
		ndx, last = -ndx, &out.negative
	}
	diff := int64(ndx) - int64(*last)
	*last = ndx
	switch {
	case diff > 0 && diff < 0xfe:
		b[n] = byte(diff)
		n++
	case diff < 0 || diff > 0x7fff:
		n += copy(b[n:], []byte{0xfe, byte(ndx>>24) | 0x80, byte(ndx), byte(ndx >> 8), byte(ndx >> 16)})
	default:
		n += copy(b[n:], []byte{0xfe, byte(diff >> 8), byte(diff)})
	}
	out.bytes(b[:n])
}
