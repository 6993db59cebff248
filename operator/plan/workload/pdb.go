// SPDX-License-Identifier: Apache-2.0

package workload

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	policyac "k8s.io/client-go/applyconfigurations/policy/v1"
)

// disruptionBudget lets a drain of nodes evict one pod at a time, and pods that don't work at any time.
func (p Pool) disruptionBudget() *policyac.PodDisruptionBudgetApplyConfiguration {
	return policyac.PodDisruptionBudget(p.Gateway.Name, p.Gateway.Namespace).
		WithLabels(p.labels()).
		WithOwnerReferences(p.owner()).
		WithSpec(policyac.PodDisruptionBudgetSpec().
			WithMaxUnavailable(intstr.FromInt32(1)).
			WithUnhealthyPodEvictionPolicy(policyv1.AlwaysAllow).
			WithSelector(metaac.LabelSelector().WithMatchLabels(PodLabels(p.Gateway.Name))))
}
