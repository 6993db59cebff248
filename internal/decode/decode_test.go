// SPDX-License-Identifier: Apache-2.0

package decode_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/wire"
)

// in returns a parameter that stands in a column, at a path, or at an offset.
func column(p wire.ParameterEntry, n int) wire.ParameterEntry { p.Column = n; return p }

func path(p wire.ParameterEntry, pointer string) wire.ParameterEntry { p.Path = pointer; return p }

func offset(p wire.ParameterEntry, at int, encoding string) wire.ParameterEntry {
	p.Offset, p.Encoding = at, encoding
	return p
}

func csvChannel(separator string, times []int, parameters ...wire.ParameterEntry) wire.ChannelEntry {
	e := wire.ChannelEntry{Payload: wire.PayloadEntry{Type: wire.PayloadCSV, Separator: separator, Comment: "#"}, Parameters: parameters}
	if times != nil {
		e.Time = wire.ChannelTimeEntry{Source: wire.TimePayload, Format: wire.TimeISO8601, Columns: times}
	}
	return e
}

func TestCSV(t *testing.T) {
	text := wire.ParameterEntry{Name: "mode", Type: wire.ParameterString, Length: 8}
	count := wire.ParameterEntry{Name: "count", Type: wire.ParameterInteger}
	vector := wire.ParameterEntry{Name: "b", Type: wire.ParameterDouble, Size: []int{3}, Fill: ptr("-1e31")}
	skipping := csvChannel(",", []int{1}, column(double("x"), 2))
	skipping.Payload.SkipLines = 1
	unix := csvChannel(";", []int{2}, column(double("x"), 1))
	unix.Time.Format = wire.TimeUnixSeconds
	rounded := csvChannel(",", []int{1}, column(double("x"), 2))
	rounded.Time.Precision = wire.PrecisionSeconds
	for _, c := range []payloadTest{
		{"columns in any order, one not looked at", csvChannel(",", []int{3}, column(text, 4), column(double("x"), 1)),
			"1.5,9,2020-01-01T00:00:00Z,on\r\n-2e-3,9,2020-01-01T00:00:01.5Z,off,more\n",
			[]string{`2020-01-01T00:00:00Z "on" 1.5`, `2020-01-01T00:00:01.5Z "off" -0.002`}, ""},
		{"remarks, empty lines, no last line end", csvChannel(",", []int{1}, column(double("x"), 2)),
			"# time,x\n\n2020-001,1\n2020-002T03,2", []string{"2020-01-01T00:00:00Z 1", "2020-01-02T03:00:00Z 2"}, ""},
		{"a header", skipping, "time,x\n2020,1\n", []string{"2020-01-01T00:00:00Z 1"}, ""},
		{"date and time between blanks", csvChannel(" ", []int{1, 2}, column(vector, 3)),
			" 2020-01-01   00:00:01.000  1  2\t3\n", []string{"2020-01-01T00:00:01Z 1 2 3"}, ""},
		{"quotes", csvChannel(",", []int{2}, column(text, 1)), "\"a\"\",\"\"b\" , \"2020-01-01\" ,x\n", []string{`2020-01-01T00:00:00Z "a\",\"b"`}, ""},
		{"missing values have the fill", csvChannel(",", []int{1}, column(vector, 2)),
			"2020-01-01,1,,NaN\n2020-01-02,7\n", []string{"2020-01-01T00:00:00Z 1 -1e+31 -1e+31", "2020-01-02T00:00:00Z 7 -1e+31 -1e+31"}, ""},
		{"a missing value without a fill", csvChannel(",", []int{1}, column(count, 2)),
			"2020-01-01,\n2020-01-02,3\n", []string{"2020-01-02T00:00:00Z 3"}, "1 undecodable, the first: line 1: parameter count: a value is missing"},
		{"the rest of what cannot be read", csvChannel(",", []int{1}, column(count, 2)),
			"2020-01-01,1.5\n2020-13-01,1\nno,1\n2020-01-01,9999999999\n2020-01-01,0x10\n2020-01-01,\"1\n2020-01-05,-3\n",
			[]string{"2020-01-05T00:00:00Z -3"}, "6 undecodable, the first: line 1: parameter count: 1.5 is not an integer"},
		{"too long a text", csvChannel(",", []int{1}, column(text, 2)), "2020-01-01,123456789\n", nil, "the text is too long"},
		{"seconds since 1970, exactly", unix, "1;1583020800.123456789\n2;-1.5\n",
			[]string{"2020-03-01T00:00:00.123456789Z 1", "1969-12-31T23:59:58.5Z 2"}, ""},
		{"cut to the precision, also before 1970", rounded, "2020-01-01T00:00:01.999Z,1\n1969-12-31T23:59:59.5Z,2\n",
			[]string{"2020-01-01T00:00:01Z 1", "1969-12-31T23:59:59Z 2"}, ""},
		{"the time of receipt", csvChannel(",", nil, column(double("x"), 1)), "4.25\n", []string{"2026-11-21T12:00:00.123456789Z 4.25"}, ""},
		{"two records and one time", csvChannel(",", nil, column(double("x"), 1)), "1\n2\n", []string{"2026-11-21T12:00:00.123456789Z 1"},
			"records have no time of their own"},
		{"a year that does not fit", csvChannel(",", []int{1}, column(double("x"), 2)), "1600-01-01,1\n", nil, "before 1678"},
		{"an offset of the zone", csvChannel(",", []int{1}, column(double("x"), 2)), "2020-01-01T01:30:00+01:30,1\n", []string{"2020-01-01T00:00:00Z 1"}, ""},
		{"nothing", csvChannel(",", []int{1}, column(double("x"), 2)), "", nil, ""},
	} {
		c.run(t)
	}
}

