// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// archiveIsDamaged: the scrub confirmed that objects in the store are not what was
// received. While JetStream is away what was last known stands.
func archiveIsDamaged(v InstrumentView) (Finding, bool) {
	if was := condition(v.Instrument.Status.Conditions, v1alpha1.ConditionArchiveIntact); !v.Bus.Up && was != nil {
		return Finding{was.Status, was.Reason, was.Message}, true
	}
	confirmed := slices.DeleteFunc(slices.Clone(v.Damage), func(d wire.Damage) bool { return !d.Confirmed })
	if len(confirmed) == 0 {
		return Finding{}, false
	}
	slices.SortFunc(confirmed, func(a, b wire.Damage) int {
		return cmp.Or(b.FoundAt.Compare(a.FoundAt), cmp.Compare(a.ID, b.ID))
	})
	missing := 0
	for _, d := range confirmed {
		if d.Cause == wire.DamageMissing {
			missing++
		}
	}
	last := confirmed[0]
	return bad(v1alpha1.ReasonDamaged, fmt.Sprintf(
		"%d of its objects in the store are not what was received, %d of them missing; the last one found is %s of %s: "+
			"substorm archive verify names all, bring their bytes back from a copy of the bucket; a file of a manifest substorm archive rebuild makes anew",
		len(confirmed), missing, last.ID, last.Day)), true
}
