// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// maxKeptText is how much memory for repaired records is kept from payload to payload, in bytes.
const maxKeptText = 64 << 10

// mark notes what was counted before the value, or record, that comes next.
func (s *jsonState) mark(r *run) { s.bad, s.first = r.bad, r.first }

// resume reads what follows on an error of syntax, from the value in which it is. Each value ends as its brackets say, or where
// the next line begins as its own one does: one that was cut off costs itself alone. All of it is looked at a fixed number of times.
func (j *jsonLayout) resume(r *run, s *jsonState, b []byte, at int, err error) {
	r.bad, r.first, r.partly = s.bad, s.first, false // of the records that were read
	read := s.number - s.began
	for at = pastBlanks(b, at); at < len(b) && !s.failed; at = pastBlanks(b, at) {
		end := jsonEnd(b, at, false)
		if read == 0 {
			s.mark(r)
			s.began = s.number
			s.reset(b[at:end])
			if err = j.find(r, s, j.records); err == nil {
				at = end
				continue
			}
			r.bad, r.first, r.partly = s.bad, s.first, false
			read = s.number - s.began
		}
		at = j.readBroken(r, s, b[:end], at, read, err)
		read = 0
	}
	if cap(s.text) > maxKeptText {
		s.text = nil
	}
}

// readBroken reads the records of a value that has an error of syntax, one by one, behind the first ones, which were read. It returns
// where the value ends.
func (j *jsonLayout) readBroken(r *run, s *jsonState, b []byte, at, read int, err error) (end int) {
	for _, name := range j.records {
		var found bool
		if at, found = jsonMember(b, at, name); !found {
			r.skip("%w", err)
			return len(b)
		}
	}
	if b[at] != '[' {
		if read == 0 {
			j.single(r, s, b[at:jsonEnd(b, at, true)])
		}
		return len(b)
	}
	bad := r.bad
	for at++; !s.failed; {
		if at = pastCommas(b, at); at >= len(b) {
			if r.bad == bad {
				r.skip("%w", err)
			}
			return len(b)
		}
		if b[at] == ']' {
			break
		}
		next := jsonEnd(b, at, true)
		if read--; read < 0 {
			j.single(r, s, b[at:next])
		}
		at = next
	}
	if len(j.records) == 0 {
		return min(at+1, len(b))
	}
	return len(b)
}

// single reads a record. Numbers that are none have no form in JSON: they are read as texts.
func (j *jsonLayout) single(r *run, s *jsonState, record []byte) {
	s.text = quoteNoNumbers(s.text[:0], record)
	s.reset(s.text)
	if err := j.one(r, s); err != nil {
		s.number++
		r.skip("record %d: %w", s.number, err)
	}
}

// reset begins to decode b.
func (s *jsonState) reset(b []byte) {
	s.payload = *bytes.NewBuffer(slices.Clip(b)) // the decoder may use what space a buffer has
	s.decoder.Reset(&s.payload, jsontext.AllowInvalidUTF8(true))
}

// quoteNoNumbers appends b with quotes around words such as NaN and -Infinity.
func quoteNoNumbers(out, b []byte) []byte {
	for i := 0; i < len(b); {
		end := i
		switch {
		case b[i] == '"':
			end = stringEnd(b, i) + 1
		default:
			for end < len(b) && inWord(b[end]) {
				end++
			}
		}
		switch word := b[i:max(end, i+1)]; {
		case end > i && b[i] != '"' && noNumber(word):
			out = append(append(append(out, '"'), word...), '"')
		default:
			out = append(out, word...)
		}
		i = max(end, i+1)
	}
	return out
}

// inWord says whether a number, or a word that stands for one, may have a byte.
func inWord(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c == '+' || c == '-' || c == '.' || c == '#' || c == '(' || c == ')'
}