func TestLongLine(t *testing.T) {
	d := newDecoder(t, csvChannel(",", []int{1}, column(double("x"), 2)))
	text := "2020-01-01,1\n" + strings.Repeat("x", 300<<10) + "\n2020-01-02,2\n"
	var got []string
	err := d.Read(strings.NewReader(text), received, func(s decode.Sample) error { got = append(got, spell(d, s)); return nil })
	if diff := cmp.Diff([]string{"2020-01-01T00:00:00Z 1", "2020-01-02T00:00:00Z 2"}, got); diff != "" {
		t.Error(diff)
	}
	var u *decode.Undecodable
	if !errors.As(err, &u) || u.Records != 1 {
		t.Errorf("got %v", err)
	}
}

func TestJSON(t *testing.T) {
	channel := func(records string, parameters ...wire.ParameterEntry) wire.ChannelEntry {
		return wire.ChannelEntry{Payload: wire.PayloadEntry{Type: wire.PayloadJSON, Records: records}, Parameters: parameters,
			Time: wire.ChannelTimeEntry{Source: wire.TimePayload, Format: wire.TimeISO8601, Path: "/t"}}
	}
	count := path(wire.ParameterEntry{Name: "count", Type: wire.ParameterInteger}, "/n")
	vector := path(wire.ParameterEntry{Name: "b", Type: wire.ParameterDouble, Size: []int{2, 2}, Fill: ptr("NaN")}, "/b")
	text := path(wire.ParameterEntry{Name: "mode", Type: wire.ParameterString, Length: 8, Fill: ptr("-")}, "/a~1b/~0")
	number := channel("", path(double("x"), "/1"))
	number.Time.Path, number.Time.Format = "/0", wire.TimeUnixMilliseconds
	number.Payload.Records = "/rows"
	untimed := channel("", path(double("x"), "/x"))
	untimed.Time = wire.ChannelTimeEntry{}
	for _, c := range []payloadTest{
		{"an object", channel("", path(double("x"), "/field/x")), `{"other":[{"x":1}],"field":{"y":2,"x":1.25},"t":"2020-01-01T00:00:00Z"}`,
			[]string{"2020-01-01T00:00:00Z 1.25"}, ""},
		{"an array of objects", channel("", count), `[{"t":"2020-01-01","n":1},{"n":2.0,"t":"2020-01-02"}]`,
			[]string{"2020-01-01T00:00:00Z 1", "2020-01-02T00:00:00Z 2"}, ""},
		{"lines", channel("", count), "{\"t\":\"2020-01-01\",\"n\":true}\n{\"t\":\"2020-01-02\",\"n\":1e2}\n",
			[]string{"2020-01-01T00:00:00Z 1", "2020-01-02T00:00:00Z 100"}, ""},
		{"records within, as arrays", number, `{"rows":[[0,1.5],[1000,null],[2000,3]],"n":3}`,
			[]string{"1970-01-01T00:00:00Z 1.5", "1970-01-01T00:00:01Z NaN", "1970-01-01T00:00:02Z 3"}, ""},
		{"arrays, and null in them", channel("", vector), `{"t":"2020","b":[[1,2],[null,4]]}`, []string{"2020-01-01T00:00:00Z 1 2 NaN 4"}, ""},
		{"all of an array is missing", channel("", vector), `{"t":"2020","b":null}{"t":"2021"}`,
			[]string{"2020-01-01T00:00:00Z NaN NaN NaN NaN", "2021-01-01T00:00:00Z NaN NaN NaN NaN"}, ""},
		{"names that pointers escape, text with escapes", channel("", text), `{"a/b":{"~":"a\u00e9\n"},"t":"2020"}`, []string{`2020-01-01T00:00:00Z "aé\n"`}, ""},
		{"numbers in strings", channel("", count), `{"t":"2020","n":"7"}`, []string{"2020-01-01T00:00:00Z 7"}, ""},
		{"the time of receipt", untimed, `{"x":1}`, []string{"2026-11-21T12:00:00.123456789Z 1"}, ""},
		{"what cannot be read", channel("", count),
			`[{"t":"2020","n":1.5},{"t":"2020","n":[1]},{"t":"2020"},{"n":1},{"t":{},"n":1},{"t":"2020","n":{}},7,{"t":"2020","n":8}]`,
			[]string{"2020-01-01T00:00:00Z 8"}, "7 undecodable, the first: record 1: parameter count: 1.5 is not an integer"},
		{"an array too long, one too short", channel("", vector), `{"t":"2020","b":[1,2,3]}{"t":"2020","b":[1,2,3,4,5]}`, nil, "2 undecodable, the first: parameter b: 3 values instead of 4"},
		{"cut off", channel("", count), `[{"t":"2020","n":1},{"t":"20`, []string{"2020-01-01T00:00:00Z 1"}, "1 undecodable"},
		{"no JSON", channel("", count), "hello", nil, "1 undecodable"},
		{"no records there", number, `{"row":[]}`, nil, "no records at /rows"},
		{"nothing", channel("", count), " \n", nil, ""},
	} {
		c.run(t)
	}
}

