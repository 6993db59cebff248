// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/pcapng"
	"github.com/substorm/substorm/internal/wire"
)

// samplesMemory is what samples get of the memory of a request.
const samplesMemory = defaultMemory - defaultMemory/aheadPart

// shelf is an archive of objects that are made as they are opened.
type shelf struct {
	records []wire.Record
	content func(r wire.Record) []byte
	// open is the number of open records, opened the number ever opened.
	open, opened atomic.Int64
	asked        int
}

func (s *shelf) Span(context.Context, string, bool) (from, to time.Time, ok bool, err error) {
	return time.Time{}, time.Time{}, false, errors.New("nobody asks")
}

func (s *shelf) Tag(context.Context, string, time.Time, time.Time) (string, error) { return "", nil }

func (s *shelf) Observed(_ context.Context, _ string, from, to time.Time) iter.Seq2[wire.Record, error] {
	s.asked++
	return func(yield func(wire.Record, error) bool) {
		for _, r := range s.records {
			if first, last := r.Observed(); !last.Before(from) && first.Before(to) && !yield(r, nil) {
				return
			}
		}
	}
}

type closing struct {
	io.Reader
	shelf *shelf
}

func (c closing) Close() error { c.shelf.open.Add(-1); return nil }

func (s *shelf) Open(_ context.Context, r wire.Record) (io.ReadCloser, error) {
	s.open.Add(1)
	s.opened.Add(1)
	return closing{bytes.NewReader(s.content(r)), s}, nil
}

// newPairs is a dataset whose objects hold pairs: a time in milliseconds and a double.
func newPairs(t testing.TB, maxDelay time.Duration) *dataset {
	t.Helper()
	fill := "NaN"
	channel := wire.ChannelEntry{Name: "pairs", Payload: wire.PayloadEntry{Type: wire.PayloadBinary, ByteOrder: wire.LittleEndian, Record: 16},
		Time: wire.ChannelTimeEntry{Source: wire.TimePayload, Format: wire.TimeUnixMilliseconds, Encoding: wire.EncodingInt64,
			Precision: wire.PrecisionMilliseconds, MaxDelayMillis: maxDelay.Milliseconds()},
		Parameters: []wire.ParameterEntry{{Name: "x", Type: wire.ParameterDouble, Fill: &fill, Offset: 8, Encoding: wire.EncodingFloat64}}}
	d, err := decode.New(channel)
	if err != nil {
		t.Fatal(err)
	}
	return &dataset{id: "test/pairs", instrument: wire.InstrumentEntry{Instrument: "test"}, channel: channel, decoder: d, open: true}
}

// inSegments is a dataset whose pairs are datagrams.
func (d dataset) inSegments() *dataset {
	d.channel.Datagrams = "raw"
	return &d
}

// segmentOf is a segment with a datagram for each pair.
func segmentOf(t interface{ Fatal(...any) }, pairs []byte) []byte {
	var out bytes.Buffer
	p, err := pcapng.NewPackets(&out, "a test")
	for len(pairs) > 0 && err == nil {
		err = p.Write(wire.Datagram{ReceivedAt: time.Unix(0, 0), DestinationPort: 1, Payload: pairs[:16]})
		pairs = pairs[16:]
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func appendPair(b []byte, ms int64, x float64) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, uint64(ms)), math.Float64bits(x))
}

func pairRecord(id string, receivedAt time.Time) wire.Record {
	return wire.Record{ID: id, Key: id, State: wire.StateCurrent, ReceivedAt: receivedAt, Digest: wire.Digest(sha256.Sum256([]byte(id)))}
}

