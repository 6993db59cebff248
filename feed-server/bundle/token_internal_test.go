// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/substorm/substorm/internal/wire"
)

// Ten years of an instrument are a token that fits in a URL, and it is read as it was
// written.
func TestToken(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	t1 := token{question: [8]byte{1, 2}}
	var s spans
	var total sum
	for day := now.AddDate(-10, 0, 0); day.Before(now.AddDate(0, 0, 1)); day = day.AddDate(0, 0, 1) {
		number, err := numberOf(wire.DayOf(day))
		if err != nil {
			t.Fatal(err)
		}
		var of sum
		for i := range 3 {
			of.add("path", &wire.Record{Digest: wire.Digest{byte(i), byte(number)}, ReceivedAt: day.Add(time.Duration(i) * time.Hour)}, number)
		}
		of.files = filesOf(wire.RootDay{Day: wire.DayOf(day), Version: 1})
		total = total.plus(of)
		s = s.add(span{number, number + 1, of}, firstDaily(now))
	}
	lacking := lacks{{20_000, 7}, {20_001, 1}, {20_001, sumMask}}
	t1.all = []part{{spans: s}, {lacks: lacking}}
	text := t1.String()
	if len(text) == 0 || len(text) > 5000 {
		t.Errorf("%d bytes", len(text))
	}
	got, err := parseToken(text, t1.question, 2)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(t1, got, cmp.AllowUnexported(token{}, part{}, span{}, sum{}, lack{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
	var again sum
	for _, s := range got.all[0].spans {
		again = again.plus(s.sum)
	}
	if again != total {
		t.Errorf("the sums are %+v, and %+v together", total, again)
	}
	october, _ := numberOf("2026-10-01")
	if first := got.all[0].spans[len(s)-52-1]; firstDaily(now) != october || first.to != october || first.to-first.from != 30 {
		t.Errorf("September is %v to %v", first.from.start(), first.to.start())
	}
	if on := got.all[1].lacks.of(20_001); len(on) != 2 || !on[1] || !on[sumMask] {
		t.Errorf("%v lack on a day", on)
	}
	for _, c := range []struct {
		question    [8]byte
		instruments int
	}{{[8]byte{2}, 2}, {t1.question, 1}} {
		if _, err := parseToken(text, c.question, c.instruments); err == nil {
			t.Error("it is read as that of another question")
		}
	}
}

func FuzzToken(f *testing.F) {
	f.Add(token{all: []part{{spans: spans{{from: 1, to: 2, sum: sum{1, 2, 3, 4}}, {from: 31, to: 59, sum: sum{files: 7}}}}}}.String())
	f.Add(token{all: []part{{lacks: lacks{{1, 2}, {1, 3}}}}}.String())
	f.Add("")
	f.Add("AQAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseToken(text, [8]byte{}, 1)
		if err != nil {
			return
		}
		again, err := parseToken(got.String(), [8]byte{}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, again, cmp.AllowUnexported(token{}, part{}, span{}, sum{}, lack{})); diff != "" {
			t.Fatal(diff)
		}
		for i, s := range got.all[0].spans {
			if is, ok := got.all[0].spans.of(s.from); !ok || is != s {
				t.Fatalf("span %d of %+v is not found", i, got.all[0])
			}
		}
	})
}
