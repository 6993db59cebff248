// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return t
}

var digest = strings.Repeat("0123456789abcdef", 4)

func TestReadAndWrite(t *testing.T) {
	for _, c := range []struct {
		template, name string
		want           Values
	}{
		{"{year}/{month}/{day}/{station}_{hour}{minute}{second}.fits", "2015/03/17/rank_235959.fits",
			Values{Time: at("2015-03-17T23:59:59Z"), Station: "rank"}},
		{"{year}-{month}-{day}/{year}{month}{day}_{hour}{minute}.jpg", "2015-03-17/20150317_0630.jpg", Values{Time: at("2015-03-17T06:30:00Z")}},
		{"{year2}{doy}.{hour}", "15366.00", Values{}},
		{"{year2}{doy}.{hour}", "16366.00", Values{Time: at("2016-12-31T00:00:00Z")}},
		{"{year2}{doy}.{hour}", "69001.23", Values{Time: at("1969-01-01T23:00:00Z")}},
		{"{year2}{doy}.{year}", "50001.1950", Values{Time: at("1950-01-01T00:00:00Z")}},
		{"{year}{month}{day}T{hour}{minute}{second}.{millisecond}Z", "20240229T000000.123Z", Values{Time: at("2024-02-29T00:00:00.123Z")}},
		{"{instrument}/{digest:16}-{sequence}", "allsky-1/0123456789abcdef-42", Values{Instrument: "allsky-1", Digest: digest[:16], Sequence: 42}},
		{"{year}/{doy}/{name}", "2026/325/night/frame 1.fits", Values{Time: at("2026-11-21T00:00:00Z"), Name: "night/frame 1.fits"}},
	} {
		parsed, err := Parse(c.template)
		if err != nil {
			t.Error(err)
			continue
		}
		got, err := parsed.Read(c.name)
		if cmp.Equal(c.want, Values{}) {
			if !errors.Is(err, ErrName) {
				t.Errorf("%s of %s: %+v, %v, want ErrName", c.template, c.name, got, err)
			}
			continue
		}
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s of %s: %v (-want +got)\n%s", c.template, c.name, err, diff)
		}
		got.Digest = strings.Replace(got.Digest, digest[:16], digest, 1)
		if again, err := parsed.Write(got); again != c.name || err != nil {
			t.Errorf("%s writes %q, %v, want %q", c.template, again, err, c.name)
		}
	}
}

func TestWhatDoesNotFit(t *testing.T) {
	for template, names := range map[string][]string{
		"{year}/{month}/{day}/{any}.fits": {
			"", "2015/03/17/x.fit", "2015/13/17/x.fits", "2015/02/29/x.fits", "2015/00/01/x.fits", "2015/3/17/x.fits", "2015/03/17/a/x.fits", "/2015/03/17/x.fits"},
		"{year}{month}{day}/{year}{month}{day}.jpg": {"20150317/20150318.jpg"},
		"{year}{doy}-{month}{day}":                  {"2015076-0318"},
		"{year}/{year2}{doy}":                       {"2015/16076", "1915/16076"},
		"{year}{month}{day}{hour}{minute}{second}":  {"20150317240000", "20150317006000", "20150317000061", "99991231235960"},
		"{sequence}":           {"99999999999999999999", "-1"},
		"{station}-{digest:8}": {"rank-0123456", "rank-0123456G", "-x-01234567"},
	} {
		parsed, err := Parse(template)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if v, err := parsed.Read(name); !errors.Is(err, ErrName) {
				t.Errorf("%s of %q: %+v, %v, want ErrName", template, name, v, err)
			}
		}
	}
}

func TestBadTemplates(t *testing.T) {
	for template, says := range map[string]string{
		"":                       "0 bytes",
		strings.Repeat("x", 600): "600 bytes",
		"/{year}":                "relative",
		"a/../{year}":            "without ..",
		"{year":                  "without its }",
		"year}":                  "without its {",
		"{jahr}":                 "there are year, year2, month",
		"{month}":                "{month} needs {year} or {year2}",
		"{year}{hour}":           "{hour} needs {day} or {doy}",
		"{year}{doy}{minute}":    "{minute} needs {hour}",
		"{year}{day}":            "{day} needs {month}",
		"{digest:7}":             "from 8 to 64",
		"{digest:x}":             "from 8 to 64",
		"{year:4}":               "only {digest:N}",
	} {
		if _, err := Parse(template); !errors.Is(err, ErrTemplate) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want ErrTemplate that says %q", template, err, says)
		}
	}
}

func TestWhatCannotBeWritten(t *testing.T) {
	whole := Values{Time: at("2015-03-17T00:00:00Z"), Station: "rank", Name: "x"}
	for template, v := range map[string]Values{
		"{year}/{month}/{day}/{any}": whole,
		"{instrument}":               whole,
		"{station}/{digest}":         whole,
		"{name}":                     {Name: "a/../b"},
		"{station}":                  {Station: "a/b"},
	} {
		parsed, err := Parse(template)
		if err != nil {
			t.Fatal(err)
		}
		if name, err := parsed.Write(v); !errors.Is(err, ErrName) {
			t.Errorf("%s writes %q, %v, want ErrName", template, name, err)
		}
	}
}

func TestResolution(t *testing.T) {
	for template, want := range map[string]time.Duration{
		"{name}": 0, "{year}/x": yearUnit, "{year}{doy}": dayUnit, "{year}{doy}{hour}": time.Hour, "{year}{doy}{hour}{minute}{second}.{millisecond}": time.Millisecond,
	} {
		parsed, err := Parse(template)
		if err != nil {
			t.Fatal(err)
		}
		if parsed.Resolution() != want || parsed.HasTime() != (want > 0 && want <= dayUnit) {
			t.Errorf("%s: %v, %v, want %v", template, parsed.Resolution(), parsed.HasTime(), want)
		}
	}
}

// A template writes again what it reads, and its refusals are ErrTemplate or ErrName.
func FuzzTemplate(f *testing.F) {
	for _, seed := range [][2]string{
		{"{year}/{month}/{day}/{station}_{hour}{minute}{second}.fits", "2015/03/17/rank_235959.fits"},
		{"{year2}{doy}.{any}", "15076.x"}, {"{instrument}/{digest:16}-{sequence}", "a/0123456789abcdef-42"},
		{"{name}", "a//b"}, {"{{year}", "}"}, {"{year}{doy}/{name}", "2015060/\xff"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, template, name string) {
		parsed, err := Parse(template)
		if err != nil {
			if !errors.Is(err, ErrTemplate) {
				t.Fatalf("%v", err)
			}
			return
		}
		v, err := parsed.Read(name)
		if err != nil {
			if !errors.Is(err, ErrName) {
				t.Fatalf("%v", err)
			}
			return
		}
		again, err := parsed.Write(v)
		if err != nil {
			return // a field that only reads, or no value
		}
		if w, err := parsed.Read(again); err != nil || !w.Time.Equal(v.Time) {
			t.Fatalf("%s read %q as %+v, wrote %q and read that as %+v, %v", template, name, v, again, w, err)
		}
	})
}
