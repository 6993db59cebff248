// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"bytes"
	"errors"
	"io"

	"github.com/substorm/substorm/internal/wire"
)

// framing finds the objects in what a sender sends.
//
// Bytes go from the socket into the object's own memory. The end of an object
// is known beforehand (a length), or found in what was read (a line): then the
// beginning of the next one was read with it, and only that is copied, at most
// wire.PrefixSize or heldLine bytes.
type framing interface {
	// receive receives objects until the connection ends. Errors: io.EOF where
	// the sender ended it, and not within an object that its end cuts off;
	// errLeave; *cut.
	receive(in input) error
}

// input is a connection as its framing sees it. Errors are framing's and, where stated, errPause.
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
	// fill reads at most limit bytes that follow the object's last one, and what comes after these
	// into ahead. Got is in the object's memory and is its own once taken; it must not be used
	// after the next call. Error errPause.
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
	// skip refuses the object. The rest of its bytes is for read, up to between.
	skip(cause wire.Cause)

	// control takes the body of a control frame; it keeps nothing of it.
	control(body []byte) error
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

// lengthPrefixed: a length of wire.PrefixSize bytes, unsigned and big-endian, then so
// many bytes. Length 0 is no object: it keeps a connection alive. With its top bit
// set it begins a control frame, which is no object either.
type lengthPrefixed struct {
	prefix [wire.PrefixSize]byte
	have   int // of prefix
	// body of the last control frame; most connections never have one.
	body []byte
}

func (p *lengthPrefixed) receive(in input) error {
	for {
		length, control, err := p.next(in)
		if err != nil {
			return err
		}
		if control && length <= wire.MaxControl {
			if err := p.control(in, length); err != nil {
				return err
			}
			continue
		}
		if length == 0 {
			in.between()
			continue
		}
		tooLarge := control || length > in.limit()
		if tooLarge && (beginsHTTP(p.prefix[:]) || beginsTLS(p.prefix[:])) { // they are a length, too
			if err := readFirstLine(in); err != nil {
				return err
			}
		}
		if err := in.begin(); err != nil {
			return err
		}
		if tooLarge {
			in.skip(wire.CauseObjectTooLarge)
			return errLeave // up to 2 GiB would have to be read, for nothing
		}
		if err := p.object(in, length); err != nil {
			return err
		}
		in.end(true)
		if p.have > 0 {
			in.started()
		}
	}
}

// next reads a prefix.
func (p *lengthPrefixed) next(in input) (length int64, control bool, err error) {
	if err := readFull(in, p.prefix[:], p.have); err != nil {
		return 0, false, err
	}
	p.have = 0
	length, control = wire.ParsePrefix(p.prefix)
	return length, control, nil
}

// readFull reads what is not an object's until into is full; into has have bytes already.
func readFull(in input, into []byte, have int) error {
	for have < len(into) {
		n, err := in.read(into[have:])
		if errors.Is(err, io.EOF) && have > 0 {
			return &cut{cause: wire.CauseTruncated}
		}
		if err != nil {
			return err
		}
		have += n
	}
	return nil
}

// readFirstLine reads what may be the rest of a request's first line, or of a TLS hello, to recognize it: its error then names that
// protocol. All other errors recur with the next read.
func readFirstLine(in input) error {
	for line := make([]byte, 0, maxFirstLine); len(line) < cap(line) && !bytes.Contains(line, []byte{lf}); {
		n, err := in.read(line[len(line):cap(line)])
		if why := (*cut)(nil); errors.As(err, &why) && why.cause == wire.CauseWrongProtocol {
			return err
		}
		if err != nil {
			return nil
		}
		line = line[:len(line)+n]
	}
	return nil
}

// control reads a control frame.
func (p *lengthPrefixed) control(in input, length int64) error {
	if p.body == nil {
		p.body = make([]byte, wire.MaxControl)
	}
	body := p.body[:length]
	err := readFull(in, body, 0)
	if errors.Is(err, io.EOF) {
		return &cut{cause: wire.CauseTruncated}
	}
	if err != nil {
		return err
	}
	in.between()
	return in.control(body)
}

// object reads an object, and what comes with its last bytes of the next length.
func (p *lengthPrefixed) object(in input, left int64) error {
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
