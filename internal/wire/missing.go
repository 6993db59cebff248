// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// GapsBucket holds what is missing of what instruments should have observed, see
// GapsKey. (What a consumer of a feed missed is a Gap.)
func GapsBucket(site string) string { return "GAPS_" + site }

// GapsKey is <instrument>.<day>; the day is the day of observation.
func GapsKey(instrument string, day Day) string { return instrument + "." + string(day) }

// ParseGapsKey reads what GapsKey wrote. Errors: ErrMalformed.
func ParseGapsKey(key string) (instrument string, day Day, err error) {
	p := strings.Split(key, ".")
	if len(p) != 2 || slices.Contains(p, "") {
		return "", "", fmt.Errorf("key %q is not <instrument>.<day>: %w", key, ErrMalformed)
	}
	if day, err = ParseDay(p[1]); err != nil {
		return "", "", fmt.Errorf("key %q: %w", key, err)
	}
	return p[0], day, nil
}

// GapCause says why an observation is missing.
type GapCause string

// The causes. GapRetracted: it was received, and is not shown any more. GapUndecodable: telemetry came in messages that cannot be read.
// GapRefused: a gateway refused it. GapLost: it was received and lost here, or dropped. GapLink: the instrument could not reach us, or
// still has it. GapInstrument: none of these, so that it did not observe.
const (
	GapRetracted   GapCause = "Retracted"
	GapUndecodable GapCause = "Undecodable"
	GapRefused     GapCause = "Refused"
	GapLost        GapCause = "Lost"
	GapLink        GapCause = "Link"
	GapInstrument  GapCause = "Instrument"
)

// GapCauses are all causes.
func GapCauses() []GapCause {
	return []GapCause{GapLink, GapInstrument, GapRefused, GapLost, GapUndecodable, GapRetracted}
}

// MissingGap is a time, within one UTC day, for which there is nothing although something was due.
type MissingGap struct {
	// Channel of the datagrams that are missing; empty for objects.
	Channel string `json:"channel,omitempty"`
	// From is when the last observation before it ended, or the day began, and To when
	// the next begins, or the day ends; To is absent while nothing came since.
	From time.Time  `json:"from"`
	To   *time.Time `json:"to,omitempty"`
	// Missing is how many observations were due within.
	Missing int64    `json:"missing"`
	Cause   GapCause `json:"cause"`
	// FoundAt is when it was found, and ClosedAt when what came late had filled all of
	// it; absent while it is open.
	FoundAt  time.Time  `json:"foundAt"`
	ClosedAt *time.Time `json:"closedAt,omitempty"`
}

// Ends is To, or until if nothing came since.
func (g MissingGap) Ends(until time.Time) time.Time {
	if g.To == nil {
		return until
	}
	return *g.To
}

// TimeSpan is a time from an instant on and before another.
type TimeSpan struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// DayGaps are an instrument's gaps of one day of observation.
type DayGaps struct {
	// CheckedAt is when the day was last compared with what is archived, and Until the
	// time up to which something was due then.
	CheckedAt time.Time `json:"checkedAt"`
	Until     time.Time `json:"until"`
	// Due is how many observations were due on the day until then, all channels
	// together, and DueMillis how long something was due, of one channel.
	Due       int64 `json:"due"`
	DueMillis int64 `json:"dueMillis"`
	// Excused are the times of maintenance and retirement: nothing was due.
	Excused []TimeSpan `json:"excused,omitempty"`
	// Gaps by channel and From, closed ones included.
	Gaps []MissingGap `json:"gaps,omitempty"`
	// More gaps, the shortest ones, are not listed: there may be MaxDayGaps.
	More int `json:"more,omitempty"`
}

// MaxDayGaps bounds the gaps of one day.
const MaxDayGaps = 512

func (d *DayGaps) check() error {
	for _, g := range d.Gaps {
		if g.From.IsZero() || g.Cause == "" {
			return fmt.Errorf("gap %+v lacks from or cause: %w", g, ErrMalformed)
		}
	}
	return nil
}
