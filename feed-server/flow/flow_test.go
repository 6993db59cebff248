// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

func mustLatest(t rapid.TB, b Bounds) *Latest {
	t.Helper()
	l, err := NewLatest(b)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// For any input every item is given, replaced, overflowed or waiting; the waiting items are within
// the bounds, and no consumer is given an item older than one it had.
func TestLatestLosesNoCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bounds := Bounds{Items: rapid.IntRange(1, 6).Draw(t, "items"), Bytes: rapid.IntRange(1, 500).Draw(t, "bytes")}
		l := mustLatest(t, bounds)
		var offered, given, said uint64
		last := map[string]time.Time{}
		take := func(most int) {
			for _, k := range l.Take(most) {
				given++
				said += k.Replaced
				if k.At.Before(last[k.Key]) && k.Value.(bool) {
					t.Fatalf("%s went back from %v to %v", k.Key, last[k.Key], k.At)
				}
				last[k.Key] = k.At
			}
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "take") {
				take(rapid.IntRange(0, 300).Draw(t, "most"))
				continue
			}
			key := fmt.Sprint(rapid.IntRange(0, 7).Draw(t, "key"))
			at := start.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "at")) * time.Second)
			also := rapid.Uint64Range(0, 3).Draw(t, "also")
			l.Offer(Item{Key: key, At: at, Size: rapid.IntRange(1, 200).Draw(t, "size"), Value: !at.Before(last[key]), Also: also})
			offered += 1 + also
			items, bytes := l.Waiting()
			if items > bounds.Items || bytes > bounds.Bytes && items > 1 {
				t.Fatalf("%d items of %d bytes wait within %+v", items, bytes, bounds)
			}
		}
		items, _ := l.Waiting()
		if got := given + l.Replaced() + l.Overflowed() + uint64(items); got != offered {
			t.Fatalf("of %d items %d were given, %d replaced, %d overflowed, %d wait", offered, given, l.Replaced(), l.Overflowed(), items)
		}
		take(1 << 30)
		if said > l.Replaced() {
			t.Fatalf("consumers were told of %d replaced items, %d were", said, l.Replaced())
		}
	})
}

// The newest wins, by its own time, and the consumer learns how many items it stands for.
func TestLatest(t *testing.T) {
	l := mustLatest(t, Bounds{Items: 10, Bytes: 1000})
	for n, second := range []int{1, 3, 2} {
		l.Offer(Item{Key: "a", At: start.Add(time.Duration(second) * time.Second), Size: 1, Value: n})
	}
	l.Offer(Item{Key: "b", At: start, Size: 1})
	due := l.Take(1)
	if len(due) != 1 || due[0].Key != "a" || due[0].Value != 1 || due[0].Replaced != 2 {
		t.Errorf("first is given %+v", due)
	}
	if due = l.Take(1); len(due) != 1 || due[0].Key != "b" || due[0].Replaced != 0 {
		t.Errorf("then is given %+v", due)
	}
	if _, err := NewLatest(Bounds{Items: 1}); err == nil {
		t.Error("bounds of no byte are taken")
	}
}

// A source that is replaced all the time keeps its turn, and others get theirs.
func TestNobodyStarves(t *testing.T) {
	l := mustLatest(t, Bounds{Items: 10, Bytes: 1000})
	given := map[string]int{}
	for n := range 100 {
		for range 50 {
			l.Offer(Item{Key: "loud", At: start.Add(time.Duration(n) * time.Second), Size: 1})
		}
		l.Offer(Item{Key: "quiet", At: start.Add(time.Duration(n) * time.Second), Size: 1})
		for _, k := range l.Take(1) {
			given[k.Key]++
		}
	}
	if given["quiet"] != 50 || given["loud"] != 50 {
		t.Errorf("given: %v", given)
	}
}

// One sample an interval and source, the newest of it; late ones and those
// between are counted, and a source that falls silent is not held back.
func TestSample(t *testing.T) {
	l := mustLatest(t, Bounds{Items: 100, Bytes: 10_000})
	s, err := NewSample(200*time.Millisecond, l)
	if err != nil {
		t.Fatal(err)
	}
	var got []Kept
	for ms := 0; ms < 1000; ms += 20 { // 50 Hz
		at := start.Add(time.Duration(ms) * time.Millisecond)
		s.Offer(Item{Key: "a", At: at, Size: 1, Value: ms}, at)
		got = append(got, l.Take(1000)...)
	}
	s.Offer(Item{Key: "a", At: start.Add(100 * time.Millisecond), Size: 1, Value: "late"}, start.Add(time.Second))
	over := start.Add(time.Second + 200*time.Millisecond) // and as long again for what comes late
	if next := s.Due(over.Add(-time.Millisecond)); !next.Equal(over) {
		t.Errorf("the last interval is due at %v", next)
	}
	if next := s.Due(over); !next.IsZero() {
		t.Errorf("something waits until %v", next)
	}
	got = append(got, l.Take(1000)...)
	values, sampled := []int{}, uint64(0)
	for _, k := range got {
		values = append(values, k.Value.(int))
		sampled += k.Sampled
	}
	if fmt.Sprint(values) != "[180 380 580 780 980]" || sampled != 46 || s.Sampled() != 46 {
		t.Errorf("given %v, %d and %d are left out", values, sampled, s.Sampled())
	}
	if _, err := NewSample(time.Millisecond, l); err == nil {
		t.Error("an interval of 1 ms is taken")
	}
}

// Whatever comes to a Sample is given, sampled, replaced or overflowed, or waits.
func TestSampleLosesNoCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bounds := Bounds{Items: rapid.IntRange(1, 4).Draw(t, "items"), Bytes: rapid.IntRange(5, 50).Draw(t, "bytes")}
		l := mustLatest(t, bounds)
		s, err := NewSample(time.Duration(rapid.IntRange(10, 500).Draw(t, "interval"))*time.Millisecond, l)
		if err != nil {
			t.Fatal(err)
		}
		var offered, given uint64
		now := start
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "passes")) * time.Millisecond)
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				given += uint64(len(l.Take(rapid.IntRange(0, 5).Draw(t, "most"))))
			case 1:
				if next := s.Due(now); !next.IsZero() && !next.After(now) {
					t.Fatalf("what was due at %v waits at %v", next, now)
				}
			default:
				late := time.Duration(rapid.IntRange(0, 1000).Draw(t, "late")) * time.Millisecond
				also := rapid.Uint64Range(0, 3).Draw(t, "also")
				s.Offer(Item{Key: fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "key")), At: now.Add(-late), Size: rapid.IntRange(1, 20).Draw(t, "size"), Also: also}, now)
				offered += 1 + also
			}
			items, bytes := l.Waiting()
			for k := range s.All() {
				items, bytes = items+1, bytes+k.Size
			}
			if items > bounds.Items || bytes > bounds.Bytes && items > 1 {
				t.Fatalf("%d items of %d bytes wait within %+v", items, bytes, bounds)
			}
		}
		s.Due(now.Add(time.Hour))
		given += uint64(len(l.Take(1 << 30)))
		if got := given + s.Sampled() + l.Replaced() + l.Overflowed(); got != offered {
			t.Fatalf("of %d items %d were given, %d sampled, %d replaced, %d overflowed", offered, given, s.Sampled(), l.Replaced(), l.Overflowed())
		}
	})
}
