// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"path"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/substorm/substorm/internal/wire"
)

// quickHeader is tarHeader for members as nearly all are: a test compares their
// bytes. archive/tar takes a tenth of the processor time that a small object has
// (bench/ingest-small); this takes next to nothing. It returns nil where the
// header is not of that kind.
func quickHeader(name string, size int64, at time.Time, records map[string]string) []byte {
	seconds, fraction := at.Unix(), at.Nanosecond()
	if len(name) > maxName || len(records) != 2 || !isASCII(name) || size < 0 || size >= 1<<33 || seconds < 0 || seconds >= 1<<33 {
		return nil
	}
	dir, file := path.Split(name)
	paxName := path.Join(dir, "PaxHeaders.0", file)
	if len(paxName) > maxName {
		return nil
	}
	pax := make([]byte, block, 4*block)
	for _, key := range [...]string{wire.PaxFormat, wire.PaxRecord} {
		pax = appendRecord(pax, key, records[key])
	}
	if fraction != 0 {
		digits := strconv.Itoa(1_000_000_000 + fraction)[1:]
		for digits[len(digits)-1] == '0' {
			digits = digits[:len(digits)-1]
		}
		pax = appendRecord(pax, "mtime", strconv.FormatInt(seconds, 10)+"."+digits)
	}
	length := int64(len(pax) - block)
	pax = append(pax, Padding(length)...)
	fill(pax[:block], paxName, 'x', 0, length, 0)
	pax = append(pax, make([]byte, block)...)
	fill(pax[len(pax)-block:], name, '0', mode, size, seconds)
	return pax
}

// maxName is the longest name that needs no record of its own.
const maxName = 100

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf || r == 0 })
}

// appendRecord appends "<length> <key>=<value>\n"; the length includes itself (POSIX.1-2001, pax Extended Header).
func appendRecord(b []byte, key, value string) []byte {
	rest := len(key) + len(value) + len(" =\n")
	size := rest + len(strconv.Itoa(rest))
	if len(strconv.Itoa(size))+rest != size {
		size = rest + len(strconv.Itoa(size))
	}
	b = strconv.AppendInt(b, int64(size), 10)
	b = append(b, ' ')
	b = append(b, key...)
	b = append(b, '=')
	b = append(b, value...)
	return append(b, '\n')
}

// fill writes a ustar header into an empty block (POSIX.1-2001, ustar).
func fill(b []byte, name string, kind byte, mode, size, seconds int64) {
	copy(b, name)
	octal(b[100:107], mode)
	octal(b[108:115], 0) // owner
	octal(b[116:123], 0) // group
	octal(b[124:135], size)
	octal(b[136:147], seconds)
	b[156] = kind
	copy(b[257:], "ustar\x0000")
	if kind == '0' {
		octal(b[329:336], 0) // device
		octal(b[337:344], 0)
	}
	sum := int64(8 * ' ') // the checksum counts as spaces
	for _, c := range b {
		sum += int64(c)
	}
	octal(b[148:154], sum)
	b[155] = ' '
}

// octal writes a number with leading zeros; what follows is a NUL already.
func octal(b []byte, n int64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = '0' + byte(n&7)
		n >>= 3
	}
}
