// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"errors"
	"slices"
	"testing"
)

// fill adds messages of so many bytes to a ring, one by one.
func fill(t *testing.T, r *Ring, messages, bytes int) {
	t.Helper()
	for range messages {
		_, next := r.Span()
		if err := r.Add([]*Message{{Sequence: next, Data: make([]byte, bytes)}}, next+1); err != nil {
			t.Fatal(err)
		}
	}
}

func (r *Ring) sequences() (all []uint64) {
	for _, m := range r.messages {
		all = append(all, m.Sequence)
	}
	return all
}

// Rings share one budget: a busy one alone takes all of it, and leaves a quiet one
// what that has.
func TestBudgetIsShared(t *testing.T) {
	const limit, size = 100_000, 1000
	b := NewBudget(limit)
	busy := b.NewRing(1)
	fill(t, busy, 200, size)
	if alone := len(busy.messages); alone < limit/(size+messageOverhead+100) || b.Used() > limit {
		t.Fatalf("one ring alone holds %d messages, %d bytes of %d", alone, b.Used(), limit)
	}
	quiet, other := b.NewRing(1), b.NewRing(1)
	fill(t, quiet, 3, size)
	for range 50 {
		fill(t, busy, 3, size)
		fill(t, other, 3, size)
		if sum := busy.bytes + quiet.bytes + other.bytes; b.Used() > limit || int64(sum) != b.Used() {
			t.Fatalf("rings hold %d bytes, the budget says %d of %d", sum, b.Used(), limit)
		}
	}
	if got := quiet.sequences(); !slices.Equal(got, []uint64{1, 2, 3}) {
		t.Errorf("the quiet one holds %v", got)
	}
	if less, more := min(len(busy.messages), len(other.messages)), max(len(busy.messages), len(other.messages)); more-less > 3 {
		t.Errorf("two that are busy hold %d and %d messages", less, more)
	}
	// A ring that ends releases what it held.
	busy.End(errors.New("over"))
	other.Skip(10_000)
	if b.Used() != int64(quiet.bytes) || len(b.rings) != 2 {
		t.Errorf("%d bytes are held by %d rings, the quiet one has %d", b.Used(), len(b.rings), quiet.bytes)
	}
}

// Data that is made of messages counts in the budget too: messages go when it is spent on that.
func TestBudgetCountsText(t *testing.T) {
	b := NewBudget(100_000)
	r := b.NewRing(1)
	fill(t, r, 80, 1000)
	held := slices.Clone(r.messages)
	for _, m := range held {
		m.Text()
		if b.Used() > 100_000 {
			t.Fatalf("%d bytes are held", b.Used())
		}
	}
	if len(r.messages) == len(held) {
		t.Error("no message went")
	}
}