// A record that is no JSON costs itself alone, and is counted once.
func TestJSONOfOthers(t *testing.T) {
	entry := func(records string, parameters ...wire.ParameterEntry) wire.ChannelEntry {
		return wire.ChannelEntry{Payload: wire.PayloadEntry{Type: wire.PayloadJSON, Records: records}, Parameters: parameters,
			Time: wire.ChannelTimeEntry{Source: wire.TimePayload, Format: wire.TimeISO8601, Path: "/t"}}
	}
	v := path(double("v"), "/v")
	strict := path(wire.ParameterEntry{Name: "v", Type: wire.ParameterDouble}, "/v")
	vector := path(wire.ParameterEntry{Name: "b", Type: wire.ParameterDouble, Size: []int{2}, Fill: ptr("NaN")}, "/b")
	rows := entry("/rows", path(double("v"), "/1"))
	rows.Time.Path = "/0"
	first, second, third := "2020-01-01T00:00:00Z 1", "2021-01-01T00:00:00Z 2", "2022-01-01T00:00:00Z 3"
	outer := []string{first, third}
	const a, c = `{"t":"2020","v":1}`, `{"t":"2022","v":3}`
	for _, c := range []payloadTest{
		{"NaN", entry("", v), a + "\n{\"t\":\"2021\",\"v\":NaN}\n" + c, []string{first, "2021-01-01T00:00:00Z NaN", third}, ""},
		{"infinities in an array", entry("", v, vector), "[" + a + ",{\"t\":\"2021\",\"v\":2,\"b\":[-Infinity,4]}," + c + "]",
			[]string{first + " NaN NaN", second + " NaN 4", third + " NaN NaN"}, ""},
		{"NaN without a fill", entry("", strict), a + "\n{\"t\":\"2021\",\"v\":NaN}\n" + c, outer, "1 undecodable, the first: record 2: parameter v"},
		{"a record that was cut off in a text", entry("", v), a + "\n{\"t\":\"2021\",\"v\n" + c + "\n", outer, "1 undecodable, the first: record 2"},
		{"a record that was cut off behind a comma", entry("", v), a + "\n{\"t\":\"2021\",\n" + c + "\n", outer, "1 undecodable"},
		{"a record that was cut off in an array", entry("", v, vector), a + "\r\n{\"t\":\"2021\",\"b\":[1,\r\n" + c + "\r\n", []string{first + " NaN NaN", third + " NaN NaN"}, "1 undecodable"},
		{"all but the first", entry("", v), a + "\n{\"t\n{\"t\":\n{\n{\"t\":\"2021\",\"v\":2}\n{\n" + c, []string{first, second, third}, "4 undecodable"},
		{"a byte order mark of the second file", entry("", v), a + "\n\xef\xbb\xbf{\"t\":\"2021\",\"v\":2}\n" + c + "\n", []string{first, second, third}, ""},
		{"a byte order mark behind what was cut off", entry("", v), a + "\n{\"t\n\xef\xbb\xbf" + c + "\n", outer, "1 undecodable"},
		{"a name twice", entry("", v), a + "{\"t\":\"2021\",\"t\":\"2021\",\"v\":2}" + c, outer, "1 undecodable"},
		{"a comma at the end", entry("", v), a + "\n{\"t\":\"2021\",\"v\":2,}\n" + c, outer, "1 undecodable"},
		{"a tab in a text", entry("", v), a + "\n{\"t\":\"2021\",\"v\":2,\"x\":\"a\tb\"}\n" + c, outer, "1 undecodable"},
		{"a value that cannot be read, and then no JSON", entry("", v), a + "\n{\"v\":\"no\",\"t\":\"2021\",}\n" + c, outer, "1 undecodable"},
		{"a line of text", entry("", v), a + "\nreboot at {noon}\n" + c, outer, "1 undecodable"},
		{"lines of an array", entry("", v), "[\n " + a + ",\n {\"t\":\"2021\",\"v\n " + c + "\n]\n{\"t\":\"2023\",\"v\":4}", append(outer, "2023-01-01T00:00:00Z 4"), "1 undecodable"},
		{"an object on lines", entry("", v), a + "\n{\n \"t\": \"2021\",\n \"w\": {\n  \"v\": .\n }\n}\n" + c, outer, "1 undecodable"},
		{"arrays in an object", rows, "{\"n\":[{}],\"rows\":[[\"2020\",1],\n[\"2021\",NaN],\n[\"2022\",3]],\"m\":1}", []string{first, "2021-01-01T00:00:00Z NaN", third}, ""},
		{"arrays on lines", rows, "{\"rows\":\n[\n[\"2020\",1],\n[\"2021\",?],\n[\"2022\",3]\n]\n}\n{\"rows\":[[\"2023\",4]]}", append(outer, "2023-01-01T00:00:00Z 4"), "1 undecodable"},
		{"no JSON behind the records", rows, "{\"rows\":[[\"2020\",1],[\"2022\",3]],\"m\":?}\n", outer, ""},
		{"records that were cut off between", entry("", v), "[" + a + "," + c, outer, "1 undecodable"},
	} {
		c.run(t)
	}
}

