// SPDX-License-Identifier: Apache-2.0

package accept

import "github.com/substorm/substorm/operator/api/v1alpha1"

// Port is one that an Instrument asks a pool for. Verdicts on Instruments that share none,
// not by way of others either, do not depend on each other.
type Port = claimedPort

// Ports are those that an Instrument asks for: of its pool, or of each where nobody can
// say which is its pool.
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
