// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/pcapng"
	"github.com/substorm/substorm/internal/wire"
)

// TestRecent: a second request for a day opens no object, also if it asks for other times. A
// changed declaration has the objects read again, and a part of a segment's samples counts as far
// as it belongs to the other request.
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

// TestLargeSeries: a small segment with so many and wide samples that they are not all
// held is read piece by piece.
func TestLargeSeries(t *testing.T) {
	fill := ""
	channel := wire.ChannelEntry{Name: "text", Datagrams: "raw", Payload: wire.PayloadEntry{Type: wire.PayloadCSV, Separator: ","},
		Time:       wire.ChannelTimeEntry{Source: wire.TimePayload, Format: wire.TimeUnixMilliseconds, Columns: []int{1}, Precision: wire.PrecisionMilliseconds, MaxDelayMillis: time.Hour.Milliseconds()},
		Parameters: []wire.ParameterEntry{{Name: "s", Type: wire.ParameterString, Length: 4 << 10, Fill: &fill, Column: 2}}}
	decoder, err := decode.New(channel)
	if err != nil {
		t.Fatal(err)
	}
	d := &dataset{instrument: wire.InstrumentEntry{Instrument: "test"}, channel: channel, decoder: decoder}
	origin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const samples = 3000
	var out bytes.Buffer
	p, err := pcapng.NewPackets(&out, "a test")
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(samples) {
		line := fmt.Appendf(nil, "%d,%d", origin.UnixMilli()+i, i)
		if err := p.Write(wire.Datagram{ReceivedAt: origin, DestinationPort: 1, Payload: line}); err != nil {
			t.Fatal(err)
		}
	}
	r := pairRecord("large", origin)
	r.Segment, r.Size = &wire.SegmentRange{Channel: "raw"}, int64(out.Len())
	s := &shelf{records: []wire.Record{r}, content: func(wire.Record) []byte { return out.Bytes() }}
	held := newRecent(defaultRecent)
	m := newMerger(s, held, d, origin.UnixNano(), origin.Add(time.Hour).UnixNano(), defaultMemory)
	rows := 0
	for {
		row, ok, err := m.next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		if got := string(text(row[timeWidth:])); got != fmt.Sprint(rows) {
			t.Fatalf("sample %d is %s", rows, got)
		}
		rows++
	}
	m.end()
	if rows != samples || len(held.all) > 0 || s.open.Load() > 0 || m.memory.free != samplesMemory || r.Size > segmentSize {
		t.Errorf("%d samples, %d held, %d open, %d bytes free, a segment of %d bytes", rows, len(held.all), s.open.Load(), m.memory.free, r.Size)
	}
}
