// SPDX-License-Identifier: Apache-2.0

package spaceweather

import (
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/operator/surge"
)

// Documents that SWPC has published are read in each of their shapes.
func TestSWPC(t *testing.T) {
	for _, c := range []struct {
		name     string
		quantity surge.Quantity
		body     string
		want     string
		refused  int
	}{
		{name: "Kp, objects", quantity: surge.Kp, body: kpObjects, want: "15:00+3h0m0s=2.33, 18:00+3h0m0s=4.67, 21:00+3h0m0s=7.33"},
		{name: "Kp, a table", quantity: surge.Kp, body: kpTable, want: "15:00+3h0m0s=2.33, 18:00+3h0m0s=4.67, 21:00+3h0m0s=7.33"},
		{name: "Kp, an estimate each minute", quantity: surge.Kp, want: "18:03+1m0s=2, 18:04+1m0s=6.33", body: `[{"time_tag":"2026-08-30T18:03:00","kp_index":2,"estimated_kp":2.0,"kp":"2Z"},
{"time_tag":"2026-08-30T18:04:00","kp_index":6,"estimated_kp":6.33,"kp":"6P"},{"time_tag":"2026-08-30T18:05:00","kp_index":null,"estimated_kp":null,"kp":null}]`},
		{name: "times with T and Z", quantity: surge.Kp, body: `[{"time_tag":"2026-08-30T18:00:00Z","Kp":"4.67"}]`, want: "18:00+3h0m0s=4.67"},
		{name: "a time with a zone", quantity: surge.Kp, body: `[{"time_tag":"2026-08-30T20:00:00+02:00","Kp":5}]`, want: "18:00+3h0m0s=5"},
		{name: "field, a table", quantity: surge.Bz, body: magTable, want: "22:27+1m0s=-11.2, 22:29+1m0s=-14.5"},
		{name: "speed, a table", quantity: surge.Speed, body: plasmaTable, want: "22:28+1m0s=576.9, 22:29+1m0s=601.5"},
		{name: "field: the spacecraft in operation, not the newest record", quantity: surge.Bz, body: magObjects, want: "22:26+1m0s=-11 SOLAR1, 22:28+1m0s=-12.25 SOLAR1"},
		{name: "speed: fill values of another spacecraft", quantity: surge.Speed, body: windObjects, want: "22:29+1m0s=612.9 SOLAR1"},
		{name: "none in operation: the one with the most records", quantity: surge.Bz, want: "22:26+1m0s=-11 SOLAR1, 22:28+1m0s=-12.25 SOLAR1",
			body: strings.ReplaceAll(magObjects, `"active":true`, `"active":false`)},
		{name: "a spacecraft that takes over", quantity: surge.Bz, want: "22:28+1m0s=2 ACE, 22:29+1m0s=-3 SOLAR1",
			body: `[{"time_tag":"2026-08-30T22:29:00","active":true,"source":"SOLAR1","bz_gsm":-3},{"time_tag":"2026-08-30T22:28:00","active":true,"source":"ACE","bz_gsm":2},
{"time_tag":"2026-08-30T22:28:00","active":false,"source":"SOLAR1","bz_gsm":-9}]`},
		{name: "fill values", quantity: surge.Bz, want: "22:29+1m0s=-1",
			body: `[{"time_tag":"2026-08-30T22:26:00","bz_gsm":-999.9},{"time_tag":"2026-08-30T22:27:00","bz_gsm":"-99999"},{"time_tag":"2026-08-30T22:28:00","bz_gsm":-1e31},{"time_tag":"2026-08-30T22:29:00","bz_gsm":-1}]`},
		{name: "values that cannot be", quantity: surge.Kp, want: "15:00+3h0m0s=3", refused: 5,
			body: `[{"time_tag":"2026-08-30T18:00:00","Kp":99},{"time_tag":"2026-08-30T18:00:00","Kp":"NaN"},{"time_tag":"2026-08-30T18:00:00","Kp":"Inf"},
{"time_tag":"2026-08-30T18:00:00","Kp":-1},{"time_tag":"2026-08-30T18:00:00","Kp":1e999},{"time_tag":"2026-08-30T15:00:00","Kp":3}]`},
		{name: "a field that cannot be", quantity: surge.Bz, want: "22:29+1m0s=-2", refused: 1, body: `[{"time_tag":"2026-08-30T22:28:00","bz_gsm":-1e6},{"time_tag":"2026-08-30T22:29:00","bz_gsm":-2}]`},
		{name: "times to come", quantity: surge.Kp, want: "21:00+3h0m0s=3", refused: 1, body: `[{"time_tag":"2026-08-31T00:00:00","Kp":8},{"time_tag":"2026-08-30T21:00:00","Kp":3}]`},
		{name: "a clock that is a little ahead", quantity: surge.Bz, want: "22:34+1m0s=-3", body: `[{"time_tag":"2026-08-30T22:34:30","bz_gsm":-3}]`},
		{name: "times twice and in no order: the last one counts", quantity: surge.Kp, want: "15:00+3h0m0s=3, 18:00+3h0m0s=5",
			body: `[{"time_tag":"2026-08-30T18:00:00","Kp":4},{"time_tag":"2026-08-30T15:00:00","Kp":3},{"time_tag":"2026-08-30T18:00:00","Kp":5}]`},
		{name: "records that cannot be read", quantity: surge.Kp, want: "18:00+3h0m0s=4", refused: 6,
			body: `[{"time_tag":"2026-08-30T18:00:00","Kp":4},{"time_tag":"soon","Kp":4},{"time_tag":"2026-08-30T18:00:00","Kp":"4-"},{"Kp":4},7,null,{"time_tag":"2026-08-30T18:00:00","Kp":[9]}]`},
		{name: "rows too short and too long", quantity: surge.Kp, want: "18:00+3h0m0s=4", refused: 1,
			body: `[["time_tag","Kp"],["2026-08-30 15:00:00"],["2026-08-30 18:00:00","4","5","6"]]`},
		{name: "a name that is none", quantity: surge.Bz, want: "22:29+1m0s=-2", body: `[{"time_tag":"2026-08-30T22:29:00","active":true,"source":"\u0007` + strings.Repeat("x", 99) + `","bz_gsm":-2}]`},
		{name: "old samples are told, too", quantity: surge.Kp, want: "18:00+3h0m0s=4", body: `[{"time_tag":"2024-06-18T18:00:00","Kp":4}]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer, err := parseSWPC([]byte(c.body), c.quantity, storm)
			if err != nil {
				t.Fatal(err)
			}
			samples := merged(nil, answer.Samples[c.quantity])
			inOrder(t, samples)
			if got := told(samples); got != c.want {
				t.Errorf("samples %s\nwant    %s", got, c.want)
			}
			if answer.Refused.Samples != c.refused || (c.refused > 0) != (answer.Refused.First != "") {
				t.Errorf("refused %+v, want %d", answer.Refused, c.refused)
			}
		})
	}
}

// A document that is no product of SWPC is an error that says so.
func TestSWPCErrors(t *testing.T) {
	for body, want := range map[string]string{
		``:     "is not JSON, or was cut off",
		`{`:    "is not JSON, or was cut off",
		`null`: "is an array without records",
		`[]`:   "is an array without records",
		`"Kp"`: "is not an array of records",
		`{"data":[{"time_tag":"2026-08-30T18:00:00","Kp":4}]}`: "is not an array of records",
		`[1,2,3]`: "has no record with time_tag and estimated_kp or Kp or kp",
		`[{"time":"2026-08-30T18:00:00","value":4}]`:         "has no record with time_tag and estimated_kp or Kp or kp",
		`[["time_tag","value"],["2026-08-30 18:00:00","4"]]`: "has no record with time_tag and estimated_kp or Kp or kp",
		`[[1,2],["2026-08-30 18:00:00","4"]]`:                "has no names of columns",
		`[["time_tag","Kp"]]`:                                "has no record with time_tag and estimated_kp or Kp or kp",
		`[{"time_tag":"2026-08-30T18:00:00","Kp":null}]`:     "none with a value",
		`[{"time_tag":"2026-08-30T18:00:00","Kp":99}]`:       "has no usable sample; the first of 1 that were refused: of 2026-08-30T18:00:00Z: Kp 99 is out of range: 0 to 9",
		`[{"time_tag":"2026-09-30T18:00:00","Kp":9}]`:        "a time to come",
		"[" + strings.Repeat("[],", maxValues) + "[]]":       "has more than 500000 values",
		strings.Repeat("[", 20_000):                          "is not JSON, or was cut off",
		kpObjects[:len(kpObjects)/2]:                         "is not JSON, or was cut off",
		"\x1f\x8b\x08\x00garbage":                            "is not JSON, or was cut off",
	} {
		if answer, err := parseSWPC([]byte(body), surge.Kp, storm); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: error %v, answer %v; want %q", body, err, answer, want)
		}
	}
}

// FuzzSWPC: whatever is answered, what is taken of it can be, is of no time to come, and is in order.
func FuzzSWPC(f *testing.F) {
	for _, body := range []string{kpObjects, kpTable, magTable, plasmaTable, magObjects, windObjects, `[]`, `[[]]`, `[{}]`, `null`, `[["time_tag","Kp"],null]`,
		`[{"time_tag":"2026-08-30T18:00:00","Kp":1e999}]`, `[{"time_tag":"0000-01-01T00:00:00","Kp":1}]`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, q := range surge.Quantities {
			answer, err := parseSWPC(body, q, storm)
			if err == nil {
				checkAnswer(t, answer)
			}
		}
	})
}

// checkAnswer fails if an answer has what must not become a signal.
func checkAnswer(t *testing.T, answer Answer) {
	t.Helper()
	if len(answer.Samples) == 0 {
		t.Fatal("an answer without samples is no error")
	}
	for q, all := range answer.Samples {
		samples := recent(merged(nil, all), storm, kinds[q].kept)
		inOrder(t, samples)
		for _, s := range samples {
			if possible(q, s.Value) != nil || surge.Ahead(s.From, storm) || len(s.Spacecraft) > 32 {
				t.Fatalf("%s has %+v", q, s)
			}
		}
	}
}

func TestTimes(t *testing.T) {
	want := time.Date(2024, 5, 10, 21, 0, 0, 0, time.UTC)
	for _, text := range []string{"2024-05-10 21:00:00.000", "2024-05-10 21:00:00", "2024-05-10T21:00:00", "2024-05-10T21:00:00Z", "2024-05-10 21:00:00Z", "2024-05-10T21:00",
		"2024-05-10T21:00Z", " 2024-05-10T23:00:00+02:00 "} {
		if got, err := timeOf(text); err != nil || !got.Equal(want) || got.Location() != time.UTC {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "2024-05-10", "10.05.2024 21:00", "now", "2024-13-10T21:00:00Z"} {
		if got, err := timeOf(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
