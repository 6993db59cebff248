// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// budget is how many bytes may be sent in a UTC day. Every byte that the system took counts, also
// of tries that failed, and heartbeats. Headers of TCP and IP (3 to 5 percent) and retransmissions
// do not: the system does not report them.
type budget struct {
	// limit in bytes a day; 0 is none.
	limit int64
	day   wire.Day
	// spent in the day; what was spent beyond the limit counts for the next.
	spent int64
	// promised to objects that are on their way.
	promised int64
}

// heartbeatShare is the part of a budget that objects leave for heartbeats.
const heartbeatShare = 100

// roll begins a new day. A clock that steps back gives nothing back.
func (b *budget) roll(now time.Time) {
	today := wire.DayOf(now)
	if b.limit == 0 || today == b.day {
		return
	}
	if today > b.day {
		days := int64(1)
		if start, err := b.day.Start(); err == nil {
			if end, err := today.Start(); err == nil {
				days = int64(end.Sub(start) / (24 * time.Hour))
			}
		}
		b.spent = max(0, b.spent-min(days, 1000)*b.limit)
	}
	b.day = today
}

// admits reports whether an object of so many bytes may be sent now. One that is
// larger than a day's budget goes first thing in a day.
func (b *budget) admits(now time.Time, size int64) bool {
	if b.limit == 0 {
		return true
	}
	b.roll(now)
	if b.spent+b.promised+size <= b.limit-b.limit/heartbeatShare {
		return true
	}
	// Heartbeats may have been first.
	return size > b.limit-b.limit/heartbeatShare && b.promised == 0 && b.spent <= b.limit/heartbeatShare
}

// admitsBeat reports whether a heartbeat may be sent now.
func (b *budget) admitsBeat(now time.Time) bool {
	b.roll(now)
	return b.limit == 0 || b.spent < b.limit
}

// counts is what a restart must not forget: what is promised may be spent by then.
func (b *budget) counts() int64 { return b.spent + b.promised }

// nextDay is how long it is until the next day.
func nextDay(now time.Time) time.Duration {
	return now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now)
}
