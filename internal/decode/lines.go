// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// lined is a layout whose payloads are lines of text. It keeps what it knows of a payload
// in run.state.
type lined interface {
	// begin begins a payload.
	begin(r *run)
	// line reads one line, without what ends it, and says whether to continue.
	line(r *run, number int, line []byte) bool
}

// lines is the layout that a lined one makes. A line ends with LF, CRLF, or CR, as serial loggers write it.
type lines struct {
	lined
	// isWhole says of a format that has an end on each line whether a last one without it is all there; nil: the format fixes no ends.
	isWhole func(r *run, line []byte) bool
}

func (l lines) payload(r *run, payload []byte) {
	l.begin(r)
	for number := 1; len(payload) > 0; number++ {
		i := lineEnd(payload)
		if i < 0 {
			l.last(r, number, payload)
			return
		}
		if !l.line(r, number, withoutMark(payload[:i])) {
			return
		}
		cr := payload[i] == '\r'
		if payload = payload[i+1:]; cr {
			payload = bytes.TrimPrefix(payload, newline)
		}
	}
}

// withoutMark is a line without the byte order mark before it: the first one of a file, also of one that was appended to another.
func withoutMark(line []byte) []byte {
	for bytes.HasPrefix(line, byteOrderMark) {
		line = line[len(byteOrderMark):]
	}
	return line
}

// last reads a line that has no end, unless it may have been cut off.
func (l lines) last(r *run, number int, line []byte) {
	if line = withoutMark(line); len(line) == 0 {
		return
	}
	if r.ends == endsAll || r.ends == endsFixed && l.isWhole != nil && !l.isWhole(r, line) {
		r.skip("line %d has no end: it was cut off, or may have been", number)
		return
	}
	l.line(r, number, line)
}

// ends says which last lines without an end are not read.
type ends int

const (
	// endsNone: all are read, since the payload or object that holds them is whole.
	endsNone ends = iota
	// endsFixed: of formats that have an end on each, those alone that are all there nevertheless.
	endsFixed
	// endsAll: no line is read, because it is unknown whether all arrived.
	endsAll
)

// byteOrderMark stands before text of some writers, and is no part of it (Unicode 16.0, 23.8).
var byteOrderMark = []byte("\xef\xbb\xbf")

var newline = []byte("\n")

// lineWindow is how far it is looked for the end of a line at first.
const lineWindow = 512

// lineEnd returns where the first LF or CR stands; -1: nowhere.
func lineEnd(b []byte) int {
	for from, window := 0, lineWindow; from < len(b); from, window = from+window, 2*window {
		part := b[from:min(len(b), from+window)]
		i := bytes.IndexByte(part, '\n')
		if i >= 0 {
			part = part[:i]
		}
		if j := bytes.IndexByte(part, '\r'); j >= 0 {
			return from + j
		}
		if i >= 0 {
			return from + i
		}
	}
	return -1
}

// maxLine is the length of a line beyond which none is read from a stream, in bytes.
const maxLine = 256 << 10

func (l lines) read(r *run, in io.Reader) error {
	l.begin(r)
	s := lineSource{b: bufio.NewReaderSize(in, maxLine)}
	for number := 1; ; number++ {
		line, ended, err := s.next()
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			r.skip("line %d has more than %d bytes", number, maxLine)
		case err != nil && !errors.Is(err, io.EOF):
			return err // what stands before it may be half a line
		case err != nil:
			l.last(r, number, line)
			return nil
		case ended && !l.line(r, number, withoutMark(line)):
			return nil
		}
	}
}

// lineSource reads lines from a stream.
type lineSource struct {
	b *bufio.Reader
	// cr: the last line ended with CR, so an LF that follows is part of its end.
	cr bool
	// err is how the stream ended behind what is buffered.
	err error
}

// next returns a line without what ends it, which is good until the next one is read; ended is false where the stream ends
// without an end of the line. Errors: bufio.ErrBufferFull for a line that is too long, which is passed over, and those of the
// stream.
func (s *lineSource) next() (line []byte, ended bool, err error) {
	long := false
	for looked := 0; ; {
		if s.err == nil {
			_, s.err = s.b.Peek(looked + 1)
		}
		have, _ := s.b.Peek(s.b.Buffered())
		if s.cr && len(have) > 0 {
			if s.cr = false; have[0] == '\n' {
				_, _ = s.b.Discard(1)
				continue
			}
		}
		if i := lineEnd(have[min(looked, len(have)):]); i >= 0 {
			i += looked
			s.cr = have[i] == '\r'
			_, _ = s.b.Discard(i + 1)
			if long {
				return nil, true, bufio.ErrBufferFull
			}
			return have[:i], true, nil
		}
		switch looked = len(have); {
		case looked == maxLine:
			long, looked = true, 0
			_, _ = s.b.Discard(maxLine)
		case s.err != nil && long && errors.Is(s.err, io.EOF):
			_, _ = s.b.Discard(looked)
			return nil, true, bufio.ErrBufferFull
		case s.err != nil:
			_, _ = s.b.Discard(looked)
			return have, false, s.err
		}
	}
}

// blanks splits a line at runs of blanks and tabs; fields share its memory.
func blanks(fields [][]byte, line []byte) [][]byte {
	for i := 0; i < len(line); {
		if line[i] == ' ' || line[i] == '\t' {
			i++
			continue
		}
		from := i
		for i < len(line) && line[i] != ' ' && line[i] != '\t' {
			i++
		}
		fields = append(fields, line[from:i])
	}
	return fields
}
