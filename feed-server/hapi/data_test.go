// SPDX-License-Identifier: Apache-2.0

package hapi_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
)

// second is the i'th second of the tests' data.
func second(i int) time.Time { return start.Add(time.Duration(i) * time.Second) }

// newMagnetometer has six seconds of data in three segments: the second one came before
// the first was cut, and repeats and completes it; the third is another channel's.
func newMagnetometer(t testing.TB) *lab {
	l := newLab(t, magnetometer())
	l.segment(t, "mag", "raw", 1, sample(second(0), "1.5,2,3,7,on"), sample(second(2), "1,2,,,"), sample(second(1), `-1e-7,20826.85,-0.01,-3,"a,""b"`), datagram{second(2), "no sample"})
	l.segment(t, "mag", "raw", 5, sample(second(2), "9,,8,5,"), sample(second(4), "1,1,1,1,x"), sample(second(3), "NaN,1,1,1,x"))
	l.segment(t, "mag", "other", 8, sample(second(3).Add(1), "7,7,7,7,x"))
	l.object(t, "mag", "", second(3), []byte("an object is no payload of the channel"))
	return l
}

const wantCSV = `2026-11-20T22:00:00.000Z,1.5,2,3,7,on
2026-11-20T22:00:01.000Z,-1e-07,20826.85,-0.01,-3,"a,""b"
2026-11-20T22:00:02.000Z,9,2,8,5,?
2026-11-20T22:00:03.000Z,-1e+31,1,1,1,x
2026-11-20T22:00:04.000Z,1,1,1,1,x
`

func TestCSV(t *testing.T) {
	l := newMagnetometer(t)
	answer, body := l.get(t, "/data", between("mag/field", start, start.Add(time.Minute)))
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/csv; charset=utf-8" {
		t.Fatalf("%s %v\n%s", answer.Status, answer.Header, body)
	}
	if diff := cmp.Diff(wantCSV, string(body)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Late samples are merged in; samples of a duplicate segment are not served.
	l.segment(t, "mag", "raw", 100, datagram{second(1800), second(1).Add(500*time.Millisecond).Format("2006-01-02T15:04:05.000Z,") + "0,0,0,0,late"})
	l.segment(t, "mag", "raw", 101, sample(second(2), "0,0,0,0,gone")).State = wire.StateDuplicate
	_, body = l.get(t, "/data", between("mag/field", second(1), second(3)))
	lines := strings.SplitAfter(wantCSV, "\n")
	if diff := cmp.Diff(lines[1]+"2026-11-20T22:00:01.500Z,0,0,0,0,late\n"+lines[2], string(body)); diff != "" {
		t.Errorf("from second 1 to 3 (-want +got):\n%s", diff)
	}
	// The same by the names of HAPI 2, by day of the year, and some parameters.
	_, body = l.get(t, "/data", "id=mag/field&time.min=2026-324T22:00:03Z&time.max=2026-324T22:01&parameters=Time,n")
	if diff := cmp.Diff("2026-11-20T22:00:03.000Z,1\n2026-11-20T22:00:04.000Z,1\n", string(body)); diff != "" {
		t.Errorf("one parameter (-want +got):\n%s", diff)
	}
	_, body = l.get(t, "/data", between("mag/field", second(4), second(5), "parameters", "Time"))
	if diff := cmp.Diff("2026-11-20T22:00:04.000Z\n", string(body)); diff != "" {
		t.Errorf("the time alone (-want +got):\n%s", diff)
	}
}

