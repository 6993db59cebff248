// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"sync/atomic"
)

const (
	inputBuffer = 32 << 10
	// maxMessage is how long a frame may be that is no data: clients send some words.
	maxMessage = 64 << 10
)

// errExit: the client reported that it gives up.
var errExit = errors.New("the client gave up")

// input reads what a client sends.
type input struct {
	r *bufio.Reader
	// read are the bytes that came, and data those that are neither heads of frames nor messages.
	read, data atomic.Int64
	// framed: bytes come in frames, the one under way having left bytes of data left.
	framed bool
	left   int
	// The last indexes that came, since an index is sent as a difference.
	positive, negative int32
}

func newInput(r io.Reader) *input {
	return &input{r: bufio.NewReaderSize(r, inputBuffer), positive: -1, negative: 1}
}

// full fills p. Errors: those of the connection, errMalformed, errExit.
func (in *input) full(p []byte) error {
	for len(p) > 0 {
		n := len(p)
		if in.framed {
			if err := in.frame(); err != nil {
				return err
			}
			n = min(n, in.left)
			in.left -= n
		}
		got, err := io.ReadFull(in.r, p[:n])
		in.read.Add(int64(got))
		in.data.Add(int64(got))
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// frame reads heads of frames until there is data.
func (in *input) frame() error {
	for in.left == 0 {
		var head [4]byte
		if _, err := io.ReadFull(in.r, head[:]); err != nil {
			return err
		}
		in.read.Add(int64(len(head)))
		word := binary.LittleEndian.Uint32(head[:])
		kind, length := int(word>>24)-frameBase, int(word&maxFrame)
		switch {
		case kind == frameData:
			in.left = length
			continue
		case kind == frameErrorExit:
			return errExit
		case kind < 0 || length > maxMessage:
			return malformed("a frame of kind %d with %d bytes", kind, length)
		}
		n, err := in.r.Discard(length)
		in.read.Add(int64(n))
		if err != nil {
			return err
		}
	}
	return nil
}

func (in *input) skip(n int64) error {
	var buffer [4096]byte
	for n > 0 {
		part := buffer[:min(n, int64(len(buffer)))]
		if err := in.full(part); err != nil {
			return err
		}
		n -= int64(len(part))
	}
	return nil
}

func (in *input) byte() (byte, error) {
	var b [1]byte
	err := in.full(b[:])
	return b[0], err
}

func (in *input) short() (uint16, error) {
	var b [2]byte
	err := in.full(b[:])
	return binary.LittleEndian.Uint16(b[:]), err
}

func (in *input) int() (int32, error) {
	var b [4]byte
	err := in.full(b[:])
	return int32(binary.LittleEndian.Uint32(b[:])), err
}

// varint reads a number whose first byte has as many ones in front as bytes follow.
func (in *input) varint() (int32, error) {
	first, err := in.byte()
	if err != nil {
		return 0, err
	}
	extra := bits.LeadingZeros8(^first)
	if extra > 4 {
		return 0, malformed("a number of %d bytes", extra+1)
	}
	var b [5]byte
	if err := in.full(b[:extra]); err != nil {
		return 0, err
	}
	b[extra] = first & (1<<(8-extra) - 1)
	return int32(binary.LittleEndian.Uint32(b[:4])), nil
}

// text reads at most so many bytes behind their length.
func (in *input) text(most int) (string, error) {
	first, err := in.byte()
	if err != nil {
		return "", err
	}
	length := int(first)
	if first&0x80 != 0 {
		second, err := in.byte()
		if err != nil {
			return "", err
		}
		length = int(first&0x7f)<<8 | int(second)
	}
	if length > most {
		return "", malformed("a text of %d bytes", length)
	}
	b := make([]byte, length)
	err = in.full(b)
	return string(b), err
}

// index reads the index of a file, or a special index.
func (in *input) index() (int32, error) {
	first, err := in.byte()
	if err != nil || first == 0 {
		return ndxDone, err
	}
	last := &in.positive
	if first == 0xff {
		last = &in.negative
		if first, err = in.byte(); err != nil {
			return 0, err
		}
	}
	value, err := in.indexBehind(first, *last)
	if err != nil {
		return 0, err
	}
	*last = value
	if last == &in.negative {
		return -value, nil
	}
	return value, nil
}

func (in *input) indexBehind(first byte, last int32) (int32, error) {
	if first != 0xfe {
		return checked(int64(last) + int64(first))
	}
	var b [4]byte
	if err := in.full(b[:2]); err != nil {
		return 0, err
	}
	if b[0]&0x80 == 0 {
		return checked(int64(last) + int64(b[0])<<8 + int64(b[1]))
	}
	if err := in.full(b[2:]); err != nil {
		return 0, err
	}
	return checked(int64(b[0]&0x7f)<<24 | int64(b[1]) | int64(b[2])<<8 | int64(b[3])<<16)
}

func checked(index int64) (int32, error) {
	if index < 0 || index > 1<<31-1 {
		return 0, malformed("index %d", index)
	}
	return int32(index), nil
}

// line reads up to the end of a line, at most so many bytes: what comes before the
// protocol is binary.
func (in *input) line(most int) (string, error) {
	return in.until('\n', most)
}

func (in *input) until(end byte, most int) (string, error) {
	var text []byte
	for {
		b, err := in.byte()
		if err != nil {
			return "", err
		}
		if b == end {
			return string(text), nil
		}
		if len(text) == most {
			return "", malformed("more than %d bytes without an end", most)
		}
		text = append(text, b)
	}
}