// TestMergeProperty: for any distribution of pairs over objects, in any order, each time comes
// once, in order, with the value that was received last and is not missing.
func TestMergeProperty(t *testing.T) {
	const delay = 2 * time.Hour
	objects := newPairs(t, delay)
	segments := objects.inSegments()
	origin := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		contents := map[string][]byte{}
		s := &shelf{content: func(r wire.Record) []byte { return contents[r.ID] }}
		d := objects
		if rapid.Bool().Draw(t, "segments") {
			d = segments
		}
		from := origin.Add(time.Duration(rapid.IntRange(-300, 300).Draw(t, "from")) * time.Minute)
		to := from.Add(time.Duration(rapid.IntRange(1, 3000).Draw(t, "span")) * time.Minute)
		want := map[int64]float64{}
		received := origin
		for i := range rapid.IntRange(0, 30).Draw(t, "objects") {
			received = received.Add(time.Duration(rapid.IntRange(0, 7200).Draw(t, "pause")) * time.Second)
			id := fmt.Sprintf("object-%02d", i)
			for range rapid.IntRange(0, 20).Draw(t, "pairs") {
				at := received.Add(time.Duration(rapid.IntRange(-119, 119).Draw(t, "at")) * time.Minute)
				x := rapid.SampledFrom([]float64{math.NaN(), 1, 2, 3}).Draw(t, "x")
				contents[id] = appendPair(contents[id], at.UnixMilli(), x)
				if at.Before(from) || !at.Before(to) {
					continue
				}
				if was, known := want[at.UnixNano()]; !math.IsNaN(x) || !known {
					want[at.UnixNano()] = x
				} else {
					want[at.UnixNano()] = was
				}
			}
			r := pairRecord(id, received)
			if d == segments {
				r.Segment = &wire.SegmentRange{Channel: "raw"}
				contents[id] = segmentOf(t, contents[id])
			}
			r.Size = int64(len(contents[id]))
			s.records = append(s.records, r)
		}
		var wanted []string
		for _, at := range slices.Sorted(maps.Keys(want)) {
			wanted = append(wanted, fmt.Sprint(at, want[at]))
		}
		held := newRecent(rapid.SampledFrom([]int{0, 4000, defaultRecent}).Draw(t, "recent"))
		many := rapid.IntRange(1, 40).Draw(t, "many")
		for range 2 { // the second one has what is held
			m := newMerger(s, held, d, from.UnixNano(), to.UnixNano(), defaultMemory)
			m.many = many
			var got []string
			for {
				row, ok, err := m.next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				got = append(got, fmt.Sprint(timeOf(row), math.Float64frombits(binary.LittleEndian.Uint64(row[timeWidth:]))))
			}
			if diff := cmp.Diff(wanted, got); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
			m.end()
			if s.open.Load() != 0 || m.memory.free != samplesMemory || m.distant != 0 {
				t.Fatalf("%d open, %d bytes free, %d distant", s.open.Load(), m.memory.free, m.distant)
			}
		}
	})
}

// TestMemory: what a request holds does not grow with its span, be it a year of 1 kHz,
// nor with a gap before many records.
func TestMemory(t *testing.T) {
	const delay = 10 * time.Minute
	d := newPairs(t, delay)
	origin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		// Nothing came in the gap, afterwards an object of many samples in each pause.
		gap, length, pause, every time.Duration
		open                      int
	}{
		{"a day", 0, day, 10 * time.Minute, time.Second, 4},
		{"ten days", 0, 10 * day, 10 * time.Minute, time.Second, 4},
		{"three minutes of 10 kHz", 0, 3 * time.Minute, 10 * time.Minute, 100 * time.Microsecond, 4},
		{"two days after two months", 64 * day, 66 * day, 10 * time.Second, 10 * time.Second, 125},
	} {
		begin, end := origin.Add(c.gap), origin.Add(c.length)
		s := &shelf{content: func(r wire.Record) []byte { // as long before its receipt
			var b []byte
			for at := r.ReceivedAt.Add(-c.pause); at.Before(r.ReceivedAt) && at.Before(end); at = at.Add(c.every) {
				b = appendPair(b, at.UnixMilli(), 1)
			}
			return b
		}}
		for at := begin.Add(c.pause); !at.After(end.Add(c.pause)); at = at.Add(c.pause) {
			s.records = append(s.records, pairRecord(at.Format(time.RFC3339), at))
		}
		m := newMerger(s, newRecent(defaultRecent), d, origin.UnixNano(), end.UnixNano(), defaultMemory)
		rows, opened, pending, held := 0, 0, 0, 0
		for last := int64(math.MinInt64); ; rows++ {
			row, ok, err := m.next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			if at := timeOf(row); at <= last {
				t.Fatalf("%d after %d", at, last)
			} else {
				last = at
			}
			opened, pending, held = max(opened, len(m.open)), max(pending, len(m.pending)), max(held, samplesMemory-m.memory.free)
		}
		want := int(end.Sub(begin) / max(c.every, time.Millisecond)) // pairs have a resolution of milliseconds
		if rows != want || opened > c.open || pending > 2*manyRecords || held > 4*sourceMemory {
			t.Errorf("%s: %d rows, %d wanted; %d open, %d pending, %d bytes held", c.name, rows, want, opened, pending, held)
		}
		t.Logf("%s: %d rows; at most %d open, %d pending, %d bytes held; %d questions", c.name, rows, opened, pending, held, s.asked)
	}
}

