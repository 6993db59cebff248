// SPDX-License-Identifier: Apache-2.0

package decode_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/wire"
)

// Devices of the field write text that is not of UTF-8, byte order marks, ends of lines of all kinds, numbers with
// exponents and decimal commas, leap seconds, and columns that overflowed.
func TestFieldText(t *testing.T) {
	t.Parallel()
	note := wire.ParameterEntry{Name: "note", Type: wire.ParameterString, Length: 8}
	noted := csvChannel(",", []int{1}, column(double("x"), 2), column(note, 3))
	two := csvChannel(",", []int{1}, column(double("x"), 2), column(double("z"), 3))
	strict := csvChannel(",", []int{1}, column(wire.ParameterEntry{Name: "x", Type: wire.ParameterDouble}, 2), column(double("z"), 3))
	count := wire.ParameterEntry{Name: "n", Type: wire.ParameterInteger, Fill: ptr("-1")}
	counts := csvChannel(",", []int{1}, column(count, 2))
	semicolons := csvChannel(";", []int{1}, column(double("x"), 2), column(note, 3))
	semicolons.Payload.DecimalComma = true
	tabs := csvChannel("\t", []int{1}, column(double("x"), 2), column(note, 3))
	tabs.Payload.DecimalComma = true
	points := csvChannel("\t", []int{1}, column(double("x"), 2), column(note, 3))
	unix := csvChannel(";", []int{1}, column(double("x"), 2))
	unix.Time.Format, unix.Payload.DecimalComma = wire.TimeUnixSeconds, true
	blank := csvChannel(" ", []int{1}, column(double("x"), 2))
	object := func(format string, p ...wire.ParameterEntry) wire.ChannelEntry {
		return wire.ChannelEntry{Payload: wire.PayloadEntry{Type: wire.PayloadJSON}, Parameters: p,
			Time: wire.ChannelTimeEntry{Source: wire.TimePayload, Format: format, Path: "/t"}}
	}
	iaga := wire.ChannelEntry{Payload: wire.PayloadEntry{Type: wire.PayloadIAGA2002, Reported: "HZ"}, Time: wire.ChannelTimeEntry{Source: wire.TimePayload},
		Parameters: []wire.ParameterEntry{{Name: "h", Type: wire.ParameterDouble, Components: []string{"H"}, Fill: ptr("99999")}, {Name: "z", Type: wire.ParameterDouble, Components: []string{"Z"}, Fill: ptr("99999")}}}
	fixed := wire.ChannelEntry{Payload: wire.PayloadEntry{Type: wire.PayloadBinary, Record: 12},
		Parameters: []wire.ParameterEntry{offset(note, 0, wire.EncodingText), offset(count, 8, wire.EncodingUInt32)}}
	for _, c := range []payloadTest{
		{"Latin-1 in CSV", noted, "2026-11-27T01:18:00Z,1.5,25\xb0C\n2026-11-27T01:18:01Z,2.5,b\n", []string{`2026-11-27T01:18:00Z 1.5 "25�C"`, `2026-11-27T01:18:01Z 2.5 "b"`}, ""},
		{"what stands for it is cut between characters", noted, "2026,1,\xb0\xb0abc\xb0\n", []string{`2026-01-01T00:00:00Z 1 "�abc"`}, ""},
		{"Latin-1 in JSON", object(wire.TimeISO8601, path(note, "/a")), "{\"t\":\"2026\",\"a\":\"25\xb0C\"}{\"t\":\"2026\",\"a\":\"\\t\xb0\"}", []string{`2026-01-01T00:00:00Z "25�C"`, `2026-01-01T00:00:00Z "\t�"`}, ""},
		{"Latin-1 in binary", fixed, "25\xb0C\x00\x00\x00\x00\x07\x00\x00\x00", []string{`2026-11-21T12:00:00.123456789Z "25�C" 7`}, ""},
		{"an integer that overflows in binary", fixed, "ab\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff", []string{`2026-11-21T12:00:00.123456789Z "ab" -1`}, "1 undecodable, the first: parameter n: the number is too large"},
		{"a byte order mark before CSV", noted, "\xef\xbb\xbf2026-11-27T01:01:00Z,1.5,a\n", []string{`2026-11-27T01:01:00Z 1.5 "a"`}, ""},
		{"a byte order mark before JSON", object(wire.TimeISO8601, path(double("x"), "/x")), "\xef\xbb\xbf{\"t\":\"2026\",\"x\":1}", []string{"2026-01-01T00:00:00Z 1"}, ""},
		{"a byte order mark before IAGA-2002", iaga, "\xef\xbb\xbf2026-06-01 00:30:00.000 152 1.00 2.00\n", []string{"2026-06-01T00:30:00Z 1 2"}, ""},
		{"lines that end with CR", noted, "2026,1,a\r2027,2,b\r", []string{`2026-01-01T00:00:00Z 1 "a"`, `2027-01-01T00:00:00Z 2 "b"`}, ""},
		{"all ends of lines", two, "2026,1\n2027,2\r\n2028,3\r2029,4\n\r2030,5", []string{"2026-01-01T00:00:00Z 1 NaN", "2027-01-01T00:00:00Z 2 NaN", "2028-01-01T00:00:00Z 3 NaN", "2029-01-01T00:00:00Z 4 NaN", "2030-01-01T00:00:00Z 5 NaN"}, ""},
		{"IAGA-2002 with CR", iaga, "2026-06-01 00:30:00.000 152 1.00 2.00\r2026-06-01 00:31:00.000 152 3.00 4.00\r", []string{"2026-06-01T00:30:00Z 1 2", "2026-06-01T00:31:00Z 3 4"}, ""},
		{"a time with an exponent", object(wire.TimeUnixSeconds, path(double("x"), "/x")), `{"t":1.795846725e9,"x":1.5}{"t":17958467250E-1,"x":2}{"t":1795846725123456789e-9,"x":3}{"t":-15e-1,"x":4}{"t":0e5,"x":5}`,
			[]string{"2026-11-28T06:18:45Z 1.5", "2026-11-28T06:18:45Z 2", "2026-11-28T06:18:45.123456789Z 3", "1969-12-31T23:59:58.5Z 4", "1970-01-01T00:00:00Z 5"}, ""},
		{"a time with an exponent in CSV", unix, "1.795846725e+09;1\n1795846725,5;2\n1e;3\n1e400;4\n1e99;5\n", []string{"2026-11-28T06:18:45Z 1", "2026-11-28T06:18:45.5Z 2"}, "3 undecodable"},
		{"numbers that are none", blank, "2026 nAn\n2026 -INF\n2026 1.#QNAN\n2026 -1.#J\n2026 nan(0x1)\n2026 +Infinity\n", slices.Repeat([]string{"2026-01-01T00:00:00Z NaN"}, 6), ""},
		{"an integer that is none", counts, "2026,NaN\n", []string{"2026-01-01T00:00:00Z -1"}, ""},
		{"decimal commas", semicolons, "2026-01-01T00:00:00,5;1,25;a,b\n2026;-1,5e3;c\n2026;1.5;d\n", []string{`2026-01-01T00:00:00.5Z 1.25 "a,b"`, `2026-01-01T00:00:00Z -1500 "c"`, `2026-01-01T00:00:00Z 1.5 "d"`}, ""},
		{"decimal commas between tabs", tabs, "2026-01-01T00:00:00,5\t1,25\ta,b\n2026\t1.5\tc\n", []string{`2026-01-01T00:00:00.5Z 1.25 "a,b"`, `2026-01-01T00:00:00Z 1.5 "c"`}, ""},
		{"commas where none are declared", points, "2026\t1,25\ta\n", []string{`2026-01-01T00:00:00Z NaN "a"`}, "1 undecodable"},
		{"commas that are no decimal ones", semicolons, "2026;1,234.5;a\n2026;1,234,567;b\n", []string{`2026-01-01T00:00:00Z NaN "a"`, `2026-01-01T00:00:00Z NaN "b"`}, "2 undecodable"},
		{"a leap second", noted, "2026-12-31T23:59:59Z,1.5,a\n2026-12-31T23:59:60Z,2.5,b\n2027-01-01T00:00:00Z,4.5,c\n", []string{`2026-12-31T23:59:59Z 1.5 "a"`, `2027-01-01T00:00:00Z 4.5 "c"`}, "1 undecodable, the first: line 2: time: the time is in a leap second"},
		{"a leap second in a zone", noted, "2027-01-01T00:59:60.5+01:00,2.5,b\n", nil, "leap second"},
		{"a leap second in a zone of a half hour", noted, "2026-07-01T00:00:00Z,2.5,a\n2026-07-01T05:29:60+05:30,9.5,b\n", []string{`2026-07-01T00:00:00Z 2.5 "a"`}, "1 undecodable, the first: line 2: time: the time is in a leap second"},
		{"leap seconds in zones of quarters", noted, "2026-07-01T05:44:60+05:45,9.5,a\n2026-06-30T20:29:60.5-0330,9.5,b\n2026-07-01T09:29:60+09:30,9.5,c\n", nil, "3 undecodable"},
		{"T and Z in lower case", noted, "2026-11-27t12:30:00z,2.5,b\n", []string{`2026-11-27T12:30:00Z 2.5 "b"`}, ""},
		{"byte order marks of files that were joined, CSV", noted, "2026-11-10T05:02:01Z,1.5,a\n\xef\xbb\xbf2026-11-10T05:02:02Z,2.5,b\r\n\xef\xbb\xbf\xef\xbb\xbf2026-11-10T05:02:03Z,3.5,c\n\xef\xbb\xbf", []string{`2026-11-10T05:02:01Z 1.5 "a"`, `2026-11-10T05:02:02Z 2.5 "b"`, `2026-11-10T05:02:03Z 3.5 "c"`}, ""},
		{"byte order marks of files that were joined, IAGA-2002", iaga, "2026-06-01 00:30:00.000 152 1.00 2.00\n\xef\xbb\xbf2026-06-01 00:31:00.000 152 3.00 4.00\n", []string{"2026-06-01T00:30:00Z 1 2", "2026-06-01T00:31:00Z 3 4"}, ""},
		{"second 60 of another minute", noted, "2026-11-27T12:30:60Z,2.5,b\n", []string{`2026-11-27T12:31:00Z 2.5 "b"`}, ""},
		{"an IAGA-2002 leap second", iaga, "2026-12-31 23:59:60.000 365 1.00 2.00\n", nil, "leap second"},
		{"an overflowed column", two, "2026,*********,47000.5\n2027,1e999,2\n2028,1,2\n", []string{"2026-01-01T00:00:00Z NaN 47000.5", "2027-01-01T00:00:00Z NaN 2", "2028-01-01T00:00:00Z 1 2"}, "2 undecodable, the first: parameter x: not a number"},
		{"an overflowed column without a fill", strict, "2026,*********,47000.5\n", nil, "1 undecodable"},
		{"two overflowed columns", two, "2026,***,***\nno,***,***\n", nil, "2 undecodable"},
		{"an overflowed element", iaga, "2026-06-01 00:30:00.000 152 ********* 2.00\n", []string{"2026-06-01T00:30:00Z 99999 2"}, "1 undecodable"},
		{"a value of JSON that is none", object(wire.TimeISO8601, path(double("x"), "/x"), path(double("z"), "/z")), `{"t":"2026","x":{},"z":1}{"t":"2027","x":"no","z":[2]}`, []string{"2026-01-01T00:00:00Z NaN 1"}, "2 undecodable"},
	} {
		c.run(t)
	}
}

