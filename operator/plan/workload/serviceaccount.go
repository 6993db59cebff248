// SPDX-License-Identifier: Apache-2.0

package workload

import coreac "k8s.io/client-go/applyconfigurations/core/v1"

// serviceAccount has no rights and no token: a gateway never talks to the API server.
func (p Pool) serviceAccount() *coreac.ServiceAccountApplyConfiguration {
	account := coreac.ServiceAccount(p.Gateway.Name, p.Gateway.Namespace).
		WithLabels(p.labels()).
		WithOwnerReferences(p.owner()).
		WithAutomountServiceAccountToken(false)
	return annotated(account, &p.Gateway.Spec.PodTemplate)
}
