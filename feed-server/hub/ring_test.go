// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

func all(*Message) bool { return true }

// Readers get each message that is held once and in order; a reader that asks for lost messages
// gets an error; memory stays bounded.
func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 20_000).Draw(t, "limit")
		r := NewBudget(limit).NewRing(1)
		sequence := uint64(1)
		var stream []uint64 // that were added
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "add") {
				var batch []*Message
				for range rapid.IntRange(0, 5).Draw(t, "messages") {
					sequence += uint64(rapid.IntRange(0, 2).Draw(t, "gap"))
					batch = append(batch, &Message{Sequence: sequence, Data: make([]byte, rapid.IntRange(0, 3000).Draw(t, "size"))})
					stream = append(stream, sequence)
					sequence++
				}
				if err := r.Add(batch, sequence); err != nil {
					t.Fatal(err)
				}
				if r.bytes > limit && len(r.messages) > 1 {
					t.Fatalf("%d bytes are held, %d may be", r.bytes, limit)
				}
				continue
			}
			from, most := rapid.Uint64Range(1, sequence).Draw(t, "from"), rapid.IntRange(1, 10).Draw(t, "most")
			odd := func(m *Message) bool { return m.Sequence%2 == 1 }
			maxBytes := rapid.IntRange(1, 6000).Draw(t, "most bytes")
			f, err := r.Read(nil, from, Most{most, maxBytes}, odd)
			got, next := f.Messages, f.Next
			first, _ := r.Span()
			if err != nil || f.Held != (from >= first) {
				t.Fatalf("from %d, held from %d on: held %v, %v", from, first, f.Held, err)
			}
			if !f.Held {
				continue
			}
			bytes := 0
			for _, m := range got {
				bytes += len(m.Data)
			}
			if bytes > maxBytes && len(got) > 1 {
				t.Fatalf("%d bytes in %d messages, at most %d are wanted", bytes, len(got), maxBytes)
			}
			var want []uint64
			for _, s := range stream {
				if s >= from && s < next && s%2 == 1 {
					want = append(want, s)
				}
			}
			if len(got) != len(want) || len(got) > most || next < from {
				t.Fatalf("from %d to %d: got %d messages, want %v", from, next, len(got), want)
			}
			for i, m := range got {
				if m.Sequence != want[i] {
					t.Fatalf("got %d, want %v", m.Sequence, want)
				}
			}
		}
	})
}

// Many read while one adds: no reader waits for another, and all see everything.
func TestManyReaders(t *testing.T) {
	const messages, readers = 5000, 50
	r := NewBudget(1 << 30).NewRing(1)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var reading sync.WaitGroup
	for range readers {
		reading.Go(func() {
			for from := uint64(1); from <= messages; {
				f, err := r.Read(nil, from, Most{100, 1 << 20}, all)
				if err != nil || !f.Held || uint64(len(f.Messages)) != f.Next-from {
					t.Errorf("from %d to %d: %d messages, held %v, %v", from, f.Next, len(f.Messages), f.Held, err)
					return
				}
				if f.Next > from {
					from = f.Next
					continue
				}
				select {
				case <-f.Changed:
				case <-ctx.Done():
					t.Error(ctx.Err())
					return
				}
			}
		})
	}
	for n := uint64(1); n <= messages; n++ {
		if err := r.Add([]*Message{{Sequence: n}}, n+1); err != nil {
			t.Fatal(err)
		}
	}
	reading.Wait()
}

// The end of a ring reaches all readers, also waiting ones, and is final.
func TestRingEnds(t *testing.T) {
	r := NewBudget(1000).NewRing(5)
	if err := r.Add([]*Message{{Sequence: 4}}, 5); err == nil {
		t.Error("a message of before the beginning is taken")
	}
	gone := errors.New("the stream was made anew")
	f, err := r.Read(nil, 5, Most{1, 1}, all)
	if err != nil {
		t.Fatal(err)
	}
	r.End(gone)
	r.End(fmt.Errorf("again"))
	<-f.Changed
	<-f.Urgent
	if err := r.Add([]*Message{{Sequence: 5}}, 6); !errors.Is(err, gone) {
		t.Errorf("who adds gets %v", err)
	}
	if _, err := r.Read(nil, 5, Most{1, 1}, all); !errors.Is(err, gone) {
		t.Errorf("who reads gets %v", err)
	}
}

// Messages that left the stream before they came here are not held: a reader that wants one is sent
// to the stream, which reports the loss.
func TestSkip(t *testing.T) {
	r := NewBudget(10_000).NewRing(1)
	if err := r.Add([]*Message{{Sequence: 1}, {Sequence: 2}}, 3); err != nil {
		t.Fatal(err)
	}
	r.Skip(3) // nothing is missing
	if f, err := r.Read(nil, 1, Most{10, 10}, all); err != nil || !f.Held || len(f.Messages) != 2 {
		t.Fatalf("%+v, %v", f, err)
	}
	waiting, err := r.Read(nil, 3, Most{10, 10}, all)
	if err != nil {
		t.Fatal(err)
	}
	r.Skip(7)
	<-waiting.Changed
	for from, held := range map[uint64]bool{2: false, 3: false, 6: false, 7: true} {
		if f, err := r.Read(nil, from, Most{10, 10}, all); err != nil || f.Held != held || len(f.Messages) != 0 {
			t.Errorf("from %d: %+v, %v", from, f, err)
		}
	}
	if err := r.Add([]*Message{{Sequence: 7}}, 8); err != nil || r.bytes != (&Message{}).size() {
		t.Errorf("%d bytes, %v", r.bytes, err)
	}
}

