// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
)

// A token describes what was in a bundle, so that a later bundle holds what changed since. It has
// only sums: one for each of the newest days, and one for each older month. A day to which only
// newer objects were added yields those; a day, or a month, that changed otherwise, as by data that
// came late, is given again. Beside the sums it names objects that they count and that were left
// out.

const (
	tokenFormat = 1
	// tokenLacks is the format of one that names objects which were left out.
	tokenLacks = 2
	// maxToken bounds a token: it is sent in a URL.
	maxToken = 8 << 10
	// maxLacks is how many objects it names.
	maxLacks = 64
)

// errToken: what is shown as a token is none, or one of another question.
var errToken = errors.New("it does not belong to a bundle for the same question")

// token is what was in a bundle: of each instrument, in the order of the question.
type token struct {
	question [8]byte
	all      []part
}

// part is what was in it of one instrument.
type part struct {
	spans spans
	lacks lacks
}

// String writes the token; empty where it is too long.
func (t token) String() string {
	b := append([]byte{t.format()}, t.question[:]...)
	b = binary.AppendUvarint(b, uint64(len(t.all)))
	for _, p := range t.all {
		b = p.spans.append(b)
		if t.format() == tokenLacks {
			b = p.lacks.append(b)
		}
	}
	text := base64.RawURLEncoding.EncodeToString(b)
	if len(text) > maxToken {
		return ""
	}
	return text
}

func (t token) format() byte {
	if t.lacks() {
		return tokenLacks
	}
	return tokenFormat
}

// lacks reports whether any object was left out.
func (t token) lacks() bool {
	return slices.ContainsFunc(t.all, func(p part) bool { return len(p.lacks) > 0 })
}

func (s spans) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	at := dayNumber(0)
	for _, s := range s {
		b = binary.AppendVarint(b, int64(s.from-at))
		b = binary.AppendUvarint(b, uint64(s.to-s.from))
		at = s.to
		b = appendSum(b, s.files)
		b = appendSum(b, s.content)
		b = binary.AppendUvarint(b, s.count)
		if s.to-s.from == 1 {
			b = binary.AppendVarint(b, s.last)
		}
	}
	return b
}

func (l lacks) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(l)))
	for _, one := range l {
		b = binary.AppendVarint(b, int64(one.day))
		b = appendSum(b, one.object)
	}
	return b
}

func appendSum(b []byte, s uint64) []byte {
	var all [8]byte
	binary.BigEndian.PutUint64(all[:], s)
	return append(b, all[2:]...)
}

// parseToken reads the token of a bundle for so many instruments. Errors: errToken.
func parseToken(text string, question [8]byte, instruments int) (token, error) {
	if len(text) > maxToken {
		return token{}, errToken
	}
	data, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil || len(data) < 9 || data[0] != tokenFormat && data[0] != tokenLacks || !bytes.Equal(data[1:9], question[:]) {
		return token{}, errToken
	}
	r := &tokenReader{data: data[9:]}
	t := token{question: question}
	if r.uvarint() != uint64(instruments) {
		return token{}, errToken
	}
	for range instruments {
		p := part{spans: r.spans()}
		if data[0] == tokenLacks {
			p.lacks = r.lacks()
		}
		t.all = append(t.all, p)
	}
	if r.failed || len(r.data) > 0 {
		return token{}, errToken
	}
	return t, nil
}

// tokenReader reads until it cannot.
type tokenReader struct {
	data   []byte
	failed bool
}

func (r *tokenReader) spans() (s spans) {
	at := dayNumber(0)
	for n := r.uvarint(); n > 0 && !r.failed; n-- {
		next := span{from: at + dayNumber(r.varint())}
		length := r.uvarint()
		next.to = next.from + dayNumber(length)
		next.files, next.content, next.count = r.sum(), r.sum(), r.uvarint()
		if length == 1 {
			next.last = r.varint()
		}
		if length < 1 || length > 31 || next.from < at && len(s) > 0 || !next.from.possible() {
			r.skip(0)
		}
		s, at = append(s, next), next.to
	}
	return s
}

func (r *tokenReader) lacks() (l lacks) {
	for n := r.uvarint(); n > 0 && !r.failed; n-- {
		one := lack{dayNumber(r.varint()), r.sum()}
		if !one.day.possible() {
			r.skip(0)
		}
		l = append(l, one)
	}
	return l
}

// possible reports whether anything may have come on a day.
func (n dayNumber) possible() bool { return n >= -1<<20 && n <= 1<<20 }

func (r *tokenReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.data)
	r.skip(n)
	return v
}

func (r *tokenReader) varint() int64 {
	v, n := binary.Varint(r.data)
	r.skip(n)
	return v
}

func (r *tokenReader) sum() uint64 {
	if len(r.data) < 6 {
		r.skip(0)
		return 0
	}
	all := append([]byte{0, 0}, r.data[:6]...)
	r.skip(6)
	return binary.BigEndian.Uint64(all)
}

func (r *tokenReader) skip(n int) {
	if n <= 0 {
		r.failed, r.data = true, nil
		return
	}
	r.data = r.data[n:]
}
