// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/sender/queue"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// entries of one minute each, beginning at noon.
func entries(sizes ...int64) []queue.Entry {
	var all []queue.Entry
	for i, size := range sizes {
		all = append(all, queue.Entry{Millis: noon.Add(time.Duration(i) * time.Minute).UnixMilli(), Number: uint32(i + 1), Size: size})
	}
	return all
}

// picks takes entries while there are any, as if each had its receipt at once.
func picks(s *schedule, now time.Time, most int) string {
	var got []string
	for range most {
		e, _, ok := s.pick(now)
		if !ok {
			break
		}
		got = append(got, fmt.Sprint(e.Number))
		s.budget.spent += e.Size
		s.received(e)
	}
	return strings.Join(got, " ")
}

func TestOrder(t *testing.T) {
	for name, c := range map[string]struct {
		schedule *schedule
		sizes    []int64
		want     string
	}{
		"oldest first":         {newSchedule(false, 0.5, 0), []int64{1, 1, 1, 1}, "1 2 3 4"},
		"newest first":         {newSchedule(true, 0, 0), []int64{1, 1, 1, 1}, "4 3 2 1"},
		"half for the oldest":  {newSchedule(true, 0.5, 0), []int64{10, 10, 10, 10, 10, 10}, "6 1 5 2 4 3"},
		"a fifth":              {newSchedule(true, 0.2, 0), []int64{10, 10, 10, 10, 10, 10, 10}, "7 6 5 4 1 3 2"},
		"a large one is saved": {newSchedule(true, 0.5, 0), []int64{30, 10, 10, 10, 10, 10}, "6 5 4 1 3 2"},
	} {
		c.schedule.add(entries(c.sizes...)...)
		if got := picks(c.schedule, noon, 100); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if n, bytes, oldest := c.schedule.owed(); n != 0 || bytes != 0 || !oldest.IsZero() {
			t.Errorf("%s: %d objects, %d bytes, oldest %v are left", name, n, bytes, oldest)
		}
	}
}

// TestShare: while new objects come as fast as the link takes them, the oldest
// get their share of the bytes, whatever the sizes.
func TestShare(t *testing.T) {
	s := newSchedule(true, 0.2, 0)
	old := entries(make([]int64, 3000)...)
	for i := range old {
		old[i].Size = int64(1000 + 977*i%9000)
	}
	s.add(old...)
	var fresh, backfill int64
	late := 0
	for i := range 5000 {
		now := noon.Add(1000*time.Hour + time.Duration(i)*time.Minute)
		s.add(queue.Entry{Millis: now.UnixMilli(), Number: uint32(10_000 + i), Size: int64(500 + 631*i%20_000)})
		e, _, ok := s.pick(now)
		if !ok {
			t.Fatal("nothing is sent")
		}
		if e.Number < 10_000 {
			backfill += e.Size
		} else {
			fresh += e.Size
			if e.Millis < now.Add(-time.Hour).UnixMilli() {
				late++
			}
		}
		s.received(e)
	}
	if share := float64(backfill) / float64(fresh+backfill); share < 0.19 || share > 0.21 {
		t.Errorf("the oldest got %.3f of the bytes", share)
	}
	if late > 0 {
		t.Errorf("%d were sent late while newer ones waited", late)
	}
}

// TestBudget: a day's limit is not exceeded; an object that does not fit waits while smaller ones
// are sent; the next day it is sent.
func TestBudget(t *testing.T) {
	s := newSchedule(false, 0, 1000)
	s.add(entries(600, 500, 300, 80, 10, 20)...)
	if got := picks(s, noon, 100); got != "1 3 4 5" { // 990 are for objects
		t.Errorf("on the first day %s", got)
	}
	_, wait, ok := s.pick(noon.Add(11 * time.Hour))
	if ok || wait != time.Hour {
		t.Errorf("then %v, in %v", ok, wait)
	}
	if !s.budget.admitsBeat(noon) {
		t.Error("nothing is left for heartbeats")
	}
	s.budget.spent = 1000
	if s.budget.admitsBeat(noon) {
		t.Error("heartbeats go beyond the budget")
	}
	if got := picks(s, noon.Add(13*time.Hour), 100); got != "2 6" {
		t.Errorf("on the next day %s", got)
	}
	// A clock that steps back to the day before gives no second budget.
	s.add(entries(400, 500)...)
	if got := picks(s, noon, 100); got != "1" || s.budget.spent != 920 {
		t.Errorf("after a step back %s, spent %d", got, s.budget.spent)
	}
}

