// SPDX-License-Identifier: Apache-2.0

package autoscale

import "fmt"

// Count is a number of pods, and why it is this one.
type Count struct {
	Replicas int32  `json:"replicas"`
	Why      string `json:"why"`
}

// Scale has the inputs to the number of pods of a pool. A pool's status shows all of it.
type Scale struct {
	// Asked by a driver: this loop, HorizontalPodAutoscaler, or another one, through /scale.
	Asked Count `json:"asked"`
	// Floor of the level of space weather, or the spec's least number, whichever is higher.
	Floor Count `json:"floor"`
	// Ceiling is what the cluster can give, or the spec's greatest number, whichever is lower.
	Ceiling Count `json:"ceiling"`
	// Held is how many of the existing pods have to stay: because their spools are being drained, or because the cluster has space for
	// fewer than before.
	Held Count `json:"held"`
}

// Replicas is min(ceiling, max(floor, asked)), and not below the number of held pods: to remove a pod with a spool is to lose sight of
// data. It is never below 0.
func (s Scale) Replicas() Count {
	n := Count{max(s.Asked.Replicas, 0), fmt.Sprintf("asked for: %s", s.Asked.Why)}
	if s.Floor.Replicas > n.Replicas {
		n = Count{s.Floor.Replicas, fmt.Sprintf("the floor: %s (%d are asked for)", s.Floor.Why, s.Asked.Replicas)}
	}
	though := "%d are enough"
	if ceiling := max(s.Ceiling.Replicas, 0); ceiling < n.Replicas {
		though = "there may be %d"
		n = Count{ceiling, fmt.Sprintf("the ceiling, of %d that there should be: %s", n.Replicas, s.Ceiling.Why)}
	}
	if s.Held.Replicas > n.Replicas {
		n = Count{s.Held.Replicas, fmt.Sprintf("held, though "+though+": %s", n.Replicas, s.Held.Why)}
	}
	return n
}
