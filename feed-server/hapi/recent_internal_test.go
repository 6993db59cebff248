// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// TestRecent: who asks for a day again has it without an object being opened, also of
// other times; one whose declaration is another reads anew, and a part of a segment's
// samples counts as far as it is the other's.
func TestRecent(t *testing.T) {
	d := newPairs(t, time.Hour).inSegments()
	origin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &shelf{content: func(r wire.Record) []byte {
		var pairs []byte
		for i := range int64(60) {
			pairs = appendPair(pairs, r.ReceivedAt.UnixMilli()-1000*i, 1)
		}
		return segmentOf(t, append(pairs, appendPair(nil, r.ReceivedAt.Add(-2*time.Hour).UnixMilli(), 1)...))
	}}
	for i := range 60 {
		at := origin.Add(time.Duration(i) * time.Minute)
		r := pairRecord(at.Format(time.RFC3339), at)
		r.Segment = &wire.SegmentRange{Channel: "raw"}
		r.Size = int64(len(s.content(r)))
		s.records = append(s.records, r)
	}
	held := newRecent(defaultRecent)
	ask := func(d *dataset, from, to time.Duration) (rows, distant int, opened int64) {
		t.Helper()
		m := newMerger(s, held, d, origin.Add(from).UnixNano(), origin.Add(to).UnixNano(), defaultMemory)
		defer m.end()
		before := s.opened.Load()
		for {
			_, ok, err := m.next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return rows, m.distant, s.opened.Load() - before
			}
			rows++
		}
	}
	for _, c := range []struct {
		name          string
		d             *dataset
		from, to      time.Duration
		rows, distant int
		opened        int64
	}{
		{"first", d, 0, 40 * time.Minute, 2400, 60, 60},
		{"again", d, 0, 40 * time.Minute, 2400, 60, 0},
		{"a part", d, 90 * time.Second, 100 * time.Second, 10, 60, 0},
		{"by another declaration", newPairs(t, time.Hour).inSegments(), 0, time.Minute, 60, 60, 60},
	} {
		if rows, distant, opened := ask(c.d, c.from, c.to); rows != c.rows || distant != c.distant || opened != c.opened {
			t.Errorf("%s: %d rows, %d distant, %d opened; want %d, %d, %d", c.name, rows, distant, opened, c.rows, c.distant, c.opened)
		}
	}
}

// TestRecentMemory: what is held never takes more than it may, and is what was asked for
// last.
func TestRecentMemory(t *testing.T) {
	const most = 100_000
	c := newRecent(most)
	key := func(n int) seriesKey { return seriesKey{digest: wire.Digest{byte(n)}} }
	for range 2000 {
		n := rand.IntN(100)
		c.put(&series{key: key(n), rows: bytes.Repeat([]byte{byte(n)}, 16*rand.IntN(1000)), width: 16})
		c.get(key(0))
		sum := 0
		for e := c.order.Front(); e != nil; e = e.Next() {
			sum += e.Value.(*series).cost()
		}
		if sum > most || sum != most-c.free || len(c.all) != c.order.Len() {
			t.Fatalf("%d bytes are held of %d, %d are free", sum, most, c.free)
		}
	}
	if c.get(key(0)) == nil {
		t.Error("what was asked for all the time is not held")
	}
}
