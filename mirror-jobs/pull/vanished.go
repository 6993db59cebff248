// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"fmt"
	"slices"
	"strings"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// VanishedError says that the other side lists too many of the mirror's instruments no more.
type VanishedError struct {
	// Names of those that it lists no more, of so many that it listed before.
	Names []string
	Held  int
}

// maxNamed instruments are named in an error.
const maxNamed = 5

// Error implements error.
func (e *VanishedError) Error() string {
	names, more := e.Names, ""
	if len(names) > maxNamed {
		names, more = names[:maxNamed], " and more"
	}
	return fmt.Sprintf("the other side no longer lists %d of %d Instruments of this mirror (%s%s), and their files stay here: "+
		"check whether it was installed again, lost its manifests, or no longer lets you read them; if all is right there, run once with --force",
		len(e.Names), e.Held, strings.Join(names, ", "), more)
}

// goneTag takes the place of the tag of an instrument that is known to be listed no more, and stoppedTag of one for which a run stopped.
const goneTag, stoppedTag = "gone", "stopped"

// checkVanished looks for instruments that the folder has and that the other side lists no more, because they were deleted or closed there, or because
// the other side lost what it had. It says so once, and where they are too many until a run is forced. Names are those of the instruments that
// the folder has. Errors: VanishedError.
func (p *run) checkVanished(root mirrorindex.Root, names []string) error {
	listed := make(map[string]bool, len(root.Instruments))
	for _, line := range root.Instruments {
		listed[line.Instrument] = true
	}
	var gone []string
	held, stopped := 0, 0
	known := p.Folder.State().Instruments
	for _, name := range names {
		if known[name] == goneTag || p.Wants != nil && !p.Wants(name) {
			continue
		}
		if held++; listed[name] {
			continue
		}
		gone = append(gone, name)
		if known[name] == stoppedTag {
			stopped++
		}
	}
	if len(gone) == 0 {
		return nil
	}
	slices.Sort(gone)
	policy := plan.GuestPolicy{}
	policy.SafetyStop = p.SafetyStop // 0 in a run that is forced
	if policy.AllowMissing(plan.Missing{Absent: gone, Stopped: stopped}, held) != nil {
		for _, name := range gone {
			p.Folder.SetInstrument(name, stoppedTag)
		}
		return &VanishedError{gone, held}
	}
	for _, name := range gone {
		p.Folder.SetInstrument(name, goneTag)
	}
	p.Logger.Warn("the other side no longer lists Instruments of this mirror: their files stay here", "instruments", gone)
	return nil
}