func TestBinary(t *testing.T) {
	l := newMagnetometer(t)
	answer, body := l.get(t, "/data", between("mag/field", second(1), second(3), "format", "binary"))
	if answer.Header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("%v", answer.Header)
	}
	var want bytes.Buffer
	for _, r := range []struct {
		at   string
		b    [3]float64
		n    int32
		mode string
	}{{"2026-11-20T22:00:01.000Z", [3]float64{-1e-7, 20826.85, -0.01}, -3, "a,\"b\x00\x00"}, {"2026-11-20T22:00:02.000Z", [3]float64{9, 2, 8}, 5, "?\x00\x00\x00\x00\x00"}} {
		want.WriteString(r.at)
		_ = binary.Write(&want, binary.LittleEndian, r.b)
		_ = binary.Write(&want, binary.LittleEndian, r.n)
		want.WriteString(r.mode)
	}
	if diff := cmp.Diff(want.Bytes(), body); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, body = l.get(t, "/data", between("mag/field", second(4), second(5), "format", "binary", "parameters", "n", "include", "header"))
	header, rest, _ := bytes.Cut(body, []byte("\n"))
	if !bytes.HasPrefix(header, []byte(`#{"HAPI":"3.3","status":{"code":1200,"message":"OK"},"format":"binary"`)) || string(rest) != "2026-11-20T22:00:04.000Z\x01\x00\x00\x00" {
		t.Errorf("%q", body)
	}
}

func TestJSON(t *testing.T) {
	l := newMagnetometer(t)
	l.segment(t, "mag", "raw", 100, sample(second(10), "1,2,3,4,\x01é"))
	_, body := l.get(t, "/data", between("mag/field", second(3), second(20), "format", "json"))
	var got struct {
		Status struct{ Code int }
		Format string
		Data   []json.RawMessage
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("%v\n%s", err, body)
	}
	want := `["2026-11-20T22:00:03.000Z",[-1e+31,1,1],1,"x"] ["2026-11-20T22:00:04.000Z",[1,1,1],1,"x"] ["2026-11-20T22:00:10.000Z",[1,2,3],4,"\u0001é"]`
	if got.Status.Code != 1200 || got.Format != "json" || strings.Join(strings.Fields(fmt.Sprintf("%s", got.Data)), " ") != "["+want+"]" {
		t.Errorf("%s", body)
	}
}

// TestNoData: an empty time range is no error, and its header states it.
func TestNoData(t *testing.T) {
	l := newMagnetometer(t)
	answer, body := l.get(t, "/data", between("mag/field", second(0).Add(1e6), second(0).Add(2e6)))
	if answer.StatusCode != http.StatusOK || len(body) > 0 {
		t.Errorf("%s %q", answer.Status, body)
	}
	for _, format := range []string{"csv", "json"} {
		_, body = l.get(t, "/data", between("mag/field", second(0).Add(1e6), second(0).Add(2e6), "include", "header", "format", format))
		var got struct {
			Status struct{ Code int }
			Data   []any
		}
		if err := json.Unmarshal(bytes.TrimPrefix(body, []byte("#")), &got); err != nil || got.Status.Code != 1201 || len(got.Data) > 0 {
			t.Errorf("%v %s", err, body)
		}
	}
}

