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
)

// amounts are amounts of resources: CPU in thousandths, all others in whole units.
type amounts map[corev1.ResourceName]int64

// maxAmount bounds an amount: thousandths and sums of the values in a manifest may overflow an int64.
const maxAmount = 1 << 60

func amountsOf(list corev1.ResourceList) amounts {
	all := make(amounts, len(list)+1)
	for name, q := range list {
		switch cpu := name == corev1.ResourceCPU; {
		case q.CmpInt64(maxAmount) > 0, cpu && q.CmpInt64(maxAmount/1000) > 0:
			all[name] = maxAmount
		case cpu:
			all[name] = q.MilliValue()
		default:
			all[name] = q.Value()
		}
	}
	return all
}

// needs is what a pod occupies on a node: its requests, and one of the node's places for pods.
func needs(pod *corev1.Pod) amounts {
	all := amountsOf(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true}))
	all[corev1.ResourcePods] = 1
	return all
}

// short returns the resource of which too little is free for a need, or "".
func (free amounts) short(need amounts) corev1.ResourceName {
	for _, name := range slices.Sorted(maps.Keys(need)) {
		if need[name] > free[name] {
			return name
		}
	}
	return ""
}

func (free amounts) sub(need amounts) {
	for name, n := range need {
		free[name] = max(free[name]-n, -maxAmount)
	}
}

func (free amounts) add(need amounts) {
	for name, n := range need {
		free[name] = min(free[name]+n, maxAmount)
	}
}

// spelled is a resource as people call it.
func spelled(name corev1.ResourceName) string {
	switch name {
	case corev1.ResourceCPU:
		return "CPU"
	case corev1.ResourcePods:
		return "the number of pods"
	case corev1.ResourceEphemeralStorage:
		return "ephemeral storage"
	default:
		return string(name)
	}
}

// asks lists the requests of each pod, as its manifest does.
func asks(need amounts) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(need)) {
		if name == corev1.ResourcePods || need[name] == 0 {
			continue
		}
		parts = append(parts, fmt.Sprintf("%s %s", name, quantity(name, need[name])))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

func quantity(name corev1.ResourceName, n int64) string {
	switch {
	case name == corev1.ResourceCPU:
		return resource.NewMilliQuantity(n, resource.DecimalSI).String()
	case name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return resource.NewQuantity(n, resource.BinarySI).String()
	default:
		return resource.NewQuantity(n, resource.DecimalSI).String()
	}
}

// some lists names, of many the first ones.
func some(names []string) string {
	const most = 3
	if len(names) > most+1 {
		return fmt.Sprintf("%s and %d others", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func clamp(n int64) int32 { return int32(min(max(n, 0), math.MaxInt32)) }
