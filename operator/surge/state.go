// SPDX-License-Identifier: Apache-2.0

package surge

import "time"

// State is what is kept from one decision to the next, in the Site's status: a restarted operator continues where the one before it ended.
// It changes only when something happens, so keeping it costs no writes while nothing does. Times are whole seconds, as Kubernetes keeps
// them.
type State struct {
	// Level that holds; empty: none does.
	Level string `json:"level,omitempty"`
	// Since when it holds, or none does; zero: from the beginning.
	Since time.Time `json:"since,omitzero"`
	// Levels that are fulfilled or held.
	Levels []LevelState `json:"levels,omitempty"`
	// Floors that are above 0.
	Floors []FloorState `json:"floors,omitempty"`
}

// LevelState is the state of a level that is fulfilled or held.
type LevelState struct {
	Name string `json:"name"`
	// Because is the reason for which it began, or was fulfilled again after it was held, without an age.
	Because string `json:"because"`
	// Hold runs from when its rules were found to be fulfilled no more; nil: they are, or it is not known.
	Hold *Countdown `json:"hold,omitempty"`
}

// FloorState is the floor of a pool.
type FloorState struct {
	Pool     `json:",inline"`
	Replicas int32 `json:"replicas"`
	// Level that raised it.
	Level string `json:"level"`
	// Release runs from when the level was over, or the floor last went down; nil: it is not to go down.
	Release *Countdown `json:"release,omitempty"`
}

// Countdown counts the time for which something is known, and stops while it is unknown.
type Countdown struct {
	From time.Time `json:"from"`
	// StoppedAt is when it became unknown.
	StoppedAt *time.Time `json:"stoppedAt,omitempty"`
}

// next begins a countdown, continues it, or stops it. It returns how long it ran.
func (c *Countdown) next(stop bool, now time.Time) (*Countdown, time.Duration) {
	if c == nil {
		c = &Countdown{From: now}
	}
	next := *c
	switch {
	case stop && c.StoppedAt == nil:
		next.StoppedAt = &now
	case !stop && c.StoppedAt != nil:
		next.From, next.StoppedAt = c.From.Add(max(0, now.Sub(*c.StoppedAt))), nil
	}
	if next.From.After(now) { // the clock was ahead, and this would take until it is there again
		next.From = now
	}
	until := now
	if next.StoppedAt != nil {
		until = *next.StoppedAt
	}
	return &next, max(0, until.Sub(next.From))
}

// Decision explains why the state is what it is, and says when to decide again.
type Decision struct {
	// Why, in one sentence for people.
	Why string `json:"why"`
	// Lasting is Why without the ages of what is known: it stays as it is while no new data arrives.
	Lasting string `json:"-"`
	// Steady says why the level holds: it stays as it is while the level does, and whether it is fulfilled. Empty: no level holds.
	Steady string `json:"-"`
	// Verdict is whether the level that holds is fulfilled now.
	Verdict Truth `json:"-"`
	// Unknown describes what is not known of the levels, and why; empty: everything is known.
	Unknown string `json:"unknown,omitempty"`
	// LookAgain is after how long something changes even if the signals do not; 0: never.
	LookAgain time.Duration `json:"-"`
}
