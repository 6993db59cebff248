// SPDX-License-Identifier: Apache-2.0

package accept

import "github.com/substorm/substorm/operator/api/v1alpha1"

// Port is a port that an Instrument requests from a pool. Verdicts on Instruments that share none, not by way of others either, do not
// depend on each other.
type Port = claimedPort

// Ports returns the ports that an Instrument requests: from its pool, or from each pool if its own is not determined.
func Ports(inst *v1alpha1.Instrument, gateways []v1alpha1.IngestGateway) []Port {
	var pools []string
	if inst.Spec.GatewayRef != nil {
		pools = []string{inst.Spec.GatewayRef.Name}
	} else {
		for i := range gateways {
			pools = append(pools, gateways[i].Name)
		}
	}
	var all []Port
	for _, pool := range pools {
		for i := range inst.Spec.Listeners {
			all = append(all, portOf(pool, &inst.Spec.Listeners[i]))
		}
	}
	return all
}
