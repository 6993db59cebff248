// SPDX-License-Identifier: Apache-2.0

package instrument_test

import (
	"math"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/instrument"
	"github.com/substorm/substorm/operator/plan/observed"
)

// Senders that several gateways heard count by when they were heard, by the operator's clock; those that have long been silent do not,
// unless all are.
func TestMergeSenders(t *testing.T) {
	now := time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC)
	said := func(sender string, ago time.Duration, objects int64) wire.SenderStatus {
		return wire.SenderStatus{Sender: sender, ReportedAt: now.Add(-ago), QueueObjects: objects}
	}
	// A pod whose clock is an hour ahead, and the operator sees its report late.
	pod := func(seenAgo time.Duration, senders ...wire.SenderStatus) observed.SenderReport {
		for i := range senders {
			senders[i].ReportedAt = senders[i].ReportedAt.Add(time.Hour)
		}
		sum := wire.MergeSenders(senders)
		sum.Senders = senders
		return observed.SenderReport{SenderStatus: sum, Seen: now.Add(-seenAgo)}
	}
	one := pod(time.Minute, said("a", time.Minute, 1), said("b", 5*time.Minute, 20), said("gone", 16*time.Minute, 4000))
	two := pod(2*time.Minute, said("b", 2*time.Minute, 300), said("a", 10*time.Minute, 50000))
	for name, c := range map[string]struct {
		reports []observed.SenderReport
		now     time.Time
		objects int64
		seenAgo time.Duration
	}{
		"two pods":               {[]observed.SenderReport{one, two}, now, 301, time.Minute},
		"one pod":                {[]observed.SenderReport{two}, now, 50300, 2 * time.Minute},
		"later":                  {[]observed.SenderReport{one, two}, now.Add(13*time.Minute + time.Second), 1, time.Minute},
		"all are silent":         {[]observed.SenderReport{one, two}, now.Add(time.Hour), 1, time.Minute},
		"a report of one sender": {[]observed.SenderReport{{SenderStatus: said("c", 0, 7), Seen: now}}, now, 7, 0},
	} {
		got := instrument.MergeSenders(c.reports, c.now)
		if got == nil || got.QueueObjects != c.objects || !got.Seen.Equal(now.Add(-c.seenAgo)) {
			t.Errorf("%s: %+v, want %d objects, seen %v ago", name, got, c.objects, c.seenAgo)
		}
	}
	if got := instrument.MergeSenders(nil, now); got != nil {
		t.Errorf("no report: %+v", got)
	}
}

// A sender may say anything of its clock, and conditions are made of it.
func FuzzClock(f *testing.F) {
	for _, offset := range []int64{0, 1, -1_500_000_000, 498_600 * 3_600_000_000_000, math.MaxInt64, math.MinInt64} {
		f.Add(offset, int64(0), int64(1))
		f.Add(offset, int64(math.MaxInt64), int64(math.MaxInt64))
	}
	f.Fuzz(func(t *testing.T, offset, roundTrip, queue int64) {
		now := time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC)
		off, trip := wire.Span(offset), wire.Span(roundTrip)
		said := &observed.SenderReport{Seen: now, SenderStatus: wire.SenderStatus{ReportedAt: now, ClockOffset: &off, RoundTrip: &trip, QueueObjects: queue}}
		status, _ := instrument.Status(instrument.View{
			Instrument: &v1alpha1.Instrument{}, Now: now, Sender: said, Bus: observed.Bus{Up: true},
		})
		if said.Differs(*said) {
			t.Error("a report differs from itself")
		}
		got := status.Sender.ClockOffset.Duration
		if math.Abs(float64(got)-float64(offset)) > 0.051*math.Abs(float64(offset))+1e6 {
			t.Errorf("an offset of %v is shown as %v", time.Duration(offset), got)
		}
	})
}
