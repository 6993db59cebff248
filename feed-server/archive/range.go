// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"errors"
	"strconv"
	"strings"
)

// part is what is sent of an object: length bytes from offset on.
type part struct{ offset, length int64 }

// parseRange reads a Range (RFC 9110, section 14.2) of an object with so many bytes, and says
// whether it has any of what is asked for. A Range that cannot be read, does not count bytes,
// or asks for several ranges means the whole object, as if there were none: many small ranges
// cost a server more than the client that asks for them.
func parseRange(header string, size int64) (part, bool) {
	all := part{0, size}
	unit, spec, ok := strings.Cut(header, "=")
	if !ok || !strings.EqualFold(unit, "bytes") || size == 0 || strings.Contains(spec, ",") {
		return all, true
	}
	from, to, ok := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok {
		return all, true
	}
	if from == "" { // the last bytes
		n, ok := digits(to)
		if !ok {
			return all, true
		}
		n = min(n, size)
		return part{size - n, n}, n > 0
	}
	first, ok := digits(from)
	if !ok {
		return all, true
	}
	last := size - 1
	if to != "" {
		n, ok := digits(to)
		if !ok || n < first {
			return all, true
		}
		last = min(last, n)
	}
	if first >= size {
		return part{}, false
	}
	return part{first, last - first + 1}, true
}

// digits reads a number of decimal digits; one that is too large is the greatest.
func digits(s string) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err == nil || errors.Is(err, strconv.ErrRange) && strings.Trim(s, "0123456789") == ""
}

// within is the part in the first size bytes.
func (p part) within(size int64) part {
	if p.offset >= size {
		return part{size, 0}
	}
	return part{p.offset, min(p.length, size-p.offset)}
}

// of returns the bytes of the part.
func (p part) of(data []byte) []byte {
	p = p.within(int64(len(data)))
	return data[p.offset : p.offset+p.length]
}

// behind is the part behind the first size bytes, counted from there.
func (p part) behind(size int64) part {
	taken := p.within(size).length
	return part{max(0, p.offset-size), p.length - taken}
}
