// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/wire"
)

const site = "thule"

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func raw(instrument string, at time.Time, body string) wire.Record {
	digest := wire.Digest(sha256.Sum256([]byte(body)))
	key := wire.RawKey(site, instrument, at, digest)
	return wire.Record{ID: key, Key: key, Digest: digest, ReceivedAt: at, State: wire.StateCurrent}
}

func TestIndexFinds(t *testing.T) {
	x := newIndex(site, 100, NewMetrics(prometheus.NewRegistry()))
	first, later := raw("a", noon, "frame"), raw("a", noon.Add(time.Hour), "frame")
	named := raw("a", noon, "named")
	named.ID = "o/thule/a/n/named"
	spooled := raw("a", noon.Add(42*time.Nanosecond), "spooled")
	spooled.ID = wire.SpooledID(wire.Notice{Site: site, Instrument: "a", Record: wire.Record{
		ReceivedAt: spooled.ReceivedAt, Digest: spooled.Digest, Gateway: "north-0", Incarnation: "01k9zqv7r3"}})
	odd := raw("a", noon, "odd")
	odd.ID += "-7"
	segment, marked := raw("a", noon, "segment"), raw("a", noon, "marked")
	segment.Segment, marked.State = &wire.SegmentRange{}, wire.StateDuplicate
	inPlace, listed := raw("a", noon, "in place"), raw("a", noon, "listed")
	inPlace.ID, inPlace.Key = "tree/1", "tree/1"
	listed.DigestSource = wire.DigestSourceListed
	for _, r := range []wire.Record{later, first, named, spooled, odd, segment, marked, inPlace, listed, later, first, spooled} {
		x.add("a", r)
	}
	if x.count != 5 {
		t.Errorf("it counts %d objects, want 5", x.count)
	}
	for name, c := range map[string]struct {
		instrument string
		like       wire.Record
		at         time.Time
		window     time.Duration
		want       string
	}{
		"the first of several":            {"a", first, noon.Add(2 * time.Hour), 24 * time.Hour, first.ID},
		"the one in the window":           {"a", first, noon.Add(90 * time.Minute), time.Hour, later.ID},
		"at the window's end":             {"a", first, noon.Add(time.Hour), time.Hour, first.ID},
		"before it":                       {"a", first, noon.Add(-time.Hour), time.Hour, first.ID},
		"too long after":                  {"a", first, noon.Add(3 * time.Hour), time.Hour, ""},
		"of another instrument":           {"b", first, noon, time.Hour, ""},
		"a named one":                     {"a", named, noon, time.Hour, named.ID},
		"one that came from a spool":      {"a", spooled, noon, time.Hour, spooled.ID},
		"one with an ID of another kind":  {"a", odd, noon, time.Hour, odd.ID},
		"a segment is none":               {"a", segment, noon, time.Hour, ""},
		"a duplicate is no original":      {"a", marked, noon, time.Hour, ""},
		"one in place is no original":     {"a", inPlace, noon, time.Hour, ""},
		"nor one whose digest was listed": {"a", listed, noon, time.Hour, ""},
		"never seen":                      {"a", raw("a", noon, "new"), noon, time.Hour, ""},
	} {
		id, at, found := x.find(c.instrument, c.like.Digest, c.at, c.window, time.Time{})
		if found && at.Sub(c.at).Abs() > c.window {
			t.Errorf("%s: received at %v, beyond %v of %v", name, at, c.window, c.at)
		}
		if id != c.want || found != (c.want != "") {
			t.Errorf("%s: %q, %v, want %q", name, id, found, c.want)
		}
	}
}

// A full index forgets its oldest day, never the newest, and stays bounded.
func TestIndexIsBounded(t *testing.T) {
	const most = 30
	x := newIndex(site, most, NewMetrics(prometheus.NewRegistry()))
	day := func(d int) time.Time { return noon.Add(time.Duration(d) * 24 * time.Hour) }
	for d := range 10 {
		for i := range 10 {
			x.add(fmt.Sprint("instrument-", i%2), raw(fmt.Sprint("instrument-", i%2), day(d), fmt.Sprint(d, i)))
		}
		count := 0
		for _, i := range x.instruments {
			for _, d := range i.days {
				count += d.count
			}
		}
		if count != x.count || count > most {
			t.Fatalf("after day %d it holds %d objects and counts %d, at most %d", d, count, x.count, most)
		}
	}
	found := func(d int) bool {
		_, _, ok := x.find("instrument-0", raw("instrument-0", day(d), fmt.Sprint(d, 0)).Digest, day(d), time.Hour, time.Time{})
		return ok
	}
	if found(0) || !found(8) || !found(9) {
		t.Errorf("day 0: %v, day 8: %v, day 9: %v", found(0), found(8), found(9))
	}
	// An older day than all there are makes no space for itself.
	x.add("instrument-0", raw("instrument-0", day(-5), "old"))
	if !found(9) || x.count > most {
		t.Errorf("an old object drove out a newer one (%d)", x.count)
	}
}
