// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"math"

	"github.com/substorm/substorm/internal/wire"
)

// Prune says what a mirror does with objects that expired at the other side.
type Prune string

// The values of Prune.
const (
	PruneNever       Prune = wire.MirrorPruneNever
	PruneWhenExpired Prune = wire.MirrorPruneWhenExpired
)

// Retractions says what it does with objects that the other side retracted or purged.
type Retractions string

// The values of Retractions: the bytes are removed and the line stays in the list of the day;
// the bytes stay.
const (
	RetractionsTombstone Retractions = wire.MirrorTombstone
	RetractionsIgnore    Retractions = wire.MirrorIgnore
)

// Policy is what a mirror removes.
type Policy struct {
	Prune       Prune
	Retractions Retractions
	// SafetyStop is the greatest share, in percent, of what a mirror holds that one run may
	// remove, and that runs may remove on RemovalDays days of what was retracted or purged; 0: any.
	SafetyStop int
}

// Surplus returns the indexes of the lines whose bytes the mirror is to remove.
func (p Policy) Surplus(lines []Line) (all []int) {
	for i := range lines {
		if lines[i].Held && p.Removes(&lines[i]) {
			all = append(all, i)
		}
	}
	return all
}

// Removes says whether the mirror is to remove the bytes of a line, if it has them. A line that is not listed any more says nothing about
// its object, unless the object is listed under another path: an archive lists what it had for ever, and a list that lost lines is from a
// restored backup, or from an Instrument that was put under embargo.
func (p Policy) Removes(l *Line) bool {
	expired := p.Prune == PruneWhenExpired
	switch {
	case l.Gone:
		return l.Moved && expired
	case l.Removed():
		return p.Retractions != RetractionsIgnore || l.Is() == wire.StateExpired && expired
	default:
		return l.Is() == wire.StateExpired && expired
	}
}

// Removed returns what stays of the lines of a day once their surplus is removed.
func (p Policy) Removed(lines []Line) []Line {
	kept := lines[:0]
	for _, l := range lines {
		if l.Held && p.Removes(&l) {
			l.Held = false
		}
		if l.Gone && !l.Held && !l.Replaced && (l.Moved || !l.Entry.Removed()) {
			continue
		}
		kept = append(kept, l)
	}
	return kept
}

// SafetyStopError says that a run would remove too much.
type SafetyStopError struct {
	Remove, Held, Percent int
	// Before are how many earlier runs removed on the days that count.
	Before int
	// Command removes it all the same; empty: the same one with --force.
	Command string
}

// Error implements error.
func (e *SafetyStopError) Error() string {
	which := "which is"
	if e.Before > 0 {
		which = fmt.Sprintf("and %d were removed within %d days, which together is", e.Before, RemovalDays)
	}
	return fmt.Sprintf("the run would remove %d of %d objects, %s more than %d percent: nothing is removed. "+
		"If that is right, run once %s", e.Remove, e.Held, which, e.Percent, cmp.Or(e.Command, "with --force"))
}

// removalLimit is how many of so many copies a run may remove that stops at a share of them, in percent: one always, however few there are.
func removalLimit(held, percent int) int {
	if percent <= 0 {
		return math.MaxInt
	}
	return max(1, held*percent/100)
}

// Allow says whether a mirror that holds so many objects may remove some: one always. TakenBack are those of them that were
// retracted or purged, and before those that earlier runs removed on the days that count. Expiry goes by the clock, and is counted
// separately in each run. Errors: SafetyStopError.
func (p Policy) Allow(remove, takenBack, before, held int) error {
	most := removalLimit(held, p.SafetyStop)
	switch {
	case remove > most:
		before = 0
	case takenBack == 0 || before <= most-takenBack:
		return nil
	}
	return &SafetyStopError{Remove: remove, Before: before, Held: held, Percent: p.SafetyStop}
}
