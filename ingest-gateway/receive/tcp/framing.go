// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/substorm/substorm/internal/wire"
)

// framing finds the objects in what a sender sends.
//
// Bytes go from the socket into the object's own memory. The end of an object
// is known beforehand (a length), or found in what was read (a line): then the
// beginning of the next one was read with it, and only that is copied, at most
// prefixSize or heldLine bytes.
type framing interface {
	// receive receives objects until the connection ends. Errors: io.EOF where
	// the sender ended it, and not within an object that its end cuts off;
	// errLeave; *cut.
	receive(in input) error
}

// input is a connection as its framing sees it. Errors are those of framing,
// and where it is said errPause.
type input interface {
	// await returns once there is something to read.
	await() error
	// read reads once what is not yet, or no more, an object's. Error errPause:
	// the sender pauses, while skipping.
	read(into []byte) (int, error)
	// started says that bytes of the next object were read, between that they
	// were none after all, or that skipping is over.
	started()
	between()

	// limit is the greatest size of an object, in bytes.
	limit() int64
	// begin begins an object.
	begin() error
	// fill reads at most limit bytes that follow the object's last one, and what
	// comes behind these into ahead. Got lies in the object's memory and is its
	// own once taken; it must not be used after the next call. Error errPause.
	fill(limit int64, ahead []byte) (got []byte, n int, err error)
	// take makes got, or its beginning, the object's.
	take(got []byte)
	// put copies bytes into the object.
	put(b []byte) error
	// size of the object so far, in bytes.
	size() int64
	// end says that the object is whole: as its framing says, or, where framed is
	// false, as a close or a pause seems to say.
	end(framed bool)
	// skip refuses the object. What still comes of it is for read, up to between.
	skip(cause wire.Cause)
}

// newFraming returns a reader for one connection, nil for wire.FramingUntilClose.
func newFraming(name string) framing {
	switch name {
	case wire.FramingLines:
		return new(lines)
	case wire.FramingLengthPrefixed:
		return new(lengthPrefixed)
	case wire.FramingIdle:
		return idle{}
	default:
		return nil
	}
}

// prefixSize is the size of a length, in bytes.
const prefixSize = 4

// lengthPrefixed: a length of prefixSize bytes, unsigned and big-endian, then so
// many bytes. Length 0 is no object: it keeps a connection alive.
type lengthPrefixed struct {
	prefix [prefixSize]byte
	have   int // of prefix
}

func (p *lengthPrefixed) receive(in input) error {
	for {
		length, err := p.next(in)
		if err != nil {
			return err
		}
		if length == 0 {
			in.between()
			continue
		}
		if err := in.begin(); err != nil {
			return err
		}
		if length > in.limit() {
			in.skip(wire.CauseObjectTooLarge)
			return errLeave // up to 4 GiB would have to be read, for nothing
		}
		if err := p.body(in, length); err != nil {
			return err
		}
		in.end(true)
		if p.have > 0 {
			in.started()
		}
	}
}

// next reads a length.
func (p *lengthPrefixed) next(in input) (int64, error) {
	for p.have < prefixSize {
		n, err := in.read(p.prefix[p.have:])
		if errors.Is(err, io.EOF) && p.have > 0 {
			return 0, &cut{cause: wire.CauseTruncated}
		}
		if err != nil {
			return 0, err
		}
		p.have += n
	}
	p.have = 0
	return int64(binary.BigEndian.Uint32(p.prefix[:])), nil
}

// body reads an object, and what comes with its last bytes of the next length.
func (p *lengthPrefixed) body(in input, left int64) error {
	for left > 0 {
		got, ahead, err := in.fill(left, p.prefix[:])
		if errors.Is(err, io.EOF) {
			return &cut{cause: wire.CauseTruncated}
		}
		if err != nil {
			return err
		}
		in.take(got)
		left -= int64(len(got))
		p.have = ahead
	}
	return nil
}

// heldLine is how much is read at a time, in bytes, and so how much of other
// lines can come with the end of one. Short lines are read many at a time, and
// copied once; of a long one only what it shares a read with.
const heldLine = 4 << 10

// lines: what stands before each LF. Nothing, or a CR alone, is no object: it
// keeps a connection alive. The end of the connection ends the last line.
type lines struct {
	held [heldLine]byte
	rest []byte // of held: what is not looked at yet
}

const lf = '\n'

func (l *lines) receive(in input) error {
	for {
		if err := l.look(in); err != nil {
			return err
		}
		text, rest, whole := bytes.Cut(l.rest, []byte{lf})
		if blank(text) && whole {
			l.rest = rest
			in.between()
			continue
		}
		if err := in.begin(); err != nil {
			return err
		}
		l.rest = rest
		if err := l.line(in, text, whole); err != nil {
			return err
		}
	}
}

// look sees to it that rest holds the beginning of a line, and not a CR alone:
// what that is, the next byte says.
func (l *lines) look(in input) error {
	for len(l.rest) == 0 || len(l.rest) == 1 && blank(l.rest) {
		have := copy(l.held[:], l.rest)
		n, err := in.read(l.held[have:])
		if errors.Is(err, io.EOF) {
			in.between()
		}
		if err != nil {
			return err
		}
		l.rest = l.held[:have+n]
	}
	in.started()
	return nil
}

func blank(text []byte) bool { return len(text) == 0 || len(text) == 1 && text[0] == '\r' }

// line receives one line, whose beginning was read already.
func (l *lines) line(in input, text []byte, whole bool) error {
	if int64(len(text)) > in.limit() {
		return l.skip(in, whole)
	}
	if err := in.put(text); err != nil {
		return err
	}
	for !whole {
		got, _, err := in.fill(heldLine, nil)
		if errors.Is(err, io.EOF) {
			in.end(false)
			return io.EOF
		}
		if err != nil {
			return err
		}
		var rest []byte
		text, rest, whole = bytes.Cut(got, []byte{lf})
		l.rest = l.held[:copy(l.held[:], rest)]
		if in.size()+int64(len(text)) > in.limit() {
			return l.skip(in, whole)
		}
		in.take(text)
	}
	in.end(true)
	return nil
}

// skip refuses a line and reads up to its end.
func (l *lines) skip(in input, whole bool) error {
	in.skip(wire.CauseObjectTooLarge)
	for !whole {
		n, err := in.read(l.held[:])
		if err != nil {
			return err
		}
		_, l.rest, whole = bytes.Cut(l.held[:n], []byte{lf})
	}
	in.between()
	return nil
}

// idle: the bytes until the sender pauses. The end of the connection ends the
// last object.
type idle struct{}

func (i idle) receive(in input) error {
	for {
		if err := in.await(); err != nil {
			return err
		}
		if err := in.begin(); err != nil {
			return err
		}
		if err := i.object(in); err != nil {
			return err
		}
	}
}

func (i idle) object(in input) error {
	for {
		got, _, err := in.fill(in.limit()+1, nil)
		switch {
		case errors.Is(err, errPause):
			in.end(false)
			return nil
		case errors.Is(err, io.EOF):
			in.end(false)
			return io.EOF
		case err != nil:
			return err
		}
		in.take(got)
		if in.size() > in.limit() {
			return i.skip(in)
		}
	}
}

// skip refuses an object and reads up to the next pause.
func (idle) skip(in input) error {
	in.skip(wire.CauseObjectTooLarge)
	into := make([]byte, heldLine)
	for {
		_, err := in.read(into)
		if errors.Is(err, errPause) {
			in.between()
			return nil
		}
		if err != nil {
			return err
		}
	}
}