// Data that is made of a message counts as memory of the ring, until the message goes.
func TestCharged(t *testing.T) {
	r := NewBudget(100_000).NewRing(1)
	for n := range uint64(10) {
		m := newMessage(stream.Message{Sequence: n + 1, Subject: "obs.hub.mag-1.raw", Data: telemetry("mag-1", 20)})
		if err := r.Add([]*Message{m}, n+2); err != nil {
			t.Fatal(err)
		}
		before := r.bytes
		m.Text()
		m.Datagram(7)
		if text, part := len(m.text), len(m.parts[7].Data); r.bytes < before+text+part || r.bytes > int(r.budget.limit) {
			t.Fatalf("%d bytes are held, %d before %d of text and %d of a part", r.bytes, before, text, part)
		}
	}
	for _, m := range append([]*Message{}, r.messages...) {
		was := r.bytes
		r.drop()
		if freed := was - r.bytes; freed < len(m.text)+len(m.Data) {
			t.Fatalf("%d bytes are free after message %d of %d went", freed, m.Sequence, len(m.text)+len(m.Data))
		}
	}
	if r.bytes != 0 {
		t.Errorf("%d bytes are held by nothing", r.bytes)
	}
}

// A message is cut behind any of its datagrams, and into each.
func TestParts(t *testing.T) {
	m := newMessage(stream.Message{Sequence: 1, Subject: "obs.hub.mag-1.raw", Data: telemetry("mag-1", 5)})
	if m.Last != 4 || m.After(4) != nil || m.After(1<<31) != nil {
		t.Fatalf("last is %d", m.Last)
	}
	for n := range 5 {
		d := m.Datagram(n)
		if d.Last != uint32(n) || string(d.Datagrams()[0].Payload) != fmt.Sprint("sample ", n) || len(d.Datagrams()) != 1 || d != m.Datagram(n) {
			t.Errorf("datagram %d: %+v", n, d.Datagrams())
		}
		if rest := m.After(uint32(n)); n < 4 && (len(rest.Datagrams()) != 4-n || rest.Last != 4 || string(rest.Datagrams()[0].Payload) != fmt.Sprint("sample ", n+1)) {
			t.Errorf("behind %d: %+v", n, rest.Datagrams())
		}
	}
}

func telemetry(instrument string, datagrams int) []byte {
	b := wire.AppendTelemetryHeader(nil, instrument, "raw")
	for n := range datagrams {
		b = wire.AppendDatagram(b, wire.Datagram{ReceivedAt: time.Unix(int64(n), 0), Source: netip.MustParseAddrPort("192.0.2.7:4000"), Payload: fmt.Append(nil, "sample ", n)})
	}
	return b
}

// Lag counts wanted messages; beyond the reach of the ring, the bytes are unknown.
func TestLag(t *testing.T) {
	r := NewBudget(20 * (&Message{Data: make([]byte, 100)}).size()).NewRing(1)
	for s := uint64(1); s <= 100; s++ {
		if err := r.Add([]*Message{{Sequence: s, Data: make([]byte, 100), At: time.Unix(int64(s), 0)}}, s+1); err != nil {
			t.Fatal(err)
		}
	}
	first, _ := r.Span()
	if first < 50 || first > 91 {
		t.Fatalf("the ring holds from %d on", first)
	}
	odd := func(m *Message) bool { return m.Sequence%2 == 1 }
	for _, c := range []struct {
		name   string
		from   uint64
		wanted func(*Message) bool
		most   int
		want   Lag
	}{
		{"nothing", 101, all, 512, Lag{}},
		{"what is held", 91, all, 512, Lag{Messages: 10, Bytes: 1000, Since: time.Unix(91, 0)}},
		{"some of it", 91, odd, 512, Lag{Messages: 5, Bytes: 500, Since: time.Unix(91, 0)}},
		{"the others are like those that are looked at", 91, all, 5, Lag{Messages: 10, Bytes: 1000, Since: time.Unix(91, 0)}},
		{"from before the ring on", first - 10, all, 512, Lag{Messages: 10 + 101 - first, Bytes: 100 * int64(101-first), Unsized: true}},
	} {
		if got := r.lag(c.from, c.wanted, c.most); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	a, b := Lag{Messages: 1, Bytes: 2, Since: time.Unix(7, 0)}, Lag{Messages: 3, Unsized: true, Since: time.Unix(5, 0)}
	if got := a.Plus(b); got != (Lag{Messages: 4, Bytes: 2, Unsized: true, Since: time.Unix(5, 0)}) || got != b.Plus(a) {
		t.Errorf("both together: %+v", got)
	}
	if got := a.Plus(Lag{}); got != a {
		t.Errorf("with nothing: %+v", got)
	}
}
