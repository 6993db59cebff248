// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// A token says what was in a bundle, so that another holds what changed since. It knows
// sums alone: one of the newest days each, and of what is older one of each month. A day
// to which only newer objects were added gives those; of what changed otherwise, as by
// data that came late, the day, or the month, is given again.

const (
	tokenFormat = 1
	// maxToken bounds a token: it is sent in a URL.
	maxToken = 8 << 10
	// daily is how many days stand for themselves, at least.
	daily = 31
	// sumMask: sums have 48 bits.
	sumMask = 1<<48 - 1
)

// errToken: what is shown as a token is none, or one of another question.
var errToken = errors.New("it is not that of a bundle for the same question")

// dayNumber counts days since 1970.
type dayNumber int

func numberOf(d wire.Day) (dayNumber, error) {
	start, err := d.Start()
	if err != nil {
		return 0, err
	}
	return dayNumber(start.Unix() / 86400), nil
}

func (n dayNumber) start() time.Time { return time.Unix(int64(n)*86400, 0).UTC() }

// month returns the first day of the month that holds a day, and of the next.
func (n dayNumber) month() (first, next dayNumber) {
	y, m, _ := n.start().Date()
	return dayNumber(time.Date(y, m, 1, 0, 0, 0, 0, time.UTC).Unix() / 86400), dayNumber(time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC).Unix() / 86400)
}

// sum is what a token knows of a day or a month. Sums of days add up.
type sum struct {
	// files in effect say together; 0: nobody knows.
	files uint64
	// count of the objects, and what their paths and digests add up to.
	count, content uint64
	// last is when the last of a day's was received, in nanoseconds of that day.
	last int64
}

func (s sum) plus(o sum) sum {
	return sum{(s.files + o.files) & sumMask, s.count + o.count, (s.content + o.content) & sumMask, 0}
}

// same says whether the objects are.
func (s sum) same(o sum) bool { return s.count == o.count && s.content == o.content }

// add counts one object in.
func (s *sum) add(path string, r *wire.Record, day dayNumber) {
	h := sha256.New()
	_, _ = h.Write(r.Digest[:])
	_, _ = h.Write([]byte(path))
	s.count++
	s.content = (s.content + binary.BigEndian.Uint64(h.Sum(nil))) & sumMask
	s.last = max(s.last, r.ReceivedAt.Sub(day.start()).Nanoseconds())
}

// filesOf says what files a day has.
func filesOf(d wire.RootDay) uint64 {
	h := sha256.Sum256(fmt.Appendf(nil, "%s %d %v %d %d %d", d.Day, d.Version, d.Parts, d.Entries, d.Repeats, d.Bytes))
	return binary.BigEndian.Uint64(h[:]) & sumMask
}

// span is the sum of some days: of one, or of a month.
type span struct {
	from, to dayNumber // to is not included
	sum
}

// spans are those of one instrument, ascending and apart.
type spans []span

// of returns the span that holds a day.
func (s spans) of(day dayNumber) (span, bool) {
	i, found := slices.BinarySearchFunc(s, day, func(s span, day dayNumber) int {
		switch {
		case s.to <= day:
			return -1
		case s.from > day:
			return 1
		default:
			return 0
		}
	})
	if !found {
		return span{}, false
	}
	return s[i], true
}

// add puts a span behind the others: a day that is older than the first daily one
// becomes part of its month.
func (s spans) add(next span, firstDaily dayNumber) spans {
	if next.to-next.from > 1 || next.from >= firstDaily {
		return append(s, next)
	}
	from, to := next.from.month()
	if last := len(s) - 1; last >= 0 && s[last].from == from && s[last].to == to {
		s[last].sum = s[last].plus(next.sum)
		return s
	}
	return append(s, span{from, to, sum{}.plus(next.sum)})
}

// firstDaily is the first day that stands for itself: that of a month.
func firstDaily(now time.Time) dayNumber {
	first, _ := dayNumber(now.Unix()/86400 - daily).month()
	return first
}

// token is what was in a bundle: of each instrument, in the order of the question.
type token struct {
	question [8]byte
	all      []spans
}

// String writes the token; empty where it is too long.
func (t token) String() string {
	b := append([]byte{tokenFormat}, t.question[:]...)
	b = binary.AppendUvarint(b, uint64(len(t.all)))
	for _, s := range t.all {
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
	}
	text := base64.RawURLEncoding.EncodeToString(b)
	if len(text) > maxToken {
		return ""
	}
	return text
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
	if err != nil || len(data) < 9 || data[0] != tokenFormat || !bytes.Equal(data[1:9], question[:]) {
		return token{}, errToken
	}
	r := &tokenReader{data: data[9:]}
	t := token{question: question}
	if r.uvarint() != uint64(instruments) {
		return token{}, errToken
	}
	for range instruments {
		var s spans
		at := dayNumber(0)
		for n := r.uvarint(); n > 0 && !r.failed; n-- {
			next := span{from: at + dayNumber(r.varint())}
			length := r.uvarint()
			next.to = next.from + dayNumber(length)
			next.files, next.content, next.count = r.sum(), r.sum(), r.uvarint()
			if length == 1 {
				next.last = r.varint()
			}
			if length < 1 || length > 31 || next.from < at && len(s) > 0 || next.from > 1<<20 || next.from < -1<<20 {
				return token{}, errToken
			}
			s, at = append(s, next), next.to
		}
		t.all = append(t.all, s)
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