func TestBinary(t *testing.T) {
	channel := func(order string, header, record int, parameters ...wire.ParameterEntry) wire.ChannelEntry {
		return wire.ChannelEntry{Payload: wire.PayloadEntry{Type: wire.PayloadBinary, ByteOrder: order, Header: header, Record: record}, Parameters: parameters}
	}
	count := wire.ParameterEntry{Name: "count", Type: wire.ParameterInteger}
	text := wire.ParameterEntry{Name: "mode", Type: wire.ParameterString, Length: 4}
	timed := channel(wire.BigEndian, 2, 10, offset(count, 4, wire.EncodingInt16), offset(text, 6, wire.EncodingText))
	timed.Time = wire.ChannelTimeEntry{Source: wire.TimePayload, Format: wire.TimeUnixSeconds, Encoding: wire.EncodingUInt32}
	float := channel(wire.LittleEndian, 0, 8, offset(double("x"), 0, wire.EncodingUInt8))
	float.Time = wire.ChannelTimeEntry{Source: wire.TimePayload, Format: wire.TimeUnixSeconds, Encoding: wire.EncodingFloat64}
	vector := wire.ParameterEntry{Name: "b", Type: wire.ParameterDouble, Size: []int{3}, Fill: ptr("NaN")}
	at := "2026-11-21T12:00:00.123456789Z "
	bytes := func(digits string) string {
		b, _ := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		return string(b)
	}
	for _, c := range []payloadTest{
		{"records after a header", timed, bytes("abcd 5e0be100 fffe 61620000  5e0be101 0007 63646566"),
			[]string{`2020-01-01T00:00:00Z -2 "ab"`, `2020-01-01T00:00:01Z 7 "cdef"`}, ""},
		{"half a record", timed, bytes("abcd 5e0be100 fffe 61620000 5e0be1"), []string{`2020-01-01T00:00:00Z -2 "ab"`}, "record 2 has 3 bytes of 10"},
		{"half a header", timed, "a", nil, "1 bytes: the header has 2"},
		{"all that follows is one record", channel("", 0, 0, offset(vector, 2, wire.EncodingFloat32)), bytes("ffff 0000803f 0000c07f 000000c0 99"), []string{at + "1 NaN -2"}, ""},
		{"too short", channel("", 0, 0, offset(count, 4, wire.EncodingUInt32)), "1234567", nil, "a record of 7 bytes: the minimum is 8"},
		{"unsigned beyond 2^63", channel("", 0, 0, offset(double("x"), 0, wire.EncodingUInt64)), bytes("ffffffffffffffff"), []string{at + "1.8446744073709552e+19"}, ""},
		{"an integer that does not fit", channel("", 0, 0, offset(count, 0, wire.EncodingUInt32)), bytes("00000080"), nil, "too large"},
		{"every integer", channel(wire.BigEndian, 0, 0,
			offset(count, 0, wire.EncodingInt8), offset(count, 0, wire.EncodingUInt8), offset(count, 0, wire.EncodingUInt16),
			offset(count, 0, wire.EncodingInt32), offset(double("y"), 0, wire.EncodingInt64)), bytes("fffffffe 00000000"),
			[]string{at + "-1 255 65535 -2 -8.589934592e+09"}, ""},
		{"a time that is a double", float, bytes("00000000000000"), nil, "has 7 bytes of 8"},
		{"a time that is no number", float, bytes("000000000000f87f"), nil, "time"},
		{"half a second", float, bytes("000000000000f83f"), []string{"1970-01-01T00:00:01.5Z 0"}, ""},
	} {
		c.run(t)
	}
}