// TestObjects: files of a day; one came late, and one completes another.
func TestObjects(t *testing.T) {
	e := wire.InstrumentEntry{Instrument: "boulder", Access: public, Channels: []wire.ChannelEntry{{Name: "minutes", Suffix: ".min",
		Payload: wire.PayloadEntry{Type: wire.PayloadIAGA2002},
		Time:    wire.ChannelTimeEntry{Source: wire.TimePayload, Precision: wire.PrecisionSeconds, Location: "center", MaxDelayMillis: (48 * time.Hour).Milliseconds()},
		Parameters: []wire.ParameterEntry{{Name: "H", Units: "nT", Type: wire.ParameterDouble, Fill: ptr("99999.00"), Components: []string{"H"}},
			{Name: "Z", Units: "nT", Type: wire.ParameterDouble, Fill: ptr("99999.00"), Components: []string{"Z"}}}}}}
	l := newLab(t, e)
	file := func(day time.Time, lines ...string) []byte {
		text := " Format                 IAGA-2002                                    |\nDATE       TIME         DOY     BOUH      BOUD      BOUZ      BOUF   |\n"
		for i, line := range lines {
			at := day.Add(time.Duration(i) * time.Minute)
			text += fmt.Sprintf("%s %03d     %s\n", at.Format("2006-01-02 15:04:05.000"), at.YearDay(), line)
		}
		return []byte(text)
	}
	day := start.Truncate(24 * time.Hour)
	l.object(t, "boulder", "b.min", day.Add(24*time.Hour), file(day, "3.00 0.00 30.00 0.00", "4.00 0.00 40.00 0.00"))
	l.object(t, "boulder", "a.min", day.Add(23*time.Hour+30*time.Minute), file(day.Add(-24*time.Hour), "1.00 0.00 10.00 0.00", "99999.00 0.00 88888.00 0.00"))
	l.object(t, "boulder", "a2.min", day.Add(23*time.Hour+45*time.Minute), file(day.Add(-24*time.Hour).Add(time.Minute), "2.00 0.00 99999.00 0.00"))
	l.object(t, "boulder", "readme.txt", day, []byte("2026-11-20 00:00:00.000 324 7 7 7 7"))
	_, body := l.get(t, "/data", between("boulder/minutes", day.Add(-24*time.Hour), day.Add(time.Hour)))
	want := "2026-11-19T00:00:00Z,1,10\n2026-11-19T00:01:00Z,2,99999\n2026-11-20T00:00:00Z,3,30\n2026-11-20T00:01:00Z,4,40\n"
	if diff := cmp.Diff(want, string(body)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Objects whose names have times beyond nanoseconds in 64 bits hide nothing of the others.
func TestTimesOutOfRange(t *testing.T) {
	e := wire.InstrumentEntry{Instrument: "boulder", Access: public, Channels: []wire.ChannelEntry{{Name: "x", Suffix: ".csv",
		Payload:    wire.PayloadEntry{Type: wire.PayloadCSV, Separator: ","},
		Time:       wire.ChannelTimeEntry{Source: wire.TimeReceived, Precision: wire.PrecisionSeconds, Location: "center"},
		Parameters: []wire.ParameterEntry{{Name: "x", Type: wire.ParameterDouble, Column: 1}}}}}
	l := newLab(t, e)
	for name, at := range map[string]time.Time{
		"16010101_000000.csv": time.Date(1601, 1, 1, 0, 0, 0, 0, time.UTC),
		"20261120_220000.csv": start,
		"99991231_235959.csv": time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	} {
		key := wire.NamedKey(site, "boulder", name, 1)
		payload := []byte("1.5\n")
		l.put(t, "boulder", wire.Record{ID: key, Key: key, Name: name, Size: int64(len(payload)), Digest: wire.Digest(sha256.Sum256(payload)), State: wire.StateCurrent,
			ObservedFrom: &at, ObservedTo: &at, ReceivedAt: start.Add(2 * time.Hour), TimeSource: wire.TimeSourceName, Gateway: wire.ImportWriter}, payload)
	}
	answer, body := l.get(t, "/data", between("boulder/x", start, start.Add(time.Hour)))
	if answer.StatusCode != http.StatusOK || string(body) != start.Format("2006-01-02T15:04:05Z")+",1.5\n" {
		t.Errorf("%s %s", answer.Status, body)
	}
}

// TestReplayed: data from months ago, which was decoded as it was archived. A time from years ago comes from a wrong clock: its
// samples are counted, and never served.
func TestReplayed(t *testing.T) {
	l := newLab(t, magnetometer())
	old := start.Truncate(24*time.Hour).AddDate(0, 0, -300)
	for i := range 3 {
		at := old.Add(time.Duration(i) * time.Hour)
		r := l.segment(t, "mag", "raw", uint64(i+1), datagram{second(i), at.Format("2006-01-02T15:04:05.000Z,") + "1,2,3,4,x"})
		r.ObservedFrom, r.ObservedTo, r.TimeSource = &at, &at, wire.TimeSourcePayload
	}
	rolled := start.AddDate(0, 0, -7*1024)
	r := l.segment(t, "mag", "raw", 4, datagram{second(3), rolled.Format("2006-01-02T15:04:05.000Z,") + "1,2,3,5,x"})
	r.ObservedFrom, r.ObservedTo, r.TimeSource = &rolled, &rolled, wire.TimeSourcePayload
	_, body := l.get(t, "/data", between("mag/field", old.Add(time.Hour), old.Add(24*time.Hour), "parameters", "n"))
	want := old.Add(time.Hour).Format("2006-01-02T15:04:05.000Z,") + "4\n" + old.Add(2*time.Hour).Format("2006-01-02T15:04:05.000Z,") + "4\n"
	if diff := cmp.Diff(want, string(body)); diff != "" || l.opened.Load() != 2 {
		t.Errorf("%d opened (-want +got):\n%s", l.opened.Load(), diff)
	}
}

// TestRolledOver: a segment that was archived with a span which is not believed, because of one of its datagrams, has the
// samples of the others.
func TestRolledOver(t *testing.T) {
	l := newLab(t, magnetometer())
	rolled, last := second(0).AddDate(0, 0, -7*1024), second(20)
	r := l.segment(t, "mag", "raw", 1, datagram{second(0), rolled.Format("2006-01-02T15:04:05.000Z,") + "1,2,3,4,x"}, sample(second(1), "1,2,3,5,x"), sample(last, "1,2,3,6,x"))
	r.ObservedFrom, r.ObservedTo, r.TimeSource = &rolled, &last, wire.TimeSourcePayload
	_, body := l.get(t, "/data", between("mag/field", second(0), second(30), "parameters", "n"))
	want := second(1).Format("2006-01-02T15:04:05.000Z,") + "5\n" + last.Format("2006-01-02T15:04:05.000Z,") + "6\n"
	if diff := cmp.Diff(want, string(body)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDamaged: what cannot be had is no end of data. Before anything was sent it is an
// error, afterwards the answer is broken off.
func TestDamaged(t *testing.T) {
	l := newMagnetometer(t)
	l.segment(t, "mag", "raw", 100, sample(second(3600*3), "1,2,3,4,x")).Digest[0]++
	answer, body := l.get(t, "/data", between("mag/field", second(3600*3), second(3600*4)))
	if answer.StatusCode != http.StatusInternalServerError || !bytes.Contains(body, []byte(`"code":1501`)) {
		t.Errorf("%s %s", answer.Status, body)
	}
	for i := range uint64(200) {
		l.segment(t, "mag", "raw", 1000+i, sample(second(10+int(i)), strings.Repeat("1", 300)+",2,3,4,x"))
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, l.url+"/data?"+between("mag/field", start, second(3600*4)), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err = http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var got bytes.Buffer
	if _, err := got.ReadFrom(answer.Body); err == nil {
		t.Errorf("an answer of %d bytes that is not whole ends as if it were", got.Len())
	}
	if answer.StatusCode != http.StatusOK || !strings.HasPrefix(got.String(), wantCSV) {
		t.Errorf("%s %.300q", answer.Status, got.String())
	}
}

// TestConditional: a client that has an answer gets 304, and no object is opened.
func TestConditional(t *testing.T) {
	l := newMagnetometer(t)
	query := between("mag/field", start, start.Add(time.Minute))
	for _, c := range [][2]string{{"/data", query}, {"/info", "dataset=mag/field"}, {"/catalog", ""}, {"/about", ""}, {"/capabilities", ""}, {"", ""}} {
		answer, _ := l.get(t, c[0], c[1])
		tag := answer.Header.Get("ETag")
		opened := l.opened.Load()
		answer, body := l.get(t, c[0], c[1], "If-None-Match", `"x", `+tag)
		if answer.StatusCode != http.StatusNotModified || len(body) > 0 || l.opened.Load() != opened || answer.Header.Get("ETag") != tag {
			t.Errorf("%s: %s, %d bytes, tag %s", c[0], answer.Status, len(body), tag)
		}
		if answer, _ = l.get(t, c[0], c[1], "If-None-Match", `"x"`); answer.StatusCode != http.StatusOK {
			t.Errorf("%s with another tag: %s", c[0], answer.Status)
		}
	}
	answer, _ := l.get(t, "/data", query)
	was := answer.Header.Get("ETag")
	for name, other := range map[string]string{
		"another time":     between("mag/field", start, start.Add(time.Minute+1)),
		"another format":   query + "&format=json",
		"other parameters": query + "&parameters=B",
		"the time alone":   query + "&parameters=Time",
		"with a header":    query + "&include=header",
	} {
		if answer, _ := l.get(t, "/data", other); answer.Header.Get("ETag") == was {
			t.Errorf("%s has the same tag", name)
		}
	}
	l.segment(t, "mag", "raw", 100, sample(second(10), "1,2,3,4,x"))
	if answer, _ = l.get(t, "/data", query, "If-None-Match", was); answer.StatusCode != http.StatusOK {
		t.Errorf("after something new came: %s", answer.Status)
	}
}

// TestHead: HEAD has the headers of GET, and no object is read for it.
func TestHead(t *testing.T) {
	l := newMagnetometer(t)
	target := l.url + "/data?" + between("mag/field", start, start.Add(time.Minute))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodHead, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK || answer.Header.Get("ETag") == "" || l.opened.Load() > 0 {
		t.Errorf("%s %v, %d opened", answer.Status, answer.Header, l.opened.Load())
	}
}

// TestSpecialNumbers: what a double can be is written so that it reads the same.
func TestSpecialNumbers(t *testing.T) {
	e := magnetometer()
	e.Channels[0].Payload = wire.PayloadEntry{Type: wire.PayloadBinary, ByteOrder: wire.LittleEndian}
	e.Channels[0].Time = wire.ChannelTimeEntry{Source: wire.TimeReceived, Precision: wire.PrecisionNanoseconds, Location: "other"}
	e.Channels[0].Parameters = []wire.ParameterEntry{{Name: "x", Type: wire.ParameterDouble, Fill: ptr("NaN"), Encoding: wire.EncodingFloat64}}
	l := newLab(t, e)
	numbers := []float64{0, 1, -1, 0.1, 0.25, -0.0001, 1e-5, 123456789.1234, 99999999999.9999, 1e11, 1e22, math.MaxFloat64, math.SmallestNonzeroFloat64,
		math.Pi, math.Inf(1), math.NaN(), 20826.85, 1.0 / 3, 5e-5, math.Copysign(0, -1), 0.30000000000000004}
	var datagrams []datagram
	for i, f := range numbers {
		datagrams = append(datagrams, datagram{start.Add(time.Duration(i)), string(binary.LittleEndian.AppendUint64(nil, math.Float64bits(f)))})
	}
	l.segment(t, "mag", "raw", 1, datagrams...)
	_, body := l.get(t, "/data", between("mag/field", start, start.Add(time.Second)))
	lines := strings.Split(strings.TrimSpace(string(body)), "\n")
	if len(lines) != len(numbers) {
		t.Fatalf("%s", body)
	}
	for i, f := range numbers {
		at, text, _ := strings.Cut(lines[i], ",")
		got, err := strconv.ParseFloat(text, 64)
		if want := start.Add(time.Duration(i)).Format("2006-01-02T15:04:05.000000000Z"); at != want {
			t.Errorf("%v at %s, want %s", f, at, want)
		}
		if math.IsInf(f, 0) { // there is no such number: it is missing
			f = math.NaN()
		}
		if err != nil || math.Float64bits(got) != math.Float64bits(f) && !(math.IsNaN(got) && math.IsNaN(f)) {
			t.Errorf("%v is written %s", f, text)
		}
		if shortest := strconv.FormatFloat(f, 'f', -1, 64); len(text) > len(shortest) {
			t.Errorf("%v is written %s, and %s would do", f, text, shortest)
		}
	}
	_, body = l.get(t, "/data", between("mag/field", start, start.Add(time.Second), "format", "json"))
	if !json.Valid(body) || !bytes.Contains(body, []byte(",null]")) {
		t.Errorf("%s", body)
	}
}
