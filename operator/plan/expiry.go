// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// expiryStopped: data that is due to expire does not. Until the archivist's report was read, the earlier condition stays.
func (v SiteView) expiryStopped() (finding.Finding, bool) {
	if v.Expiry == nil {
		was := finding.Condition(v.Site.Status.Conditions, v1alpha1.ConditionExpiryRunning)
		if was == nil {
			return finding.Finding{}, false
		}
		return finding.From(was), true
	}
	if why := v.Expiry.Clocks; why != "" {
		return finding.Bad(v1alpha1.ReasonClocksDisagree, fmt.Sprintf("nothing expires, and no day of the ledger is closed: %s", why)), true
	}
	if v.Expiry.Count == 0 {
		return finding.Finding{}, false
	}
	var names []string
	for _, s := range v.Expiry.Stopped {
		names = append(names, fmt.Sprintf("%s (%d days are due, %g%% of its bytes beside the oldest; maxShare is %d)", s.Instrument, s.Days, s.SharePercent, s.MaxShare))
	}
	for len(names) < v.Expiry.Count {
		names = append(names, "another") // list counts those that are not named
	}
	return finding.Bad(v1alpha1.ReasonMoreThanMaxShare, fmt.Sprintf(
		"nothing expires of instruments of which more is due at once than spec.archive.expiry.maxShare allows: %s. "+
			"Look whether retention and maxSize, and the clocks, are right; then raise maxShare, up to 100, until it has expired", finding.List(names))), true
}
