// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"bytes"

	"github.com/klauspost/compress/flate"
	zstandard "github.com/klauspost/compress/zstd"
)

const (
	// maxLiteral is how many literal bytes a client takes at once.
	maxLiteral = 32 << 10
	// maxPacked is how much of what is compressed.
	maxPacked = 16383
	// maxRun is how many consecutive blocks one token covers.
	maxRun = 1 << 16
	// windowSize is how far back zstd looks; it takes as much memory.
	windowSize = 512 << 10
)

// tokens write a file as a client puts it together: from bytes, and blocks that it has.
type tokens interface {
	// literal writes bytes that the client does not have.
	literal(p []byte) error
	// block is a block that the client has.
	block(number int32) error
	// end is the end of a file.
	end() error
	// blocks reports whether the format can refer to blocks of the client.
	blocks() bool
	// close gives back what it took.
	close()
}

func newTokens(out *output, compress string) (tokens, error) {
	switch compress {
	case "":
		return plain{out}, nil
	case zstd:
		p := &packed{out: out, known: true}
		z, err := zstandard.NewWriter(&p.packets, zstandard.WithEncoderLevel(zstandard.SpeedFastest), zstandard.WithEncoderConcurrency(1),
			zstandard.WithWindowSize(windowSize), zstandard.WithLowerEncoderMem(true))
		p.z = zstdStream{z}
		return p, err
	default:
		p := &packed{out: out, known: compress == zlibx}
		z, err := flate.NewWriter(&p.packets, flate.BestSpeed)
		p.z = deflateStream{z, &p.packets}
		return p, err
	}
}

// plain are tokens without compression.
type plain struct{ out *output }

func (t plain) literal(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), maxLiteral)
		t.out.int(int32(n))
		t.out.bytes(p[:n])
		p = p[n:]
	}
	return t.out.err
}

func (t plain) block(number int32) error {
	t.out.int(-number - 1)
	return t.out.err
}

func (t plain) end() error {
	t.out.int(0)
	return t.out.err
}

func (plain) blocks() bool { return true }
func (plain) close()       {}

// stream compresses into packets.
type stream interface {
	Write(p []byte) (int, error)
	// flush has all that was written come out.
	flush() error
	// next begins another file.
	next()
	close()
}

// zstdStream is one stream of all files.
type zstdStream struct{ *zstandard.Encoder }

func (z zstdStream) flush() error { return z.Flush() }
func (zstdStream) next()          {}
func (z zstdStream) close()       { _ = z.Encoder.Close() }

// deflateStream is reset at each file.
type deflateStream struct {
	*flate.Writer
	packets *bytes.Buffer
}

// syncMark is at the end of what was flushed: both sides know it, and it is not sent.
var syncMark = []byte{0, 0, 0xff, 0xff}

func (z deflateStream) flush() error {
	err := z.Flush()
	z.packets.Truncate(len(bytes.TrimSuffix(z.packets.Bytes(), syncMark)))
	return err
}

func (z deflateStream) next() { z.Reset(z.packets) }
func (deflateStream) close()  {}

// packed are tokens with compression.
type packed struct {
	out *output
	z   stream
	// packets are what was compressed and not sent.
	packets bytes.Buffer
	// known: tokens can refer to blocks that the client has. Not so with zlib, where both sides
	// would have to compress these, too.
	known bool
	// written: something was written and not flushed.
	written bool
	// first and last are consecutive blocks that are not sent yet, if there are any, and told is
	// the last one that was sent.
	run         bool
	first, last int32
	told        int32
}

// The flags before what comes.
const (
	tokenEnd     = 0
	tokenLong    = 0x20
	tokenData    = 0x40
	tokenShort   = 0x80
	tokenManyBit = 1
	shortManyBit = 0x40
)

func (t *packed) literal(p []byte) error {
	t.tellRun()
	t.written = true
	if _, err := t.z.Write(p); err != nil {
		return err
	}
	t.send(len(syncMark))
	return t.out.err
}

// send sends what was compressed, but for the last bytes.
func (t *packed) send(but int) {
	for t.packets.Len() > but {
		p := t.packets.Next(min(t.packets.Len()-but, maxPacked))
		t.out.byte(tokenData | byte(len(p)>>8))
		t.out.byte(byte(len(p)))
		t.out.bytes(p)
	}
}

func (t *packed) flush() error {
	if !t.written {
		return nil
	}
	t.written = false
	if err := t.z.flush(); err != nil {
		return err
	}
	t.send(0)
	return t.out.err
}

func (t *packed) block(number int32) error {
	if t.run && number == t.last+1 && number-t.first < maxRun {
		t.last = number
		return nil
	}
	t.tellRun()
	if err := t.flush(); err != nil {
		return err
	}
	t.run, t.first, t.last = true, number, number
	return nil
}

// tellRun writes the consecutive blocks.
func (t *packed) tellRun() {
	if !t.run {
		return
	}
	t.run = false
	distance, more := t.first-t.told, t.last-t.first
	short := distance >= 0 && distance <= 63
	switch {
	case short && more == 0:
		t.out.byte(tokenShort | byte(distance))
	case short:
		t.out.byte(tokenShort | shortManyBit | byte(distance))
	case more == 0:
		t.out.byte(tokenLong)
	default:
		t.out.byte(tokenLong | tokenManyBit)
	}
	if !short {
		t.out.int(t.first)
	}
	if more != 0 {
		t.out.short(uint16(more))
	}
	t.told = t.last
}

func (t *packed) end() error {
	t.tellRun()
	err := t.flush()
	t.told = 0
	t.out.byte(tokenEnd)
	t.z.next()
	if err == nil {
		err = t.out.err
	}
	return err
}

func (t *packed) blocks() bool { return t.known }
func (t *packed) close()       { t.z.close() }
