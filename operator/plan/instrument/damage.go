// SPDX-License-Identifier: Apache-2.0

package instrument

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// archiveIsDamaged: the scrub confirmed that objects in the store differ from what was received. While JetStream is away, the earlier
// condition stays.
func archiveIsDamaged(v View) (finding.Finding, bool) {
	if was := finding.Condition(v.Instrument.Status.Conditions, v1alpha1.ConditionArchiveIntact); !v.Bus.Up && was != nil {
		return finding.From(was), true
	}
	confirmed := slices.DeleteFunc(slices.Clone(v.Damage), func(d wire.Damage) bool { return !d.Confirmed })
	if len(confirmed) == 0 {
		return finding.Finding{}, false
	}
	slices.SortFunc(confirmed, func(a, b wire.Damage) int {
		return cmp.Or(b.FoundAt.Compare(a.FoundAt), cmp.Compare(a.ID, b.ID))
	})
	lost, objects := missingManifests(confirmed)
	if len(objects) == 0 {
		return finding.Bad(v1alpha1.ReasonDamaged, lost), true
	}
	missing := 0
	for _, d := range objects {
		if d.Cause == wire.DamageMissing {
			missing++
		}
	}
	last := objects[0]
	says := fmt.Sprintf("%d of its objects in the store are not what was received, %d of them missing; the last one found is %s of %s: "+
		"substorm archive verify names all, bring their bytes back from a copy of the bucket; a file of a manifest substorm archive rebuild makes anew",
		len(objects), missing, last.ID, last.Day)
	if lost != "" {
		says = lost + "; " + says
	}
	return finding.Bad(v1alpha1.ReasonDamaged, says), true
}

// maxDaysNamed is how many days without a manifest a message names.
const maxDaysNamed = 4

// missingManifests reports the days for which the store has no manifest, and returns the other damages.
func missingManifests(confirmed []wire.Damage) (says string, others []wire.Damage) {
	var days []string
	for _, d := range confirmed {
		if _, err := wire.ParseManifestKey(d.ID); err != nil || d.Cause != wire.DamageMissing {
			others = append(others, d)
		} else {
			days = append(days, string(d.Day))
		}
	}
	if len(days) == 0 {
		return "", others
	}
	slices.Sort(days)
	named := strings.Join(days[:min(len(days), maxDaysNamed)], ", ")
	if more := len(days) - maxDaysNamed; more > 0 {
		named += fmt.Sprintf(" and %d more days", more)
	}
	return fmt.Sprintf("the manifest of %s is missing in the object store, and what was received then cannot be listed: substorm archive rebuild makes it again of what is stored", named), others
}
