// SPDX-License-Identifier: Apache-2.0

package objectpath

import (
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/naming"
	"github.com/substorm/substorm/internal/wire"
)

func parse(t testing.TB, text string) *naming.Template {
	t.Helper()
	template, err := naming.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return template
}

func record(at time.Time, body string) wire.Record {
	digest := wire.Digest(sha256.Sum256([]byte(body)))
	key := wire.RawKey("thule", "allsky-1", at, digest)
	return wire.Record{ID: key, Key: key, Size: int64(len(body)), Digest: digest, State: wire.StateCurrent,
		ReceivedAt: at, TimeSource: wire.TimeSourceReceived, Source: "192.0.2.7:40001", Port: 5000, Gateway: "gateway-0"}
}

var noon = time.Date(2026, 11, 21, 12, 0, 1, 234567890, time.UTC)

func TestPath(t *testing.T) {
	r := record(noon, "frame")
	id := wire.ShortID(noon, r.Digest)
	named, observed, early, late, segment := r, r, r, r, r
	named.Name = "night/frame 1.fits"
	observed.SetObserved(time.Date(2026, 11, 20, 6, 30, 0, 0, time.UTC), time.Minute)
	early.SetObserved(time.Date(2026, 11, 21, 6, 30, 0, 0, time.UTC), time.Minute)
	late.SetObserved(time.Date(2026, 3, 17, 6, 30, 0, 0, time.UTC), time.Minute)
	late.Name = "0630.fits"
	segment.Segment = &wire.SegmentRange{Channel: "raw"}
	for _, c := range []struct {
		template string
		record   wire.Record
		sequence uint64
		want     string
	}{
		{"{year}/{month}/{day}/{station}_{hour}{minute}{second}.{millisecond}.jpg", r, 0, "2026/11/21/rank_120001.234.jpg"},
		{"{year2}{doy}/{instrument}/{id}", r, 0, "26325/allsky-1/" + id},
		{"{year}{doy}/{digest:8}", r, 0, "2026325/" + r.Digest.String()[:8]},
		{"{year}{doy}/{sequence}.jpg", r, 0, ""},
		{"{year}{doy}/{sequence}.jpg", r, 7, "2026325/7.jpg"},
		{"{name}", r, 0, ""},
		{"x/{name}", named, 0, "x/night/frame 1.fits"},
		{"{year}{doy}/{hour}{minute}-{id}", observed, 0, "2026324/0630-" + id},
		{"{year}{doy}/{station}_{hour}{minute}.jpg", early, 0, "2026325/rank_0630.jpg"},
		{"{year}{doy}/{station}_{hour}{minute}.jpg", observed, 0, "2026325/rank_1200.jpg"}, // one of the day before may have 2026324/rank_0630.jpg
		{"{year}{doy}/{hour}{minute}-{digest:8}", observed, 0, "2026325/1200-" + r.Digest.String()[:8]},
		{"{year}{doy}/{sequence}.jpg", observed, 7, "2026325/7.jpg"},
		{"{year}{doy}/{hour}{minute}-{id}", late, 0, "2026325/1200-" + id}, // it is listed there
		{"{year}{doy}/{name}", late, 0, "2026076/0630.fits"},               // its name is claimed
		{"{year}{doy}/{id}", segment, 0, ""},
		{strings.Repeat("x", 300) + "/{year}{doy}/{id}", r, 0, ""}, // too long for a part of a key
	} {
		if got := Path(parse(t, c.template), "allsky-1", "rank", c.record, c.sequence); got != c.want {
			t.Errorf("%s: %q, want %q", c.template, got, c.want)
		}
	}
	if got := Path(nil, "allsky-1", "rank", r, 1); got != "" {
		t.Errorf("without a template: %q", got)
	}
}

// An object that is received after midnight with an observation time of the day before has a path of its own in the instrument, and not only
// on its day: without {id} and {name} the path tells the day of receipt.
func TestPathAfterMidnight(t *testing.T) {
	before, after := record(noon, "frame"), record(noon.Add(12*time.Hour), "next")
	for _, r := range []*wire.Record{&before, &after} {
		r.SetObserved(time.Date(2026, 11, 21, 11, 59, 0, 0, time.UTC), time.Minute)
	}
	for _, template := range []string{"{year}/{month}/{day}/{sequence}.jpg", "{year}{doy}/{hour}{minute}-{digest:8}.jpg", "{year}{doy}/{hour}{minute}-{id}.jpg"} {
		one, two := Path(parse(t, template), "allsky-1", "rank", before, 1), Path(parse(t, template), "allsky-1", "rank", after, 1)
		if one == "" || one == two {
			t.Errorf("%s: two objects, received on two days, have the path %q", template, one)
		}
	}
}

func TestTold(t *testing.T) {
	for path, told := range map[string]string{
		"a/b.fits.gz": "a/b~2.fits.gz", "a/b": "a/b~2", ".hidden": ".hidden~2", "a.b/.hidden.x": "a.b/.hidden~2.x", "x~3.jpg": "x~3~2.jpg", "a": "a~2",
	} {
		if got := Told(path, 2); got != told {
			t.Errorf("%q is told %q, want %q", path, got, told)
		}
		if got, number := Untold(told); got != path || number != 2 {
			t.Errorf("%q is untold %q %d, want %q", told, got, number, path)
		}
		if Told(path, 1) != path {
			t.Errorf("%q is told as a first one", path)
		}
	}
	for _, path := range []string{"a~1.jpg", "a~02.jpg", "~2", "a~.jpg", "a~2x", "b~-2"} {
		if got, number := Untold(path); got != path || number != 1 {
			t.Errorf("%q is untold %q %d", path, got, number)
		}
	}
}
