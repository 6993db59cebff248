// SPDX-License-Identifier: Apache-2.0

package spaceweather

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/operator/surge"
)

func jsonSource(t *testing.T, cfg JSONConfig) *document {
	t.Helper()
	if cfg.URL == "" {
		cfg.URL = "https://weather.example.org/now.json"
	}
	source, err := NewJSON(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return source.(*document)
}

func TestJSON(t *testing.T) {
	kp := map[surge.Quantity]string{surge.Kp: "{.data[*].kp}"}
	for _, c := range []struct {
		name    string
		cfg     JSONConfig
		body    string
		want    string // samples of the quantities in their order
		err     string
		refused int
	}{
		{name: "values and times", cfg: JSONConfig{Values: kp, Time: "{.data[*].at}"},
			body: `{"data":[{"at":"2026-08-30T21:00:00Z","kp":5},{"at":"2026-08-30T18:00:00Z","kp":"4.33"},{"at":"2026-08-30T15:00:00Z","kp":null}]}`,
			want: "18:00+3h0m0s=4.33, 21:00+3h0m0s=5"},
		{name: "lists beside each other, as GFZ answers", cfg: JSONConfig{Values: map[surge.Quantity]string{surge.Kp: "{.Kp[*]}"}, Time: "{.datetime[*]}"},
			body: `{"datetime":["2026-08-30T15:00:00Z","2026-08-30T18:00:00Z"],"Kp":[3.667,4.333]}`, want: "15:00+3h0m0s=3.667, 18:00+3h0m0s=4.333"},
		{name: "two quantities of one time", cfg: JSONConfig{Values: map[surge.Quantity]string{surge.Bz: "{.wind.bz}", surge.Speed: "{.wind.v}"}, Time: "{.wind.t}", Lasts: 5 * time.Minute},
			body: `{"wind":{"t":1788128700,"bz":-12,"v":650}}`, want: "22:25+5m0s=-12, 22:25+5m0s=650"},
		{name: "milliseconds", cfg: JSONConfig{Values: map[surge.Quantity]string{surge.Bz: "{.bz}"}, Time: "{.t}"}, body: `{"t":1788128700500,"bz":-12}`, want: "22:25+1m0s=-12"},
		{name: "no times: of the answer", cfg: JSONConfig{Values: map[surge.Quantity]string{surge.Bz: "{.bz}"}}, body: `{"bz":-3}`, want: "22:30+1m0s=-3"},
		{name: "the newest of a table", cfg: JSONConfig{Values: map[surge.Quantity]string{surge.Speed: "{[-1:][1]}"}, Time: "{[-1:][0]}"},
			body: `[["time_tag","speed"],["2026-08-30T22:28:00Z",500],["2026-08-30T22:29:00Z",510]]`, want: "22:29+1m0s=510"},
		{name: "records of one kind", cfg: JSONConfig{Values: map[surge.Quantity]string{surge.Bz: `{[?(@.source=="ACE")].bz}`}, Time: `{[?(@.source=="ACE")].t}`},
			body: `[{"t":"2026-08-30T22:28:00Z","source":"ACE","bz":-4},{"t":"2026-08-30T22:28:00Z","source":"IMAP","bz":9}]`, want: "22:28+1m0s=-4"},
		{name: "values that cannot be", cfg: JSONConfig{Values: kp, Time: "{.data[*].at}"}, refused: 3, want: "21:00+3h0m0s=5",
			body: `{"data":[{"at":"2026-08-30T21:00:00Z","kp":5},{"at":"2026-08-30T18:00:00Z","kp":99},{"at":"soon","kp":4},{"at":"2026-08-30T18:00:00Z","kp":{}}]}`},
		{name: "no such path", cfg: JSONConfig{Values: kp}, body: `{"rows":[]}`, err: "has no Kp at {.data[*].kp}: data is not found"},
		{name: "the filtered value is not an array", cfg: JSONConfig{Values: map[surge.Quantity]string{surge.Kp: `{[?(@.a=="b")].kp}`}}, body: `{"a":"` + strings.Repeat("x", 5000) + `"}`,
			err: "has no Kp at {[?(@.a==\"b\")].kp}: the filtered value is not an array"},
		{name: "no times", cfg: JSONConfig{Values: kp, Time: "{.at}"}, body: `{"data":[{"kp":5}]}`, err: "has no times at {.at}: at is not found"},
		{name: "not as many times", cfg: JSONConfig{Values: kp, Time: "{.data[*].at}"}, body: `{"data":[{"kp":5,"at":"2026-08-30T21:00:00Z"},{"kp":5}]}`,
			err: "has 2 values of Kp at {.data[*].kp} and 1 times at {.data[*].at}"},
		{name: "no values", cfg: JSONConfig{Values: kp}, body: `{"data":[{"kp":null}]}`, err: "none with a value"},
		{name: "garbage", cfg: JSONConfig{Values: kp}, body: `{"data":`, err: "is not JSON, or was cut off"},
		{name: "two documents", cfg: JSONConfig{Values: kp}, body: `{"data":[{"kp":5}]} {}`, err: "is not JSON, or was cut off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := jsonSource(t, c.cfg)
			answer, err := d.read([]byte(c.body), storm)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, q := range d.Quantities() {
				all = append(all, told(merged(nil, answer.Samples[q])))
			}
			if got := strings.Join(all, ", "); got != c.want || answer.Refused.Samples != c.refused {
				t.Errorf("samples %s, refused %+v\nwant    %s", got, answer.Refused, c.want)
			}
		})
	}
}