const iagaHead = " Format                 IAGA-2002                                    |\n # a remark                                                          |\n"

func TestIAGA(t *testing.T) {
	channel := func(reported string, parameters ...wire.ParameterEntry) wire.ChannelEntry {
		return wire.ChannelEntry{Payload: wire.PayloadEntry{Type: wire.PayloadIAGA2002, Reported: reported}, Parameters: parameters,
			Time: wire.ChannelTimeEntry{Source: wire.TimePayload, Precision: wire.PrecisionMilliseconds}}
	}
	field := wire.ParameterEntry{Name: "field", Type: wire.ParameterDouble, Size: []int{2}, Fill: ptr("99999.00"), Components: []string{"H", "Z"}}
	strict := wire.ParameterEntry{Name: "f", Type: wire.ParameterDouble, Components: []string{"BOUF"}}
	head := iagaHead + "DATE       TIME         DOY     BOUH      BOUE      BOUZ      BOUF   |\n"
	for _, c := range []payloadTest{
		{"a file", channel("", field, strict), head + "2020-01-01 00:00:00.000 001     20826.85    -86.75  46874.62  51815.05\r\n",
			[]string{"2020-01-01T00:00:00Z 20826.85 46874.62 51815.05"}, ""},
		{"a line alone", channel("HEZF", field), "2020-12-31 00:00:01.000 366     20826.85    -86.75  46874.62  51815.05", []string{"2020-12-31T00:00:01Z 20826.85 46874.62"}, ""},
		{"what was not measured", channel("", field), head + "2020-01-01 00:00:00.000 001  99999.00  99999.00  88888.00  99999.00\n", []string{"2020-01-01T00:00:00Z 99999 99999"}, ""},
		{"what was not measured, without a fill", channel("", strict), head + "2020-01-01 00:00:00.000 001  99999.00  99999.00  88888.00  99999.00\n", nil, "a value is missing"},
		{"two files", channel("", strict), head + "2020-01-01 00:00:00.000 001  1.00 2.00 3.00 4.00\n" + head + "2020-01-01 00:00:01.000 001  1.00 2.00 3.00 5.00\n",
			[]string{"2020-01-01T00:00:00Z 4", "2020-01-01T00:00:01Z 5"}, ""},
		{"another day of the year", channel("", strict), head + "2020-01-01 00:00:00.000 002  1.00 2.00 3.00 4.00\n", nil, "is not day 002"},
		{"no header, nothing known", channel("", strict), "2020-01-01 00:00:00.000 001  1.00 2.00 3.00 4.00\n", nil, "a value is missing"},
		{"no line of it", channel("HEZF", field), "hello\n", nil, "1 columns"},
		{"a blank element", channel("", field, strict), head + "2026-11-10 02:00:01.000 314       1.00                3.00      4.00\n", []string{"2026-11-10T02:00:01Z 1 3 4"}, ""},
		{"a blank element that is needed", channel("", field, strict), head + "2026-11-10 02:00:01.000 314         1.00      2.00      3.00\n", nil, "a value is missing"},
		{"a blank element of a line alone", channel("HEZF", field), "2020-01-01 00:00:00.000 001               20826.85  46874.62  51815.05\n", []string{"2020-01-01T00:00:00Z 99999 46874.62"}, ""},
		{"elements without a blank between", channel("", field, strict), head + "2020-01-01 00:00:00.000 001     -1000.00-100000.00-100000.50      4.00\n", []string{"2020-01-01T00:00:00Z -1000 -100000.5 4"}, ""},
		{"fewer elements, and no columns", channel("", field), head + "2020-01-01 00:00:00.000 001 1.00 3.00 4.00\n2020-01-01 00:00:01.000 001 1.00-2.00 3.00 4.00\n", nil, "2 undecodable, the first: line 4: elements are missing"},
	} {
		c.run(t)
	}
}

// TestObservatory reads a file of a real observatory and compares all of it with what
// fmt reads.
func TestObservatory(t *testing.T) {
	data := observatory(t, "BOU20200101vsec.sec")
	components := []string{"H", "E", "Z", "F"}
	d := newDecoder(t, wire.ChannelEntry{Payload: wire.PayloadEntry{Type: wire.PayloadIAGA2002},
		Time:       wire.ChannelTimeEntry{Source: wire.TimePayload, Precision: wire.PrecisionMilliseconds},
		Parameters: []wire.ParameterEntry{{Name: "field", Type: wire.ParameterDouble, Size: []int{4}, Fill: ptr("99999.00"), Components: components}}})
	var want []string
	for _, line := range strings.Split(string(data), "\n") {
		var date, clock, doy string
		var h, e, z, f float64
		if n, _ := fmt.Sscan(line, &date, &clock, &doy, &h, &e, &z, &f); n == 7 {
			at, err := time.Parse("2006-01-02 15:04:05.000", date+" "+clock)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, fmt.Sprintf("%s %v %v %v %v", at.Format(time.RFC3339Nano), h, e, z, f))
		}
	}
	if len(want) < 900 {
		t.Fatalf("%d lines", len(want))
	}
	got, wrong := all(t, d, data)
	if wrong != "" {
		t.Error(wrong)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%.2000s", diff)
	}
}