// jsonEnd returns where the value ends that begins at a place. If it is no JSON, it ends at the end of the line; a member of an
// array or object also ends at the next comma or bracket.
func jsonEnd(b []byte, at int, member bool) int {
	if b[at] != '{' && b[at] != '[' {
		return scalarEnd(b, at, member)
	}
	column := indent(b, at)
	depth, last := 0, byte(0)
	for i := at; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		case '"':
			i = stringEnd(b, i)
		case ' ', '\t':
			continue
		case '\n', '\r':
			// Arrays of arrays may have each on a line.
			inner := depth == 1 && b[at] == '[' && (last == '[' || last == ',')
			if !inner && beginsLine(b[i+1:], column, b[at]) {
				return i
			}
			continue
		}
		last = b[i]
	}
	return len(b)
}

func scalarEnd(b []byte, at int, member bool) int {
	for i := at; i < len(b); i++ {
		switch c := b[i]; {
		case c == '\n', c == '\r', member && i > at && (c == ',' || c == ']' || c == '}'):
			return max(i, at+1)
		case c == '"':
			i = stringEnd(b, i)
		}
	}
	return len(b)
}

// indent returns by how many blanks a line is indented that begins with the value at a place; 0 where others stand before it.
func indent(b []byte, at int) int {
	b = bytes.TrimSuffix(b[:at], byteOrderMark)
	i := len(b)
	for i > 0 && (b[i-1] == ' ' || b[i-1] == '\t') {
		i--
	}
	if i > 0 && b[i-1] != '\n' && b[i-1] != '\r' {
		return 0
	}
	return len(b) - i
}

// beginsLine says whether a line is indented by column, and continues with the byte c.
func beginsLine(line []byte, column int, c byte) bool {
	line = bytes.TrimPrefix(line, byteOrderMark)
	i := 0
	for i < len(line) && i <= column && (line[i] == ' ' || line[i] == '\t') {
		i++
	}
	line = bytes.TrimPrefix(line[i:], byteOrderMark)
	return i == column && len(line) > 0 && line[0] == c
}

// stringEnd returns where the string ends that begins at a place: at its quote, or before the end of the line in which it was cut off.
func stringEnd(b []byte, at int) int {
	for i := at + 1; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i
		case '\n', '\r':
			return i - 1
		case '\\':
			if i+1 < len(b) && b[i+1] != '\n' && b[i+1] != '\r' {
				i++
			}
		}
	}
	return len(b) - 1
}

// jsonMember returns where the member of an object, or of an array, begins that has a name.
func jsonMember(b []byte, at int, name string) (int, bool) {
	open := b[at]
	if open != '{' && open != '[' {
		return at, false
	}
	at++
	for n := 0; ; n++ {
		if at = pastCommas(b, at); at >= len(b) || b[at] == ']' {
			return at, false
		}
		this := strconv.Itoa(n) == name
		if open == '{' {
			end := stringEnd(b, at) + 1
			key, _ := jsontext.AppendUnquote(nil, b[at:end])
			this = string(key) == name
			if at = pastBlanks(b, end); at >= len(b) || b[at] != ':' {
				return at, false
			}
			if at = pastBlanks(b, at+1); at >= len(b) {
				return at, false
			}
		}
		if this {
			return at, true
		}
		at = jsonEnd(b, at, true)
	}
}

// pastBlanks returns where neither blanks nor ends of lines nor byte order marks stand any more.
func pastBlanks(b []byte, at int) int {
	for at < len(b) {
		switch {
		case b[at] == ' ', b[at] == '\t', b[at] == '\n', b[at] == '\r':
			at++
		case bytes.HasPrefix(b[at:], byteOrderMark):
			at += len(byteOrderMark)
		default:
			return at
		}
	}
	return at
}

// pastCommas is pastBlanks for what stands between members: also commas, and ends of objects that have no begin.
func pastCommas(b []byte, at int) int {
	for at = pastBlanks(b, at); at < len(b) && (b[at] == ',' || b[at] == '}'); at = pastBlanks(b, at) {
		at++
	}
	return at
}
