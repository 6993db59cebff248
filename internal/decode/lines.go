// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// lined is a layout whose payloads are lines of text. What it knows of a payload
// lies in run.state.
type lined interface {
	// begin begins a payload.
	begin(r *run)
	// line reads one line, without what ends it, and says whether to go on.
	line(r *run, number int, line []byte) bool
}

// lines is the layout that a lined one makes.
type lines struct{ lined }

func (l lines) payload(r *run, payload []byte) {
	l.begin(r)
	for number := 1; len(payload) > 0; number++ {
		line, rest, _ := bytes.Cut(payload, newline)
		payload = rest
		if !l.line(r, number, bytes.TrimSuffix(line, carriageReturn)) {
			return
		}
	}
}

var newline, carriageReturn = []byte("\n"), []byte("\r")

// maxLine is the length of a line beyond which none is read from a stream, in bytes.
const maxLine = 256 << 10

func (l lines) read(r *run, in io.Reader) error {
	l.begin(r)
	b := bufio.NewReaderSize(in, maxLine)
	for number := 1; ; number++ {
		line, err := b.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			r.skip("line %d has more than %d bytes", number, maxLine)
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = b.ReadSlice('\n')
			}
			line = nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err // what stands before it may be half a line
		}
		if len(line) > 0 && !l.line(r, number, bytes.TrimSuffix(bytes.TrimSuffix(line, newline), carriageReturn)) || err != nil {
			return nil
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