// probe is a packet that was caught on the wire, and probeValues the seven that it holds.
const (
	probe = "4549534101016c440b9949b0aa17a24c8806e8932996378859590000 8c310300" +
		"01000000000000003800000019000000 50726f636573736f7250726f62655f53" + "6d6f6b65546573740000000000000000 563e7a0000000000810e010000000000" +
		"024c0100000000001c00000000000000 c829000000000000 9936000000000000" + "ee33000000000000"
	probeValues = "8.01135e+06 69249 84994 28 10696 13977 13294"
)

func probePacket(t testing.TB) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(probe, " ", ""))
	if err != nil || len(b) != 136 {
		t.Fatalf("%d bytes: %v", len(b), err)
	}
	return b
}

func oasisChannel(name string, parameters ...wire.ParameterEntry) wire.ChannelEntry {
	return wire.ChannelEntry{Payload: wire.PayloadEntry{Type: wire.PayloadOASIS, Probe: name}, Parameters: parameters}
}

func TestOASIS(t *testing.T) {
	packet := string(probePacket(t))
	seven := offset(wire.ParameterEntry{Name: "processor", Type: wire.ParameterDouble, Size: []int{7}}, 0, wire.EncodingUInt64)
	eighth := offset(double("more"), 56, wire.EncodingUInt64)
	second := offset(wire.ParameterEntry{Name: "second", Type: wire.ParameterInteger}, 8, wire.EncodingUInt64)
	at := "2026-11-21T12:00:00.123456789Z "
	for _, c := range []payloadTest{
		{"as recorded", oasisChannel("ProcessorProbe_SmokeTest", seven), packet, []string{at + probeValues}, ""},
		{"any probe, one of its values", oasisChannel("", second), packet, []string{at + "69249"}, ""},
		{"another probe", oasisChannel("MemoryProbe", seven), packet, nil, ""},
		{"what follows is not looked at", oasisChannel("", second), packet + "more", []string{at + "69249"}, ""},
		{"less data than declared", oasisChannel("", eighth), packet, nil, "56 bytes of data: the minimum is 64"},
		{"cut off", oasisChannel("", second), packet[:100], nil, "a packet of 100 bytes that declares 136"},
		{"a name without end", oasisChannel("", second), packet[:44] + "\xff\xff\xff\xff" + packet[48:], nil, "that declares"},
		{"a newer version", oasisChannel("", second), packet[:4] + "\x02" + packet[5:], nil, "version 2.1"},
		{"none", oasisChannel("", second), "hello", nil, "not a packet of OASIS"},
	} {
		c.run(t)
	}
}

