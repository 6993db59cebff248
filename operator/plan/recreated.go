// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// recreatedShown is for how long it is shown that a stream was deleted.
const recreatedShown = 24 * time.Hour

// streamsRecreated: somebody else has deleted streams or buckets of the Site. An operator
// that begins anew goes on with what was said before.
func (v SiteView) streamsRecreated() (Finding, bool) {
	var names []string
	var last time.Time
	for name, at := range v.Backends.Recreated {
		if v.Now.Sub(at) >= recreatedShown {
			continue
		}
		names = append(names, name)
		if at.After(last) {
			last = at
		}
	}
	if len(names) == 0 {
		was := condition(v.Site.Status.Conditions, v1alpha1.ConditionStreamsIntact)
		if was == nil || v.Now.Sub(was.LastTransitionTime.Time) >= recreatedShown || len(v.Backends.Recreated) > 0 {
			return Finding{}, false
		}
		return Finding{was.Status, was.Reason, was.Message}, true
	}
	slices.Sort(names)
	return bad(v1alpha1.ReasonRecreated, fmt.Sprintf(
		"somebody else than the operator has deleted %s; made anew, the last at %s. What was in it and not archived is lost: "+
			"substorm gaps names what is missing of instruments, docs/rebuild.md says what each bucket is made from again. Find out whose credentials may delete streams",
		strings.Join(names, ", "), wire.FormatTime(last.Truncate(time.Second)))), true
}
