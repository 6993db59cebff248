// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// pulledBy lists the confirmations of the readers that pull. The earlier status stays until a report was read.
func (v SiteView) pulledBy() (all []v1alpha1.PullerStatus) {
	for i := range v.Site.Spec.PulledBy {
		name := v.Site.Spec.PulledBy[i].Reader
		status := v1alpha1.PullerStatus{Reader: name}
		if was := slices.IndexFunc(v.Site.Status.PulledBy, func(s v1alpha1.PullerStatus) bool { return s.Reader == name }); was >= 0 {
			status = v.Site.Status.PulledBy[was]
		}
		if said, reported := v.Pullers[name]; reported {
			status.ConfirmedTime, status.VerifiedToTime, status.ComparedTime = toSecond(said.ReportedAt), toSecond(said.VerifiedTo), toSecond(said.ComparedAt)
			status.OwedObjectCount = &said.Owed.Objects
		}
		all = append(all, status)
	}
	return all
}