func TestJSONConfig(t *testing.T) {
	kp := func(path string) map[surge.Quantity]string { return map[surge.Quantity]string{surge.Kp: path} }
	for want, cfg := range map[string]JSONConfig{
		"no path is set":                    {},
		`quantity "Dst" is none of`:         {Values: map[surge.Quantity]string{"Dst": "{.dst}"}},
		"is not in braces":                  {Values: kp(".kp")},
		"is not a JSONPath as kubectl":      {Values: kp("{.kp[}")},
		"leads to more than one place":      {Values: kp("{..kp}")},
		"name one, without":                 {Values: kp("{.a['b','b']['b','b']}")},
		"or a second pair of braces":        {Values: kp("{range .a[*]}{.kp}{end}")},
		"longer than 256 characters":        {Values: kp("{." + strings.Repeat("k", 256) + "}")},
		"path of the time: ":                {Values: kp("{.kp}"), Time: "{.[?(}"},
		"a value cannot last 1ms":           {Values: kp("{.kp}"), Lasts: time.Millisecond},
		"url \"\" does not begin with http": {URL: " ", Values: kp("{.kp}")},
	} {
		switch cfg.URL {
		case "":
			cfg.URL = "https://weather.example.org/now.json"
		case " ":
			cfg.URL = ""
		}
		if _, err := NewJSON(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// A value without a time is as new as its answer, so the server is not asked whether it changed.
func TestJSONWithoutTimes(t *testing.T) {
	server := newNOAA(t)
	server.answers(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") != "" {
			t.Error("the server is asked whether the value changed")
		}
		w.Header().Set("ETag", `"a"`)
		fmt.Fprint(w, `{"kp":6}`)
	})
	d := jsonSource(t, JSONConfig{URL: server.URL, Values: map[surge.Quantity]string{surge.Kp: "{.kp}"}})
	for range 2 {
		if answer, err := d.Ask(t.Context(), storm); err != nil || len(answer.Samples[surge.Kp]) != 1 {
			t.Errorf("answer %+v, %v", answer, err)
		}
	}
}

// FuzzJSON: neither a path nor a document ends the operator, and what is taken can be.
func FuzzJSON(f *testing.F) {
	for _, path := range []string{"{.data[*].kp}", "{..kp}", "{[-1:][1]}", `{[?(@.a=="b")].kp}`, "{range .data[*]}{.kp}{end}", "{.data[0:9:2]}", "{['a','b']}", "{@}", "{$}", "{}", "{.a[?(@.b>1)]}"} {
		f.Add(path, []byte(`{"data":[{"kp":5,"a":"b"},{"kp":null},[1,"2"]]}`))
	}
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		source, err := NewJSON(JSONConfig{URL: "https://weather.example.org", Values: map[surge.Quantity]string{surge.Kp: path}})
		if err != nil {
			return
		}
		if answer, err := source.(*document).read(body, storm); err == nil {
			checkAnswer(t, answer)
		}
	})
}
