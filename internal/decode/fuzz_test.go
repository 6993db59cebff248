// SPDX-License-Identifier: Apache-2.0

package decode_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/wire"
)

// fuzz asks of any payload: it is read without a panic, whole and as a stream the
// same, and every sample has all of its values and a time of the channel's precision.
func fuzz(f *testing.F, e wire.ChannelEntry, payloads ...string) {
	for _, p := range payloads {
		f.Add([]byte(p))
	}
	e.Time.Precision = wire.PrecisionMilliseconds
	d := newDecoder(f, e)
	f.Fuzz(func(t *testing.T, payload []byte) {
		all(t, d, payload)
		err := d.Decode(payload, received, func(s decode.Sample) error {
			if len(s.Values) != d.Width() || s.Time%int64(time.Millisecond) != 0 {
				t.Errorf("sample of %d bytes, %d wanted, at %d", len(s.Values), d.Width(), s.Time)
			}
			return nil
		})
		var u *decode.Undecodable
		if err != nil && (!errors.As(err, &u) || u.Records < 1 || u.First == nil) {
			t.Errorf("got %v", err)
		}
	})
}

func fuzzParameters(place func(p wire.ParameterEntry, i int) wire.ParameterEntry) []wire.ParameterEntry {
	return []wire.ParameterEntry{place(double("x"), 0),
		place(wire.ParameterEntry{Name: "n", Type: wire.ParameterInteger}, 1),
		place(wire.ParameterEntry{Name: "s", Type: wire.ParameterString, Length: 4, Fill: ptr("")}, 2)}
}

func FuzzCSV(f *testing.F) {
	e := csvChannel(",", []int{1}, fuzzParameters(func(p wire.ParameterEntry, i int) wire.ParameterEntry { return column(p, i+2) })...)
	fuzz(f, e, "2020-01-01T00:00:00.5Z,1.5,-3,on\n", "# x\n2020-366,NaN,1,\"a\"\"b\"\r\n", "2020,1e300,2147483648,x\n\n")
}

func FuzzJSON(f *testing.F) {
	e := wire.ChannelEntry{Payload: wire.PayloadEntry{Type: wire.PayloadJSON, Records: "/r"},
		Parameters: fuzzParameters(func(p wire.ParameterEntry, i int) wire.ParameterEntry { return path(p, "/v/"+string(rune('0'+i))) }),
		Time:       wire.ChannelTimeEntry{Source: wire.TimePayload, Format: wire.TimeUnixMicroseconds, Path: "/t"}}
	fuzz(f, e, `{"r":[{"t":1,"v":[1.5,2,"a"]},{"t":"2","v":{"0":1,"1":true,"2":null}}]}`, `{"r":{"t":1e3,"v":[[]]}} {}`, `{"r":[{"t":1,"v":[`,
		"{\"r\":[{\"t\":1,\"v\":[NaN,2]},{\"t\":\"\n{\"r\":{\"t\":2,\"v\":[1,2,\"a\"]}}\n\xef\xbb\xbf{\"r\":[},]}")
}

func FuzzBinary(f *testing.F) {
	places := []struct {
		at       int
		encoding string
	}{{8, wire.EncodingFloat32}, {12, wire.EncodingUInt32}, {16, wire.EncodingText}}
	e := wire.ChannelEntry{Payload: wire.PayloadEntry{Type: wire.PayloadBinary, Header: 3, Record: 20, ByteOrder: wire.BigEndian},
		Parameters: fuzzParameters(func(p wire.ParameterEntry, i int) wire.ParameterEntry {
			return offset(p, places[i].at, places[i].encoding)
		}),
		Time: wire.ChannelTimeEntry{Source: wire.TimePayload, Format: wire.TimeUnixSeconds, Encoding: wire.EncodingFloat64}}
	fuzz(f, e, "abc0123456789abcdefghij", "abc", "abc\x7f\xf8\x00\x00\x00\x00\x00\x00\x7f\xc0\x00\x00\xff\xff\xff\xff1234")
}

func FuzzIAGA(f *testing.F) {
	e := wire.ChannelEntry{Payload: wire.PayloadEntry{Type: wire.PayloadIAGA2002, Reported: "HDZF"},
		Parameters: []wire.ParameterEntry{{Name: "b", Type: wire.ParameterDouble, Size: []int{2}, Fill: ptr("99999"), Components: []string{"H", "BOUZ"}}},
		Time:       wire.ChannelTimeEntry{Source: wire.TimePayload}}
	fuzz(f, e, iagaHead+"DATE TIME DOY BOUH BOUZ |\n2020-01-01 00:00:00.000 001 1.00 88888.00\n", "2020-01-01 00:00:00.000 001 1 2 3 4\n", "DATE|\n")
}

func FuzzOASIS(f *testing.F) {
	e := oasisChannel("", offset(double("x"), 0, wire.EncodingUInt64), offset(wire.ParameterEntry{Name: "n", Type: wire.ParameterInteger}, 8, wire.EncodingInt64))
	fuzz(f, e, string(probePacket(f)), "EISA")
}

func FuzzSegment(f *testing.F) {
	f.Add(newSegment(f, "1", "two"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		err := decode.Datagrams(bytes.NewReader(data), func([]byte, time.Time) error { return nil })
		if err != nil && !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("got %v", err)
		}
	})
}

func FuzzParseTime(f *testing.F) {
	for _, s := range []string{"2020-01-01T00:00:00.123456789Z", "2020-366", "2020-02-29T24:00", "2016-12-31T23:59:60Z", "2020-01-01 00:00+01:30"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := decode.ParseTime([]byte(text))
		const layout = "2006-01-02T15:04:05.999999999Z07:00"
		want, err := time.Parse(layout, text)
		if err == nil && want.UTC().Format(layout) == text && (!ok || !got.Equal(want)) {
			t.Errorf("%q is %v (%v), %v by RFC 3339", text, got, ok, want)
		}
	})
}