func TestChannelsThatCannotBeRead(t *testing.T) {
	x := column(double("x"), 1)
	timed := func(times ...int) wire.ChannelEntry { return csvChannel(",", times, x) }
	with := func(e wire.ChannelEntry, f func(*wire.ChannelEntry)) wire.ChannelEntry { f(&e); return e }
	for name, e := range map[string]wire.ChannelEntry{
		"no parameters":             csvChannel(",", nil),
		"no type":                   csvChannel(",", nil, wire.ParameterEntry{Name: "x", Column: 1}),
		"unknown payload":           {Payload: wire.PayloadEntry{Type: "XML"}, Parameters: []wire.ParameterEntry{x}},
		"no column":                 csvChannel(",", nil, double("x")),
		"no separator":              csvChannel("", nil, x),
		"three columns of time":     timed(1, 2, 3),
		"column of time 0":          timed(0),
		"date and time as a number": with(timed(1, 2), func(e *wire.ChannelEntry) { e.Time.Format = wire.TimeUnixSeconds }),
		"unknown format":            with(timed(1), func(e *wire.ChannelEntry) { e.Time.Format = "Julian" }),
		"unknown precision":         with(timed(1), func(e *wire.ChannelEntry) { e.Time.Precision = "Hours" }),
		"fill is no number":         csvChannel(",", nil, column(wire.ParameterEntry{Name: "x", Type: wire.ParameterDouble, Fill: ptr("none")}, 1)),
		"fill does not fit":         csvChannel(",", nil, column(wire.ParameterEntry{Name: "x", Type: wire.ParameterInteger, Fill: ptr("3000000000")}, 1)),
		"fill is too long":          csvChannel(",", nil, column(wire.ParameterEntry{Name: "x", Type: wire.ParameterString, Length: 2, Fill: ptr("abc")}, 1)),
		"text without a length":     csvChannel(",", nil, column(wire.ParameterEntry{Name: "x", Type: wire.ParameterString}, 1)),
		"size 0":                    csvChannel(",", nil, column(wire.ParameterEntry{Name: "x", Type: wire.ParameterDouble, Size: []int{3, 0}}, 1)),
		"size without end":          csvChannel(",", nil, column(wire.ParameterEntry{Name: "x", Type: wire.ParameterDouble, Size: []int{8000, math.MaxInt}}, 1)),
		"two at one path": {Payload: wire.PayloadEntry{Type: wire.PayloadJSON},
			Parameters: []wire.ParameterEntry{path(double("x"), "/x"), path(double("y"), "/x")}},
		"one below another": {Payload: wire.PayloadEntry{Type: wire.PayloadJSON},
			Parameters: []wire.ParameterEntry{path(double("x"), "/x"), path(double("y"), "/x/0")}},
		"one above another": {Payload: wire.PayloadEntry{Type: wire.PayloadJSON},
			Parameters: []wire.ParameterEntry{path(double("x"), "/x/0"), path(double("y"), "/x")}},
		"no pointer":            {Payload: wire.PayloadEntry{Type: wire.PayloadJSON}, Parameters: []wire.ParameterEntry{path(double("x"), "x")}},
		"record is too short":   {Payload: wire.PayloadEntry{Type: wire.PayloadBinary, Record: 4}, Parameters: []wire.ParameterEntry{offset(double("x"), 0, wire.EncodingFloat64)}},
		"text in a number":      {Payload: wire.PayloadEntry{Type: wire.PayloadBinary}, Parameters: []wire.ParameterEntry{offset(double("x"), 0, wire.EncodingText)}},
		"unknown encoding":      {Payload: wire.PayloadEntry{Type: wire.PayloadBinary}, Parameters: []wire.ParameterEntry{offset(double("x"), 0, "Float16")}},
		"offset before it":      {Payload: wire.PayloadEntry{Type: wire.PayloadBinary}, Parameters: []wire.ParameterEntry{offset(double("x"), -1, wire.EncodingInt8)}},
		"unknown byte order":    {Payload: wire.PayloadEntry{Type: wire.PayloadBinary, ByteOrder: "Middle"}, Parameters: []wire.ParameterEntry{offset(double("x"), 0, wire.EncodingInt8)}},
		"components of nothing": {Payload: wire.PayloadEntry{Type: wire.PayloadIAGA2002}, Parameters: []wire.ParameterEntry{double("x")}, Time: wire.ChannelTimeEntry{Source: wire.TimePayload}},
		"IAGA by receipt":       {Payload: wire.PayloadEntry{Type: wire.PayloadIAGA2002}, Parameters: []wire.ParameterEntry{{Name: "x", Type: wire.ParameterDouble, Components: []string{"H"}}}},
		"OASIS by its own time": with(oasisChannel("", offset(double("x"), 0, wire.EncodingInt8)), func(e *wire.ChannelEntry) { e.Time.Source = wire.TimePayload }),
	} {
		if e.Time.Source == "" {
			e.Time.Source = wire.TimeReceived
		}
		if e.Time.Precision == "" {
			e.Time.Precision = wire.PrecisionNanoseconds
		}
		if _, err := decode.New(e); !errors.Is(err, decode.ErrChannel) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestErrorsOfOthers: what emit and the stream return is returned as it is.
func TestErrorsOfOthers(t *testing.T) {
	enough, broken := errors.New("enough"), errors.New("broken")
	vector := wire.ParameterEntry{Name: "x", Type: wire.ParameterDouble, Components: []string{"H"}}
	for name, c := range map[string]struct {
		channel wire.ChannelEntry
		payload string
	}{
		"CSV": {csvChannel(",", []int{1}, column(double("x"), 2)), "2020,1\n2021,2\n2022,3\n"},
		"JSON": {wire.ChannelEntry{Payload: wire.PayloadEntry{Type: wire.PayloadJSON}, Parameters: []wire.ParameterEntry{path(double("x"), "/x")},
			Time: wire.ChannelTimeEntry{Source: wire.TimePayload, Format: wire.TimeISO8601, Path: "/t"}}, `[{"t":"2020","x":1},{"t":"2021","x":1},{"t":"2022","x":1}]`},
		"Binary": {wire.ChannelEntry{Payload: wire.PayloadEntry{Type: wire.PayloadBinary, Record: 1}, Parameters: []wire.ParameterEntry{offset(double("x"), 0, wire.EncodingInt8)},
			Time: wire.ChannelTimeEntry{Source: wire.TimePayload, Format: wire.TimeUnixSeconds, Encoding: wire.EncodingInt8}}, "abc"},
		"IAGA2002": {wire.ChannelEntry{Payload: wire.PayloadEntry{Type: wire.PayloadIAGA2002, Reported: "H"}, Parameters: []wire.ParameterEntry{vector},
			Time: wire.ChannelTimeEntry{Source: wire.TimePayload}}, "2020-01-01 00:00:00.000 001 1.0\n2020-01-01 00:00:01.000 001 1.0\n2020-01-01 00:00:02.000 001 1.0\n"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDecoder(t, c.channel)
			seen := 0
			second := func(decode.Sample) error {
				if seen++; seen == 2 {
					return enough
				}
				return nil
			}
			if err := d.Decode([]byte(c.payload), received, second); !errors.Is(err, enough) || seen != 2 {
				t.Errorf("%v after %d", err, seen)
			}
			seen = 0
			if err := d.Read(strings.NewReader(c.payload), received, second); !errors.Is(err, enough) || seen != 2 {
				t.Errorf("a stream: %v after %d", err, seen)
			}
			nothing := func(decode.Sample) error { return nil }
			if err := d.Read(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(c.payload))), received, nothing); !errors.Is(err, iotest.ErrTimeout) {
				t.Errorf("a stream that breaks: %v", err)
			}
			if err := d.Read(iotest.ErrReader(broken), received, nothing); !errors.Is(err, broken) {
				t.Errorf("a broken stream: %v", err)
			}
			if got, wrong := all(t, d, []byte(c.payload)); len(got) != 3 || wrong != "" {
				t.Errorf("afterwards: %v, %s", got, wrong)
			}
		})
	}
}

