// SPDX-License-Identifier: Apache-2.0

package decode_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/pcapng"
	"github.com/substorm/substorm/internal/wire"
)

// newSegment writes a segment as the gateway does.
func newSegment(t testing.TB, payloads ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	p, err := pcapng.NewPackets(&out, "a test")
	if err != nil {
		t.Fatal(err)
	}
	for i, payload := range payloads {
		source := netip.MustParseAddrPort("192.0.2.7:4000")
		if i%2 > 0 {
			source = netip.MustParseAddrPort("[2001:db8::7]:4000")
		}
		d := wire.Datagram{ReceivedAt: received.Add(time.Duration(i) * time.Second), Source: source, DestinationPort: 30101, Payload: []byte(payload)}
		if err := p.Write(d); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

func TestSegment(t *testing.T) {
	payloads := []string{"1", "two", "", string(bytes.Repeat([]byte("x"), 60_000))}
	data := newSegment(t, payloads...)
	var got []string
	err := decode.Datagrams(iotest.HalfReader(bytes.NewReader(data)), func(payload []byte, receivedAt time.Time) error {
		if want := received.Add(time.Duration(len(got)) * time.Second); !receivedAt.Equal(want) {
			t.Errorf("received %s, want %s", receivedAt, want)
		}
		got = append(got, string(payload))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(payloads, got); diff != "" {
		t.Errorf("(-want +got):\n%.500s", diff)
	}

	broken := errors.New("broken")
	for name, c := range map[string]struct {
		in   io.Reader
		want error
	}{
		"nothing":              {bytes.NewReader(nil), wire.ErrMalformed},
		"no segment":           {bytes.NewReader([]byte("hello, this is no segment at all")), wire.ErrMalformed},
		"cut off":              {bytes.NewReader(data[:len(data)-7]), wire.ErrMalformed},
		"a stream that breaks": {io.MultiReader(bytes.NewReader(data[:len(data)-7]), iotest.ErrReader(broken)), broken},
		"breaks at its end":    {io.MultiReader(bytes.NewReader(data), iotest.ErrReader(broken)), broken},
	} {
		if err := decode.Datagrams(c.in, func([]byte, time.Time) error { return nil }); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := decode.Datagrams(bytes.NewReader(data), func([]byte, time.Time) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("each failed: %v", err)
	}
}

func TestReadSegment(t *testing.T) {
	d := newDecoder(t, csvChannel(",", nil, column(double("x"), 1)))
	var got []string
	err := d.ReadSegment(bytes.NewReader(newSegment(t, "1", "no", "3")), func(s decode.Sample) error {
		got = append(got, spell(d, s))
		return nil
	})
	var u *decode.Undecodable
	if !errors.As(err, &u) || u.Records != 1 {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff([]string{"2026-11-21T12:00:00.123456789Z 1", "2026-11-21T12:00:02.123456789Z 3"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestBrokenSegment: what stands before a break of the framing is read, and what lies
// behind it counts once; where the stream breaks, nothing is wrong with the segment.
func TestBrokenSegment(t *testing.T) {
	d := newDecoder(t, csvChannel(",", nil, column(double("x"), 1)))
	whole := newSegment(t, "1", "no", "3", "4")
	last := len(whole) - len(newSegment(t, "1", "no", "3"))
	wild := bytes.Clone(whole)
	wild[len(wild)-last]++ // the type of the last block
	wild[len(wild)-last+4] = 1
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		in      io.Reader
		samples int
		bad     int
	}{
		"nothing":      {bytes.NewReader(nil), 0, 1},
		"no segment":   {bytes.NewReader([]byte("hello, this is no segment at all")), 0, 1},
		"cut off":      {bytes.NewReader(whole[:len(whole)-7]), 2, 2},
		"a wild block": {bytes.NewReader(wild), 2, 2},
		"a stream":     {io.MultiReader(bytes.NewReader(whole[:len(whole)-7]), iotest.ErrReader(broken)), 2, 0},
	} {
		samples := 0
		err := d.ReadSegment(c.in, func(decode.Sample) error { samples++; return nil })
		var u *decode.Undecodable
		if errors.As(err, &u) != (c.bad > 0) || u != nil && u.Records != c.bad || c.bad == 0 && !errors.Is(err, broken) || samples != c.samples {
			t.Errorf("%s: %d samples, %v", name, samples, err)
		}
	}
}

// BenchmarkSegment reads a segment of ten minutes of 1 Hz, three components as CSV.
func BenchmarkSegment(b *testing.B) {
	var payloads []string
	for i := range 600 {
		payloads = append(payloads, fmt.Sprintf("2026-11-21T12:%02d:%02d.000Z,%.2f,%.2f,%.2f\n", i/60, i%60, 20826.85+float64(i)/100, -86.75, 46874.62))
	}
	data := newSegment(b, payloads...)
	d := newDecoder(b, csvChannel(",", []int{1}, column(double("x"), 2), column(double("y"), 3), column(double("z"), 4)))
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if err := d.ReadSegment(bytes.NewReader(data), func(decode.Sample) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
