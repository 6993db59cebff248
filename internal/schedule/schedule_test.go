// SPDX-License-Identifier: Apache-2.0

package schedule_test

import (
	"errors"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/schedule"
)

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	return must(time.Parse(time.RFC3339, text))(t)
}

// TestScheduleNext: what begins when, over the days on which clocks are turned, as Kubernetes does it.
func TestScheduleNext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, cron, zone, after, next string }{
		{"in UTC", "15 2 * * *", "Etc/UTC", "2026-11-21T18:00:00Z", "2026-11-22T02:15:00Z"},
		{"a zone without a name is UTC", "15 2 * * *", "", "2026-11-21T18:00:00Z", "2026-11-22T02:15:00Z"},
		{"in a zone", "15 2 * * *", "Europe/Oslo", "2026-11-21T18:00:00Z", "2026-11-22T01:15:00Z"},
		{"the hour that is left out", "30 2 * * *", "Europe/Oslo", "2026-03-28T12:00:00Z", "2026-03-30T00:30:00Z"},
		{"the hour after it", "0 3 * * *", "Europe/Oslo", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"},
		{"the hour that comes twice", "30 2 * * *", "Europe/Oslo", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"},
		{"and again", "30 2 * * *", "Europe/Oslo", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"},
		{"a quarter of an hour's offset", "0 0 * * *", "Asia/Kathmandu", "2026-11-21T18:00:00Z", "2026-11-21T18:15:00Z"},
		{"by its name", "@hourly", "Etc/UTC", "2026-11-21T18:00:00Z", "2026-11-21T19:00:00Z"},
		{"on a 29 February", "0 0 29 2 *", "Etc/UTC", "2026-11-21T18:00:00Z", "2028-02-29T00:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := must(schedule.Parse(c.cron, c.zone))(t)
			if next := s.Next(instant(t, c.after)); !next.Equal(instant(t, c.next)) {
				t.Errorf("after %s comes %s, want %s", c.after, next.Format(time.RFC3339), c.next)
			}
		})
	}
}

func TestScheduleThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cron, zone string
		want       error
	}{
		{"0 0 31 2 *", "Etc/UTC", schedule.ErrCron},
		{"30-10 2 * * *", "Etc/UTC", schedule.ErrCron},
		{"0 2 * XYZ *", "Etc/UTC", schedule.ErrCron},
		{"", "Etc/UTC", schedule.ErrCron},
		{"0 2 * * *", "Mars/Olympus", schedule.ErrTimeZone},
		{"0 2 * * *", "Local", schedule.ErrTimeZone},
		{"0 2 * * *", "../../etc/passwd", schedule.ErrTimeZone},
	} {
		if _, err := schedule.Parse(c.cron, c.zone); !errors.Is(err, c.want) {
			t.Errorf("%q in %q: %v, want %v", c.cron, c.zone, err, c.want)
		}
	}
}

// TestScheduleDue: however many times have passed, one run is due, and none once its deadline has passed.
func TestScheduleDue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, cron, last, now string
		deadline              time.Duration
		at                    string
		due, missed           bool
	}{
		{"not yet", "0 2 * * *", "2026-11-21T02:00:00Z", "2026-11-22T01:59:59Z", 0, "", false, false},
		{"now", "0 2 * * *", "2026-11-21T02:00:00Z", "2026-11-22T02:00:00Z", 0, "2026-11-22T02:00:00Z", true, false},
		{"it has begun already", "0 2 * * *", "2026-11-22T02:00:00Z", "2026-11-22T02:00:01Z", time.Hour, "", false, false},
		{"late, within the deadline", "0 2 * * *", "2026-11-21T02:00:00Z", "2026-11-22T02:59:00Z", time.Hour, "2026-11-22T02:00:00Z", true, false},
		{"too late", "0 2 * * *", "2026-11-21T02:00:00Z", "2026-11-22T03:00:01Z", time.Hour, "2026-11-22T02:00:00Z", false, true},
		{"late by days, without a deadline", "0 2 * * *", "2026-11-01T02:00:00Z", "2026-11-22T23:00:00Z", 0, "2026-11-22T02:00:00Z", true, false},
		{"each minute, after ten years", "* * * * *", "2016-11-01T02:00:00Z", "2026-11-22T23:00:30Z", time.Minute, "2026-11-22T23:00:00Z", true, false},
		{"a clock that was turned back", "0 2 * * *", "2026-11-22T02:00:00Z", "2025-11-22T02:00:00Z", time.Hour, "", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := must(schedule.Parse(c.cron, "Etc/UTC"))(t)
			at, due, missed := s.Due(instant(t, c.last), instant(t, c.now), c.deadline)
			want := time.Time{}
			if c.at != "" {
				want = instant(t, c.at)
			}
			if !at.Equal(want) || due != c.due || missed != c.missed {
				t.Errorf("at %s, due %t, missed %t; want %s, %t, %t", at, due, missed, want, c.due, c.missed)
			}
		})
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
