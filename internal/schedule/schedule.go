// SPDX-License-Identifier: Apache-2.0

// Package schedule says when something begins again and again, as CronJobs have it.
package schedule

import (
	"errors"
	"fmt"
	"time"
	_ "time/tzdata" // images and small computers have no tz database of their own

	"github.com/robfig/cron/v3"
)

// Schedule is when something begins again and again. It is read by the library that Kubernetes reads CronJobs with, so that
// what is shown of a CronJob, and what begins without a cluster, is what Kubernetes does.
type Schedule struct {
	cron cron.Schedule
	zone *time.Location
}

// Errors of Parse.
var (
	ErrTimeZone = errors.New("the tz database has no such time zone")
	ErrCron     = errors.New("the schedule cannot be read")
)

// Parse reads a schedule as CronJobs have it. Errors: ErrTimeZone, ErrCron.
func Parse(expression, zone string) (Schedule, error) {
	location, err := ZoneOf(zone)
	if err != nil {
		return Schedule{}, err
	}
	s, err := cron.ParseStandard(expression)
	if err != nil {
		return Schedule{}, fmt.Errorf("%w: %v", ErrCron, err)
	}
	schedule := Schedule{s, location}
	// The library looks five years ahead: of a leap year and those after it that is every date there is.
	if schedule.Next(anyLeapYear).IsZero() {
		return Schedule{}, fmt.Errorf("%w: it names no day that there is", ErrCron)
	}
	return schedule, nil
}

// anyLeapYear begins a year with a 29 February.
var anyLeapYear = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// ZoneOf is a time zone by its name; UTC where it has none. Errors: ErrTimeZone.
func ZoneOf(name string) (*time.Location, error) {
	if name == "Local" { // Go takes it for the computer's time zone
		return nil, fmt.Errorf("%w as %q", ErrTimeZone, name)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%w as %q", ErrTimeZone, name)
	}
	return zone, nil
}

// Next is when it begins first after a time; zero where that is more than five years away.
func (s Schedule) Next(after time.Time) time.Time {
	next := s.cron.Next(after.In(s.zone))
	if next.IsZero() {
		return next
	}
	return next.UTC()
}

// Due says whether a run is due now, and at which time of the schedule it should have begun: the last one after the time for
// which the last run began (or since the schedule is in force), and not longer ago than deadline, where that is not 0. However
// many times went by, one run is due. Missed: at least one time went by, and it is too late to begin.
func (s Schedule) Due(last, now time.Time, deadline time.Duration) (at time.Time, due, missed bool) {
	latest := s.lastBefore(last, now)
	if latest.IsZero() {
		return time.Time{}, false, false
	}
	if deadline > 0 && now.Sub(latest) > deadline {
		return latest, false, true
	}
	return latest, true, false
}

// lastBefore is the last time of the schedule in (after, now]; zero if there is none. It searches backwards from now over spans that
// double, so that a schedule of each minute that was suspended for years takes no million steps.
func (s Schedule) lastBefore(after, now time.Time) time.Time {
	for span := time.Minute; ; span *= 2 {
		from := now.Add(-span)
		whole := !from.After(after)
		if whole {
			from = after
		}
		next := s.Next(from)
		if !next.IsZero() && !next.After(now) {
			last := next
			for next = s.Next(last); !next.IsZero() && !next.After(now); next = s.Next(last) {
				last = next
			}
			return last
		}
		if whole {
			return time.Time{}
		}
	}
}
