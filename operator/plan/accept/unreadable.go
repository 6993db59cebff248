// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"fmt"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

func instrumentIsUnreadable(in application) (finding.Finding, bool) {
	problem := finding.Unreadable(in.instrument)
	return finding.Bad(v1alpha1.ReasonUnreadable, "the operator cannot read the Instrument, and leaves its registry entry as it is: "+problem), problem != ""
}

func gatewayIsUnreadable(in application) (finding.Finding, bool) {
	if in.gateway == nil || finding.Unreadable(in.gateway) == "" {
		return finding.Finding{}, false
	}
	return finding.Bad(v1alpha1.ReasonUnreadable, fmt.Sprintf(
		"the operator cannot read IngestGateway %q, and leaves what the pool does as it is: %s", in.gateway.Name, finding.Unreadable(in.gateway))), true
}

func feedIsUnreadable(in feedApplication) (finding.Finding, bool) {
	problem := finding.Unreadable(in.feed)
	return finding.Bad(v1alpha1.ReasonUnreadable, "the operator cannot read the Feed, and leaves its registry entry as it is: "+problem), problem != ""
}

func consumerIsUnreadable(in consumerApplication) (finding.Finding, bool) {
	problem := finding.Unreadable(in.consumer)
	return finding.Bad(v1alpha1.ReasonUnreadable, "the operator cannot read the FeedConsumer, and leaves its registry entry as it is: "+problem), problem != ""
}
