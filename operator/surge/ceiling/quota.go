// SPDX-License-Identifier: Apache-2.0

package ceiling

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/storage/volume"

	"github.com/substorm/substorm/operator/surge/autoscale"
)

// byQuota returns how many pods ResourceQuotas allow, those that there are included, and which one allows no more.
func (s *Space) byQuota(pool *Pool, most int32) autoscale.Count {
	least := autoscale.Count{Replicas: most, Why: "no ResourceQuota limits it"}
	own := s.own(pool)
	pod := pool.asAdmitted(own)
	for i := range s.Quotas {
		q := &s.Quotas[i]
		for _, l := range limitsOf(q, pool, pod) {
			n := clamp(int64(len(own)) + l.fits())
			if l.storage {
				n = s.withClaims(pool, l.fits(), most)
			}
			if n < least.Replicas {
				least = autoscale.Count{Replicas: n, Why: l.why(q.Name, n)}
			}
		}
	}
	return least
}

// own are the pool's pods that a quota counts.
func (s *Space) own(pool *Pool) (own []*corev1.Pod) {
	for i := range s.Pods {
		if pool.owns(&s.Pods[i]) && !ended(&s.Pods[i]) {
			own = append(own, &s.Pods[i])
		}
	}
	return own
}

// withClaims returns how many pods are possible with so many new claims: those that were scaled down have theirs.
func (s *Space) withClaims(pool *Pool, free int64, most int32) int32 {
	var n int32
	for ; n < most; n++ {
		if s.claimOf(pool, n) != nil {
			continue
		}
		if free--; free < 0 {
			break
		}
	}
	return n
}

// quotasWith are the quotas once the pool has so many pods.
func (s *Space) quotasWith(pool *Pool, replicas int32) []corev1.ResourceQuota {
	own := s.own(pool)
	pod := pool.asAdmitted(own)
	all := make([]corev1.ResourceQuota, len(s.Quotas))
	for i := range s.Quotas {
		q := s.Quotas[i].DeepCopy()
		for _, l := range limitsOf(q, pool, pod) {
			more := max(0, int64(replicas)-int64(len(own)))
			if l.storage {
				more = 0
				for n := range replicas {
					if s.claimOf(pool, n) == nil {
						more++
					}
				}
			}
			used := q.Status.Used[l.name]
			for range more {
				used.Add(l.each)
			}
			if q.Status.Used == nil {
				q.Status.Used = corev1.ResourceList{}
			}
			q.Status.Used[l.name] = used
		}
		all[i] = *q
	}
	return all
}

// limit is a quota's limit of a resource that each pod uses.
type limit struct {
	name corev1.ResourceName
	// hard is the quota's limit, used the part that is used, and each the use of a pod.
	hard, used, each resource.Quantity
	// storage: a claim uses it, and not a pod.
	storage bool
}

// fits is how many more there may be.
func (l *limit) fits() int64 {
	free := l.hard.DeepCopy()
	free.Sub(l.used)
	if free.Sign() <= 0 {
		return 0
	}
	if scale := int64(1000); free.Value() < math.MaxInt64/scale && l.each.Value() < math.MaxInt64/scale { // thousandths are for CPU
		return max(0, free.MilliValue()/l.each.MilliValue())
	}
	return max(0, free.Value()/l.each.Value())
}

func (l *limit) why(quota string, n int32) string {
	what := "pod"
	if l.storage {
		what = "new volume"
	}
	return fmt.Sprintf("ResourceQuota %s allows %d: %s of %s are used of %s, and each %s takes %s. Raise the quota, or ask for less",
		quota, n, l.used.String(), l.hard.String(), l.name, what, l.each.String())
}

// limitsOf are the limits of a quota that apply to a pool.
func limitsOf(q *corev1.ResourceQuota, pool *Pool, pod *corev1.Pod) (all []limit) {
	hard := q.Status.Hard
	if hard == nil { // no controller has seen it yet
		hard = q.Spec.Hard
	}
	ofPod, ofClaim := perPod(pod), perClaim(pool.Claim)
	if !scoped(q, pod) {
		ofPod = nil
	}
	for _, name := range slices.Sorted(maps.Keys(hard)) {
		each, storage := ofPod[name], false
		if each.IsZero() {
			each, storage = ofClaim[name], true
		}
		if each.IsZero() {
			continue
		}
		all = append(all, limit{name: name, hard: hard[name], used: q.Status.Used[name], each: each, storage: storage})
	}
	return all
}

// perPod is each pod's use of a quota, by the names that quotas have for it.
func perPod(pod *corev1.Pod) corev1.ResourceList {
	one := resource.MustParse("1")
	all := corev1.ResourceList{corev1.ResourcePods: one, "count/pods": one}
	for name, q := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		all["requests."+name] = q
		switch {
		case name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
			all[name] = q
		}
	}
	for name, q := range resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{}) {
		all["limits."+name] = q
	}
	return all
}

// perClaim is each new claim's use of a quota.
func perClaim(claim *corev1.PersistentVolumeClaim) corev1.ResourceList {
	if claim == nil {
		return nil
	}
	one, size := resource.MustParse("1"), claim.Spec.Resources.Requests[corev1.ResourceStorage]
	all := corev1.ResourceList{"persistentvolumeclaims": one, "count/persistentvolumeclaims": one, "requests.storage": size}
	if class := volume.GetPersistentVolumeClaimClass(claim); class != "" {
		all[corev1.ResourceName(class+".storageclass.storage.k8s.io/requests.storage")] = size
		all[corev1.ResourceName(class+".storageclass.storage.k8s.io/persistentvolumeclaims")] = one
	}
	return all
}

// scoped says whether a quota counts such a pod.
func scoped(q *corev1.ResourceQuota, pod *corev1.Pod) bool {
	for _, s := range q.Spec.Scopes {
		if !inScope(corev1.ScopedResourceSelectorRequirement{ScopeName: s, Operator: corev1.ScopeSelectorOpExists}, pod) {
			return false
		}
	}
	if q.Spec.ScopeSelector == nil {
		return true
	}
	for _, r := range q.Spec.ScopeSelector.MatchExpressions {
		if !inScope(r, pod) {
			return false
		}
	}
	return true
}

func inScope(r corev1.ScopedResourceSelectorRequirement, pod *corev1.Pod) bool {
	bestEffort := len(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})) == 0 && len(resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})) == 0
	switch r.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return pod.Spec.ActiveDeadlineSeconds != nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return pod.Spec.ActiveDeadlineSeconds == nil
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort
	case corev1.ResourceQuotaScopePriorityClass:
		return selects(r, pod.Spec.PriorityClassName)
	default: // a scope that no pod of ours is in: one of claims, or of affinity to pods of other namespaces
		return false
	}
}

func selects(r corev1.ScopedResourceSelectorRequirement, value string) bool {
	switch r.Operator {
	case corev1.ScopeSelectorOpIn:
		return slices.Contains(r.Values, value)
	case corev1.ScopeSelectorOpNotIn:
		return !slices.Contains(r.Values, value)
	case corev1.ScopeSelectorOpDoesNotExist:
		return value == ""
	default:
		return value != ""
	}
}
