// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// maxUnreadableNamed is how many objects a condition's message names.
const maxUnreadableNamed = 10

// unreadable is the finding for the Site's condition about them; false if there are none.
func (v SiteView) unreadable() (finding.Finding, bool) {
	if len(v.Unreadable) == 0 {
		return finding.Finding{}, false
	}
	var each []string
	for _, o := range v.Unreadable[:min(len(v.Unreadable), maxUnreadableNamed)] {
		each = append(each, fmt.Sprintf("%s %q (%.200s)", o.Kind, o.Name, o.Problem))
	}
	if more := len(v.Unreadable) - len(each); more > 0 {
		each = append(each, fmt.Sprintf("%d more", more))
	}
	return finding.Good(v1alpha1.ReasonUnreadable, fmt.Sprintf(
		"the operator cannot read %s: what was made for them stays as it is, and their changes wait; correct them, or run a version of the operator that reads them",
		strings.Join(each, ", "))), true
}