// TestBudgetPromised: what is on its way counts, and a try that took nothing is
// given back.
func TestBudgetPromised(t *testing.T) {
	s := newSchedule(false, 0, 1000)
	s.add(entries(600, 600)...)
	first, _, ok := s.pick(noon)
	if _, _, both := s.pick(noon); !ok || both {
		t.Errorf("first %v, both %v", ok, both)
	}
	if s.budget.counts() != 600 {
		t.Errorf("%d count", s.budget.counts())
	}
	s.postpone(first, noon)
	if s.budget.counts() != 0 {
		t.Errorf("%d count", s.budget.counts())
	}
}

// TestBudgetHuge: what is larger than a day's budget goes first thing in a day,
// and the days after pay for it.
func TestBudgetHuge(t *testing.T) {
	s := newSchedule(false, 0, 1000)
	s.budget.roll(noon)
	s.budget.spent = 50
	s.add(entries(2500, 300)...)
	if got := picks(s, noon, 100); got != "2" {
		t.Errorf("amid a day %s", got)
	}
	tomorrow := noon.Add(24 * time.Hour)
	if got := picks(s, tomorrow, 100); got != "1" || s.budget.spent != 2500 {
		t.Errorf("in the morning %s, spent %d", got, s.budget.spent)
	}
	s.add(entries(100)...)
	for day, want := range []string{"", "", "1"} {
		if got := picks(s, tomorrow.Add(time.Duration(day)*24*time.Hour), 100); got != want {
			t.Errorf("%d days after %q, want %q; spent %d", day, got, want, s.budget.spent)
		}
	}
}

// TestOutage: while nothing is taken all pause, longer each time up to a bound;
// the first success ends that at once.
func TestOutage(t *testing.T) {
	s := newSchedule(true, 0, 0)
	s.add(entries(1, 1, 1)...)
	now, longest := noon, time.Duration(0)
	for range 20 {
		e, wait, ok := s.pick(now)
		if !ok {
			t.Fatalf("nothing to try, wait %v", wait)
		}
		s.postpone(e, now)
		_, wait, ok = s.pick(now)
		if ok || wait <= 0 || wait > maxPause {
			t.Fatalf("after a failure: %v, wait %v", ok, wait)
		}
		longest = max(longest, wait)
		now = now.Add(wait)
	}
	if longest < maxPause/2 {
		t.Errorf("the longest pause is %v", longest)
	}
	e, _, _ := s.pick(now)
	s.received(e)
	if got := picks(s, now, 100); len(got) != 3 {
		t.Errorf("after the outage %q", got)
	}
}

// TestPoison: an object that always fails does not hold up the others.
func TestPoison(t *testing.T) {
	s := newSchedule(false, 0, 0)
	s.add(entries(1, 1, 1, 1)...)
	now, tries, got := noon, 0, ""
	for range 20 {
		e, wait, ok := s.pick(now)
		switch {
		case !ok:
			now = now.Add(max(wait, time.Millisecond))
		case e.Number == 1:
			tries++
			s.postpone(e, now)
		default:
			got += fmt.Sprint(e.Number)
			s.received(e)
		}
	}
	if n, _, oldest := s.owed(); got != "234" || tries < 2 || n != 1 || !oldest.Equal(noon) {
		t.Errorf("sent %s, tried the bad one %d times; %d owed since %v", got, tries, n, oldest)
	}
}

// TestPace: over any time no more goes out than the rate and one piece.
func TestPace(t *testing.T) {
	for _, bytesPerSecond := range []int64{100, 25_000, 10_000_000} {
		p := newPacer(t.Context(), bytesPerSecond)
		now := noon
		p.now = func() time.Time { return now }
		p.sleep = func(d time.Duration) { now = now.Add(d) }
		var sent int64
		for now.Sub(noon) < time.Minute {
			n := p.take(200_000)
			if n < 1 || n > maxWrite {
				t.Fatalf("%d bytes at a time", n)
			}
			sent += int64(n)
			if most := int64(float64(bytesPerSecond)*now.Sub(noon).Seconds()) + int64(p.limit.Burst()) + 1; sent > most {
				t.Fatalf("at %d B/s %d bytes went out in %v", bytesPerSecond, sent, now.Sub(noon))
			}
		}
		if least := 59 * bytesPerSecond; sent < least {
			t.Errorf("at %d B/s only %d bytes in a minute", bytesPerSecond, sent)
		}
	}
}
