// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// feedServersAvailable sums up the Site's FeedServers; false where it has none.
func (v SiteView) feedServersAvailable() (finding.Finding, bool) {
	if len(v.FeedServers) == 0 {
		return finding.Finding{}, false
	}
	var lacking []string
	for i := range v.FeedServers {
		s := &v.FeedServers[i]
		ready := finding.Condition(s.Status.Conditions, v1alpha1.ConditionReady)
		switch {
		case finding.Unreadable(s) != "":
			lacking = append(lacking, fmt.Sprintf("%q cannot be read", s.Name))
		case ready == nil || ready.ObservedGeneration != s.Generation:
			lacking = append(lacking, fmt.Sprintf("%q is being changed", s.Name))
		case ready.Status != "True":
			lacking = append(lacking, fmt.Sprintf("%q (%s: %s)", s.Name, ready.Reason, ready.Message))
		}
	}
	if len(lacking) > 0 {
		return finding.Bad(v1alpha1.ReasonProgressing, fmt.Sprintf("%d of %d FeedServers are not Ready: %s",
			len(lacking), len(v.FeedServers), strings.Join(lacking, ", "))), true
	}
	return finding.Good(v1alpha1.ReasonAvailable, fmt.Sprintf("%d of %d FeedServers are Ready", len(v.FeedServers), len(v.FeedServers))), true
}

// readersHaveNoAuthority: certificates are shown to feed servers that know who signed them.
func (v SiteView) readersHaveNoAuthority() (finding.Finding, bool) {
	for i := range v.FeedServers {
		if tls := v.FeedServers[i].Spec.TLS; tls != nil && tls.CASecretRef != nil {
			return finding.Finding{}, false
		}
	}
	return finding.Bad(v1alpha1.ReasonTLSNotConfigured,
			"spec.readers show certificates, and no FeedServer of the Site knows who signs them: set tls.caSecretRef of one; until then nobody is let in by a certificate"),
		len(v.Site.Spec.Readers) > 0
}