// TestAllocations: a datagram costs no memory.
func TestAllocations(t *testing.T) {
	nothing := func(decode.Sample) error { return nil }
	for name, c := range map[string]struct {
		channel wire.ChannelEntry
		payload []byte
		most    float64
	}{
		"CSV":   {csvChannel(",", []int{1}, column(double("x"), 2)), []byte("2020-01-01T00:00:00.000Z,20826.85\n"), 0},
		"OASIS": {oasisChannel("", offset(double("x"), 0, wire.EncodingUInt64)), probePacket(t), 0},
		"JSON": {wire.ChannelEntry{Payload: wire.PayloadEntry{Type: wire.PayloadJSON}, Parameters: []wire.ParameterEntry{path(double("x"), "/x")}},
			[]byte(`{"t":"2020-01-01T00:00:00Z","x":20826.85}`), 1},
	} {
		d := newDecoder(t, c.channel)
		decodeIt := func() {
			if err := d.Decode(c.payload, received, nothing); err != nil {
				t.Fatal(err)
			}
		}
		decodeIt()
		if n := testing.AllocsPerRun(100, decodeIt); n > c.most {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestParseTime(t *testing.T) {
	for text, want := range map[string]string{
		"2020":                           "2020-01-01T00:00:00Z",
		"2020Z":                          "2020-01-01T00:00:00Z",
		"2020-02":                        "2020-02-01T00:00:00Z",
		"2020-060":                       "2020-02-29T00:00:00Z",
		"2020-366Z":                      "2020-12-31T00:00:00Z",
		"2020-060T12Z":                   "2020-02-29T12:00:00Z",
		"2020-02-29t12:00:00.5z":         "2020-02-29T12:00:00.5Z",
		"2020-02-29T24:00":               "2020-03-01T00:00:00Z",
		"2016-12-31T23:59:60.5Z":         "2017-01-01T00:00:00.5Z",
		"2020-01-01T00:00:00.":           "2020-01-01T00:00:00Z",
		"2020-01-01T00:00:00.1234567899": "2020-01-01T00:00:00.123456789Z",
		"0001-01-01T00:00:00Z":           "0001-01-01T00:00:00Z",
		"2020-01-01T00:00-0130":          "2020-01-01T01:30:00Z",
	} {
		got, ok := decode.ParseTime([]byte(text))
		if !ok || got.Format(time.RFC3339Nano) != want {
			t.Errorf("%s: %v %v, want %s", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "20", "2020-", "2020-1", "2020-13", "2020-00", "2020-000", "2019-366", "2020-02-30", "2020-02-", "2020-02T00", "2020T00",
		"2020-01-01T", "2020-01-01T25", "2020-01-01T24:01", "2020-01-01T24:00:01", "2020-01-01T1:00", "2020-01-01T00:60", "2020-01-01T00:00:61", "2020-01-01T00:00:00+1",
		"2020-01-01T00:00:00+24:00", "2020-01-01ZZ", " 2020", "2020-01-01T00:00:00zz", "2020-01-01tt00", "-2020", "2020-01-01T-1"} {
		if got, ok := decode.ParseTime([]byte(text)); ok {
			t.Errorf("%q is %v", text, got)
		}
	}
}
