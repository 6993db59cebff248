// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
)

// found is what a framing made of a stream.
type found struct {
	Objects []foundObject
	// End is what receive returned.
	End string
}

type foundObject struct {
	Bytes   string
	Framed  bool
	Refused bool
	Control bool
}

// stream is an input that cuts data into reads of any size, with pauses between
// some of them, and holds a framing to its contract.
type stream struct {
	t      testing.TB
	data   []byte
	random *rand.Rand
	max    int64
	// pauses are the parts of data between which the sender pauses, nil for a
	// sender that does not; arrived is how much is left of the current one.
	pauses  []string
	arrived int

	began, open, skipping bool
	object                []byte
	got                   []byte // what fill returned last, until it is taken or the next call
	found                 found
}

// reads returns how much one read brings at most.
func (s *stream) reads() int {
	if s.random.IntN(2) == 0 {
		return 1 + s.random.IntN(8)
	}
	return 1 + s.random.IntN(2*heldLine)
}

// fetch reads once.
func (s *stream) fetch(into []byte) (int, error) {
	s.got = nil
	if len(into) == 0 {
		s.t.Fatal("a read of nothing")
	}
	n := copy(into[:min(len(into), s.reads())], s.data)
	if s.pauses != nil {
		if n > 0 && s.arrived == 0 {
			return 0, errPause
		}
		n = min(n, s.arrived)
		s.arrived -= n
	}
	s.data = s.data[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (s *stream) await() error {
	if s.open || s.skipping {
		s.t.Fatal("await within an object")
	}
	if len(s.data) == 0 {
		return io.EOF
	}
	s.began = true
	s.arrived, s.pauses = len(s.pauses[0]), s.pauses[1:]
	return nil
}

func (s *stream) read(into []byte) (int, error) {
	if s.open {
		s.t.Fatal("an object's bytes are read beside it")
	}
	n, err := s.fetch(into)
	if n > 0 {
		s.began = true
	}
	return n, err
}

func (s *stream) started() { s.began = true }

func (s *stream) between() {
	if s.open {
		s.t.Fatal("between objects while one is open")
	}
	s.began, s.skipping = false, false
}

func (s *stream) limit() int64 { return s.max }

func (s *stream) begin() error {
	if s.open || s.skipping || !s.began {
		s.t.Fatalf("begin: open %v, skipping %v, began %v", s.open, s.skipping, s.began)
	}
	s.open, s.object = true, []byte{}
	return nil
}

func (s *stream) fill(limit int64, ahead []byte) ([]byte, int, error) {
	if !s.open || limit <= 0 {
		s.t.Fatalf("fill of %d bytes, open %v", limit, s.open)
	}
	space := make([]byte, min(limit, int64(1+s.random.IntN(3*heldLine))))
	n, err := s.fetch(space)
	if err != nil {
		return nil, 0, err
	}
	m := 0
	if int64(n) == limit && len(ahead) > 0 {
		if m, err = s.fetch(ahead[:1+s.random.IntN(len(ahead))]); errors.Is(err, io.EOF) {
			m = 0
		}
	}
	s.got = space[:n]
	return s.got, m, nil
}

func (s *stream) take(got []byte) {
	if !s.open || len(got) > len(s.got) || !bytes.Equal(got, s.got[:len(got)]) {
		s.t.Fatalf("takes what was not read: %q of %q", got, s.got)
	}
	s.object = append(s.object, got...)
	s.got = nil
}

func (s *stream) put(b []byte) error {
	if !s.open {
		s.t.Fatal("put into no object")
	}
	s.object = append(s.object, b...)
	return nil
}

func (s *stream) size() int64 { return int64(len(s.object)) }

func (s *stream) end(framed bool) {
	if !s.open || len(s.object) == 0 || s.size() > s.max {
		s.t.Fatalf("ends an object of %d bytes, open %v", len(s.object), s.open)
	}
	s.found.Objects = append(s.found.Objects, foundObject{Bytes: string(s.object), Framed: framed})
	s.open, s.began = false, false
}

func (s *stream) skip(cause wire.Cause) {
	if !s.open || cause != wire.CauseObjectTooLarge {
		s.t.Fatalf("refuses for %s, open %v", cause, s.open)
	}
	s.found.Objects = append(s.found.Objects, foundObject{Refused: true})
	s.open, s.skipping = false, true
}

func (s *stream) control(body []byte) error {
	if s.open || s.began {
		s.t.Fatalf("a control frame, open %v, began %v", s.open, s.began)
	}
	s.found.Objects = append(s.found.Objects, foundObject{Bytes: string(body), Control: true})
	return nil
}

func newStream(t testing.TB, data []byte, seed uint64, limit int64) *stream {
	return &stream{t: t, data: data, random: rand.New(rand.NewPCG(seed, 7)), max: limit}
}

// run runs a framing over the stream.
func (s *stream) run(f framing) found {
	t := s.t
	err := f.receive(s)
	s.found.End = endOf(err)
	if errors.Is(err, io.EOF) && (s.open || len(s.data) > 0 || s.began && !s.skipping) {
		t.Fatalf("at the end: open %v, began %v, %d bytes left", s.open, s.began, len(s.data))
	}
	return s.found
}

func endOf(err error) string {
	why := new(cut)
	switch {
	case errors.As(err, &why):
		return string(why.cause)
	case errors.Is(err, io.EOF):
		return "EOF"
	case errors.Is(err, errLeave):
		return "leave"
	default:
		return fmt.Sprint("unknown: ", err)
	}
}

// wantLines is what Lines should find, in the simplest words.
func wantLines(data []byte, limit int64) found {
	want := found{End: "EOF"}
	all := bytes.SplitAfter(data, []byte("\n"))
	for _, line := range all {
		text, framed := bytes.CutSuffix(line, []byte("\n"))
		switch {
		case len(text) == 0, string(text) == "\r":
		case int64(len(text)) > limit:
			want.Objects = append(want.Objects, foundObject{Refused: true})
		default:
			want.Objects = append(want.Objects, foundObject{Bytes: string(text), Framed: framed})
		}
	}
	return want
}

func wantLengthPrefixed(data []byte, limit int64) found {
	var want found
	for {
		if len(data) < wire.PrefixSize {
			want.End = map[bool]string{true: "EOF", false: string(wire.CauseTruncated)}[len(data) == 0]
			return want
		}
		n := int64(binary.BigEndian.Uint32(data))
		data = data[wire.PrefixSize:]
		control := n >= 1<<31
		n &= 1<<31 - 1
		switch {
		case n == 0 && !control:
		case !control && n > limit, control && n > 4096:
			want.Objects = append(want.Objects, foundObject{Refused: true})
			want.End = "leave"
			return want
		case n > int64(len(data)):
			want.End = string(wire.CauseTruncated)
			return want
		default:
			want.Objects = append(want.Objects, foundObject{Bytes: string(data[:n]), Framed: !control, Control: control})
			data = data[n:]
		}
	}
}

// prefixed is objects as a sender of LengthPrefixed writes them.
func prefixed(objects ...string) (b []byte) {
	for _, o := range objects {
		b = binary.BigEndian.AppendUint32(b, uint32(len(o)))
		b = append(b, o...)
	}
	return b
}

func FuzzLines(f *testing.F) {
	long := bytes.Repeat([]byte("0123456789abcdef"), 1000)
	for _, data := range []string{
		"", "\n", "\r\n", "\r", "four\nfives\nx", "fives", "\r\r\n", "one\ntwo\r\n\n\r\nthree", "one", "one\r", "\n\n\none\n", string(long), string(long) + "\nshort\n",
		"short\n" + string(long) + "\n" + string(long) + "\r\nend", string(long[:heldLine]) + "\n" + string(long[:heldLine-1]) + "\nx\n",
	} {
		f.Add([]byte(data), uint64(1), uint16(heldLine))
		f.Add([]byte(data), uint64(2), uint16(60_000))
		f.Add([]byte(data), uint64(3), uint16(4))
	}
	for seed := range uint64(10) { // a byte too long, in all kinds of pieces
		f.Add([]byte("four\nfives\nx"), seed, uint16(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64, limit uint16) {
		size := int64(limit) + 1
		if diff := cmp.Diff(wantLines(data, size), newStream(t, data, seed, size).run(new(lines))); diff != "" {
			t.Fatalf("objects of at most %d bytes (-want +got):\n%s", size, diff)
		}
	})
}

func FuzzLengthPrefixed(f *testing.F) {
	long := string(bytes.Repeat([]byte("0123456789abcdef"), 1000))
	for _, data := range [][]byte{
		nil, prefixed(""), prefixed("one"), prefixed("four", "fives", "x"), prefixed("one", "", "", "two"), prefixed(long, "x", long), prefixed("one")[:6], prefixed("one", "two")[:9],
		{0}, {0, 0, 0}, {0xff, 0xff, 0xff, 0xff, 1, 2, 3}, append(prefixed("one"), 0x80, 0, 0, 0), []byte("GET / HTTP/1.1\r\n\r\n"),
		append(append(prefixed("one"), 0x80, 0, 0, 2, '{', '}'), prefixed("two")...), {0x80, 0, 0, 9, '{'}, {0x80, 0, 0x10, 1}, append([]byte{0x80, 0, 0x10, 0}, long...),
	} {
		f.Add(data, uint64(1), uint16(60_000))
		f.Add(data, uint64(2), uint16(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64, limit uint16) {
		size := int64(limit) + 1
		if diff := cmp.Diff(wantLengthPrefixed(data, size), newStream(t, data, seed, size).run(new(lengthPrefixed))); diff != "" {
			t.Fatalf("objects of at most %d bytes (-want +got):\n%s", size, diff)
		}
	})
}

// FuzzIdle: wherever the sender pauses an object ends, and only there.
func FuzzIdle(f *testing.F) {
	for _, data := range []string{"", "x", "one two three", string(bytes.Repeat([]byte("0123456789abcdef"), 2000))} {
		f.Add([]byte(data), uint64(1), uint16(60_000))
		f.Add([]byte(data), uint64(2), uint16(100))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64, limit uint16) {
		s := newStream(t, data, seed, int64(limit)+1)
		want := found{End: "EOF"}
		for rest := data; len(rest) > 0; {
			n := min(len(rest), s.reads())
			o := foundObject{Bytes: string(rest[:n])}
			s.pauses = append(s.pauses, o.Bytes)
			if int64(n) > s.max {
				o = foundObject{Refused: true}
			}
			want.Objects = append(want.Objects, o)
			rest = rest[n:]
		}
		if diff := cmp.Diff(want, s.run(idle{})); diff != "" {
			t.Fatalf("objects of at most %d bytes (-want +got):\n%s", s.max, diff)
		}
	})
}
