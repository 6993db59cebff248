// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func all(*Message) bool { return true }

// Readers get each message that is held once and in order; who asks for what is
// gone is told so; memory stays bounded.
func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 20_000).Draw(t, "limit")
		r := NewRing(limit, 1)
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
			got, next, held, err := r.Read(nil, from, most, odd)
			first, _ := r.Span()
			if err != nil || held != (from >= first) {
				t.Fatalf("from %d, held from %d on: held %v, %v", from, first, held, err)
			}
			if !held {
				continue
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

// Many read while one adds: nobody waits for another, and all see everything.
func TestManyReaders(t *testing.T) {
	const messages, readers = 5000, 50
	r := NewRing(1<<30, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var reading sync.WaitGroup
	for range readers {
		reading.Go(func() {
			for from := uint64(1); from <= messages; {
				if err := r.Wait(ctx, from); err != nil {
					t.Error(err)
					return
				}
				got, next, held, err := r.Read(nil, from, 100, all)
				if err != nil || !held || uint64(len(got)) != next-from {
					t.Errorf("from %d to %d: %d messages, held %v, %v", from, next, len(got), held, err)
					return
				}
				from = next
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

// A ring that ends tells all, also those who wait, and takes no steps back.
func TestRingEnds(t *testing.T) {
	r := NewRing(1000, 5)
	if err := r.Add([]*Message{{Sequence: 4}}, 5); err == nil {
		t.Error("a message of before the beginning is taken")
	}
	gone := errors.New("the stream was made anew")
	waiting := make(chan error)
	go func() { waiting <- r.Wait(t.Context(), 5) }()
	r.End(gone)
	r.End(fmt.Errorf("again"))
	if err := <-waiting; !errors.Is(err, gone) {
		t.Errorf("who waited got %v", err)
	}
	if err := r.Add([]*Message{{Sequence: 5}}, 6); !errors.Is(err, gone) {
		t.Errorf("who adds gets %v", err)
	}
	if _, _, _, err := r.Read(nil, 5, 1, all); !errors.Is(err, gone) {
		t.Errorf("who reads gets %v", err)
	}
}
