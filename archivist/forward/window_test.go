// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
)

func sequences(items []item) []uint64 {
	var all []uint64
	for _, i := range items {
		all = append(all, i.sequence)
	}
	return all
}

func TestWindow(t *testing.T) {
	base := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return base.Add(time.Duration(seconds) * time.Second) }
	w := newWindow(wire.ForwardCursor{Next: 10, Done: []uint64{12}})
	// Announced as 10, 11, 12 and 13, received as 11, 13, 10; 12 is sent.
	for sequence, received := range map[uint64]int{10: 3, 11: 1, 12: 0, 13: 2} {
		w.add(item{sequence: sequence, receivedAt: at(received), at: at(10), readAt: at(100)})
	}
	w.next, w.caughtUp = 14, true
	if got := w.ready(at(101), 2*time.Second, 512); len(got) > 0 {
		t.Errorf("%v are ready too soon", sequences(got))
	}
	if diff := cmp.Diff([]uint64{11}, sequences(w.ready(at(101), 2*time.Second, 3))); diff != "" {
		t.Errorf("ready of a full window:\n%s", diff)
	}
	if diff := cmp.Diff([]uint64{11, 13, 10}, sequences(w.ready(at(102), 2*time.Second, 512))); diff != "" {
		t.Errorf("ready:\n%s", diff)
	}
	w.caughtUp = false
	if got := w.ready(at(102), 2*time.Second, 512); len(got) > 0 {
		t.Errorf("%v are ready although there is more", sequences(got))
	}
	w.add(item{sequence: 14, receivedAt: at(50), at: at(12), readAt: at(100)})
	w.next = 15
	ready := w.ready(at(100), 2*time.Second, 512) // by the server's clock
	if diff := cmp.Diff([]uint64{11, 13, 10}, sequences(ready)); diff != "" {
		t.Errorf("ready by the server's clock:\n%s", diff)
	}
	position := func(next uint64, done ...uint64) {
		t.Helper()
		gotNext, gotDone := w.position()
		if gotNext != next || !slices.Equal(gotDone, done) {
			t.Errorf("position %d and %v, want %d and %v", gotNext, gotDone, next, done)
		}
	}
	position(10, 12)
	w.remove(ready[:2])
	position(10, 11, 12, 13)
	w.remove(ready[2:])
	position(14)
	w.caughtUp = true
	w.remove(w.ready(at(200), 0, 512))
	position(15)
}

// However it is interrupted, each item is sent once, and in order where it was
// announced soon enough.
func TestWindowResumes(t *testing.T) {
	const items = 2000
	received := make([]int, items) // by sequence; neighbors are mixed up
	for i := range received {
		received[i] = i
	}
	for i := 0; i < items; i += 20 {
		rand.Shuffle(20, func(a, b int) { received[i+a], received[i+b] = received[i+b], received[i+a] })
	}
	base := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	cursor := wire.ForwardCursor{Next: 0}
	var sent []int
	for cursor.Next < items {
		w := newWindow(cursor)
		for range 1 + rand.IntN(5) { // until it is killed
			for len(w.items) < 64 && w.next < items {
				w.add(item{sequence: w.next, receivedAt: base.Add(time.Duration(received[w.next])), at: base, readAt: base})
				w.next++
			}
			ready := w.ready(base, time.Hour, min(64, len(w.items)))
			for _, i := range ready {
				sent = append(sent, received[i.sequence])
			}
			w.remove(ready)
			cursor.Next, cursor.Done = w.position()
		}
	}
	if !slices.IsSorted(sent) || len(sent) != items {
		t.Errorf("%d of %d were sent, in order: %t", len(sent), items, slices.IsSorted(sent))
	}
}