// TestTooMuch: objects that all may hold one moment, and do not fit together.
func TestTooMuch(t *testing.T) {
	d := newPairs(t, day)
	origin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &shelf{content: func(r wire.Record) []byte {
		var b []byte
		for i := range int64(1000) {
			b = appendPair(b, r.ReceivedAt.UnixMilli()+i, 1)
		}
		return b
	}}
	for i := range 100 {
		at := origin.Add(time.Duration(i) * time.Minute)
		s.records = append(s.records, pairRecord(at.Format(time.RFC3339), at))
	}
	m := newMerger(s, newRecent(defaultRecent), d, origin.UnixNano(), origin.Add(day).UnixNano(), 1<<20)
	_, _, err := m.next(t.Context())
	m.end()
	if free := 1<<20 - 1<<20/aheadPart; m.memory.free != free {
		t.Errorf("%d bytes free of %d", m.memory.free, free)
	}
	if !errors.Is(err, errTooMuch) || refusal(err).code != codeTooMuch || s.open.Load() != 0 {
		t.Errorf("%v, %d open", err, s.open.Load())
	}
}

// TestTooMany: records that all begin at one time cannot be left to another window, and
// are no more than the request's memory.
func TestTooMany(t *testing.T) {
	d := newPairs(t, time.Minute)
	origin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &shelf{content: func(r wire.Record) []byte { return appendPair(nil, r.ReceivedAt.UnixMilli(), 1) }}
	for i := range 5 * manyRecords {
		s.records = append(s.records, pairRecord(fmt.Sprintf("%06d", i), origin.Add(time.Hour)))
	}
	const memory = 4 << 20
	m := newMerger(s, newRecent(defaultRecent), d, origin.UnixNano(), origin.Add(day).UnixNano(), memory)
	_, _, err := m.next(t.Context())
	m.end()
	if !errors.Is(err, errTooMuch) || s.open.Load() != 0 || m.memory.free != memory-memory/aheadPart {
		t.Errorf("%v, %d open, %d bytes free", err, s.open.Load(), m.memory.free)
	}
}

// TestDisorder: an object of more than is put in order at a time, in order and not.
func TestDisorder(t *testing.T) {
	d := newPairs(t, day)
	origin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		at   func(i, n int64) int64
		want error
	}{
		"in order":        {func(i, _ int64) int64 { return i }, nil},
		"nearly in order": {func(i, _ int64) int64 { return i ^ 1023 }, nil},
		"backwards":       {func(i, n int64) int64 { return n - 1 - i }, errDisorder},
	} {
		n := int64(3 * sourceMemory / 16)
		s := &shelf{records: []wire.Record{pairRecord("one", origin)}, content: func(wire.Record) []byte {
			var b []byte
			for i := range n {
				b = appendPair(b, origin.UnixMilli()+c.at(i, n), 1)
			}
			return b
		}}
		m := newMerger(s, newRecent(defaultRecent), d, origin.UnixNano(), origin.Add(day).UnixNano(), defaultMemory)
		rows, last := int64(0), int64(0)
		var err error
		for ok := true; ok && err == nil; {
			var row []byte
			if row, ok, err = m.next(t.Context()); ok && err == nil {
				if timeOf(row) <= last {
					t.Fatalf("%s: %d after %d", name, timeOf(row), last)
				}
				last = timeOf(row)
				rows++
			}
		}
		m.end()
		if !errors.Is(err, c.want) || err == nil && rows != n || s.open.Load() != 0 {
			t.Errorf("%s: %d rows of %d, %v, %d open", name, rows, n, err, s.open.Load())
		}
	}
}

// BenchmarkDay is a day of 1 Hz, three components, as CSV and binary: decoded, merged and
// written.
func BenchmarkDay(b *testing.B) {
	d := newPairs(b, time.Minute)
	origin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var data []byte
	for i := range int64(86400) {
		data = appendPair(data, origin.UnixMilli()+1000*i, 20826.85+float64(i%100)/100)
	}
	d.channel.Time.MaxDelayMillis = day.Milliseconds()
	s := &shelf{records: []wire.Record{pairRecord("one", origin)}, content: func(wire.Record) []byte { return data }}
	for _, f := range []format{formatCSV, formatBinary} {
		b.Run(string(f), func(b *testing.B) {
			for b.Loop() {
				m := newMerger(s, newRecent(defaultRecent), d, origin.UnixNano(), origin.Add(day).UnixNano(), defaultMemory)
				w := newWriter(f, d, nil)
				var out []byte
				size := 0
				for {
					row, ok, err := m.next(b.Context())
					if err != nil {
						b.Fatal(err)
					}
					if !ok {
						break
					}
					if out = w.append(out, timeOf(row), row[timeWidth:]); len(out) > piece {
						size, out = size+len(out), out[:0]
					}
				}
				b.SetBytes(int64(size + len(out)))
			}
		})
	}
}
