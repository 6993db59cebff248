// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"time"
)

const (
	// maxClockOff is by how much the clock of another Site may differ from the one here, and maxClockBack by how much it may be behind what
	// it showed in an earlier run: a clock is set right by less, and an old copy of the index is further behind.
	maxClockOff  = 24 * time.Hour
	maxClockBack = time.Hour
)

// ClockError says that the clock of another Site cannot be believed. Times of receipt are kept as that Site says them.
type ClockError struct {
	// Says is what its clock shows, and Before what it showed in an earlier run, where it went back; zero where it is off.
	Says, Before time.Time
	Off          time.Duration
}

// Error implements error.
func (e *ClockError) Error() string {
	says := e.Says.UTC().Format(time.RFC3339)
	if !e.Before.IsZero() {
		return fmt.Sprintf("the clock of the other Site shows %s, and showed %s in an earlier run: it was set back, or what answers is an old copy of its index. "+
			"Ask its administrator to compare its clock (NTP), and whether a cache or a restored machine answers", says, e.Before.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("the clock of the other Site shows %s, which is off by %s: times of receipt are kept as that Site says them. Ask its administrator to set its clock (NTP)",
		says, e.Off.Round(time.Second))
}

// CheckClock compares what the clock of another Site shows with the one here, and with the latest time that it showed in earlier runs; zero: there were
// none. An answer that shows no time tells nothing. It returns the latest time for the next run, and what is wrong; nil: nothing.
func CheckClock(says, before, now time.Time) (latest time.Time, wrong *ClockError) {
	if before.Sub(now) > maxClockOff { // it was believed by a clock here that has been set since
		before = time.Time{}
	}
	switch off := says.Sub(now); {
	case says.IsZero():
		return before, nil
	case off.Abs() > maxClockOff:
		return before, &ClockError{Says: says, Off: off}
	case before.Sub(says) > maxClockBack:
		return before, &ClockError{Says: says, Before: before}
	case before.After(says):
		return before, nil
	}
	return says.UTC(), nil
}

// ClockMoved says whether the latest time that the clock of another Site showed is worth a note by itself, in a run that has nothing else to
// note: at most one run in each maxClockBack writes it.
func ClockMoved(noted, latest time.Time) bool { return latest.Sub(noted) > maxClockBack }