// A last line without its end is not read where it may have been cut off.
func TestCutOff(t *testing.T) {
	t.Parallel()
	iaga := wire.ChannelEntry{Payload: wire.PayloadEntry{Type: wire.PayloadIAGA2002, Reported: "HZ"}, Time: wire.ChannelTimeEntry{Source: wire.TimePayload},
		Parameters: []wire.ParameterEntry{{Name: "z", Type: wire.ParameterDouble, Components: []string{"Z"}, Fill: ptr("99999")}}}
	lines := "2026-06-01 00:30:00.000 152     20000.00  47000.00\n2026-06-01 00:31:00.000 152     20000.00  4700"
	first, second := []string{"2026-06-01T00:30:00Z 47000"}, "2026-06-01T00:31:00Z 4700"
	columns := csvChannel(",", []int{1}, column(double("z"), 2))
	rows := "2026-06-01T00:30:00Z,47000\n2026-06-01T00:31:00Z,4700"
	for name, c := range map[string]struct {
		channel wire.ChannelEntry
		text    string
		r       wire.Record
		want    []string
		bad     int
	}{
		"IAGA-2002":                        {iaga, lines, wire.Record{Completeness: wire.CompletenessVerified}, first, 1},
		"IAGA-2002, unverified":            {iaga, lines, wire.Record{Completeness: wire.CompletenessUnverified}, first, 1},
		"IAGA-2002, with its end":          {iaga, lines + "\r", wire.Record{Completeness: wire.CompletenessUnverified}, append(first, second), 0},
		"IAGA-2002, whole all the same":    {iaga, lines + ".00", wire.Record{Completeness: wire.CompletenessVerified}, append(first, second), 0},
		"IAGA-2002, a decimal is missing":  {iaga, lines + ".0", wire.Record{Completeness: wire.CompletenessVerified}, first, 1},
		"IAGA-2002, an element is missing": {iaga, strings.TrimSuffix(lines, "  4700"), wire.Record{Completeness: wire.CompletenessVerified}, first, 1},
		"IAGA-2002, whole and unverified":  {iaga, lines + ".00", wire.Record{Completeness: wire.CompletenessUnverified}, first, 1},
		"IAGA-2002, framed by lines":       {iaga, lines, wire.Record{Completeness: wire.CompletenessVerified, Framing: wire.FramingLines}, append(first, second), 0},
		"CSV, whose last end may be away":  {columns, rows, wire.Record{Completeness: wire.CompletenessVerified}, append(first, second), 0},
		"CSV, unverified":                  {columns, rows, wire.Record{Completeness: wire.CompletenessUnverified}, first, 1},
	} {
		d := newDecoder(t, c.channel)
		var got []string
		err := d.ReadObject(iotest.OneByteReader(strings.NewReader(c.text)), &c.r, time.Time{}, func(s decode.Sample) error { got = append(got, spell(d, s)); return nil })
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		bad := 0
		if u, is := errors.AsType[*decode.Undecodable](err); is {
			bad = u.Records
		}
		if bad != c.bad {
			t.Errorf("%s: %v", name, err)
		}
	}
}
