// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Missing are the instruments of another Site that stand here, and that it does not offer any more.
type Missing struct {
	// Closed: this mirror may not read them there. Absent: the other Site does not have them.
	Closed, Absent []string
	// Stopped are how many of them stopped an earlier run. They stop each run until one is forced, however many others came since.
	Stopped int
}

// AllowMissing says whether a run may act upon instruments that are missing, of so many that were offered before: one always, unless it is
// absent and was the only one, as where the other Site was installed again. It returns nil if the run may.
func (p *GuestPolicy) AllowMissing(m Missing, held int) *VanishedError {
	n := len(m.Closed) + len(m.Absent)
	stops := (m.Stopped > 0 || len(m.Absent) > 0 && n == held) && p.SafetyStop > 0 && p.SafetyStop < 100
	if n == 0 || n <= removalLimit(held, p.SafetyStop) && !stops {
		return nil
	}
	return &VanishedError{Missing: m, Held: held, Percent: p.SafetyStop}
}

// VanishedError says that more instruments are missing at the other Site than a run may act upon.
type VanishedError struct {
	Missing
	Held, Percent int
	// Command acts upon it all the same; empty: the same one with --force.
	Command string
}

// maxNamed instruments are named in an error.
const maxNamed = 5

// Error implements error.
func (e *VanishedError) Error() string {
	names := slices.Sorted(slices.Values(slices.Concat(e.Closed, e.Absent)))
	more := ""
	if len(names) > maxNamed {
		names, more = names[:maxNamed], " and more"
	}
	return fmt.Sprintf("the other Site does not offer %d of %d instruments any more (%s%s): %d are absent there, and %d are closed to this mirror. "+
		"That is more than %d percent, or all, or it was when a run found it first: their copies stay here, with the access that they had. "+
		"Look whether the other Site was installed again or lost its manifests. If all is right there, run once %s: what is closed there is closed here, too",
		len(e.Closed)+len(e.Absent), e.Held, strings.Join(names, ", "), more, len(e.Absent), len(e.Closed), e.Percent, cmp.Or(e.Command, "with --force"))
}
