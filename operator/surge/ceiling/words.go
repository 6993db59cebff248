// SPDX-License-Identifier: Apache-2.0

package ceiling

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// why explains why no node accepts one more pod, and what to do.
func (p *placement) why() string {
	more := fmt.Sprintf("the nodes can take %d more than the %d that run", p.placed-p.runs, p.runs)
	if p.runs == 0 {
		more = fmt.Sprintf("the nodes can take %d", p.placed)
	}
	if len(p.nodes) == 0 {
		return more + ": the cluster has none, add one"
	}
	return fmt.Sprintf("%s: %s. %s", more, p.reasons(), p.step())
}

// reasons lists each reason once, with the nodes that it applies to, the ones that are closest to accepting a pod first.
func (p *placement) reasons() string {
	type group struct {
		refusal
		nodes []string
	}
	var groups []group
	for i, r := range p.refusals {
		k := slices.IndexFunc(groups, func(g group) bool { return g.refusal == r })
		if k < 0 {
			k, groups = len(groups), append(groups, group{refusal: r})
		}
		groups[k].nodes = append(groups[k].nodes, p.nodes[i].Name)
	}
	slices.SortStableFunc(groups, func(a, b group) int { return cmp.Compare(a.rank, b.rank) })
	var all []string
	for i, g := range groups {
		if i == maxReasons {
			all = append(all, "others for other reasons")
			break
		}
		all = append(all, fmt.Sprintf(g.why, some(g.nodes)))
	}
	return strings.Join(all, "; ")
}

const maxReasons = 4

// step says what to do, for the nodes that are closest to accepting a pod.
func (p *placement) step() string {
	closest := slices.MinFunc(p.refusals, func(a, b refusal) int { return cmp.Compare(a.rank, b.rank) })
	switch closest.rank {
	case short:
		return "Add a node, or ask for less in spec.podTemplate.resources (each pod requests " + asks(p.need) + ")"
	case crowded:
		return "Add a node"
	case volumeAway:
		return "Make a volume, or choose another StorageClass for a new pool (spec.storage)"
	case closed:
		return "Uncordon a node, or add one"
	case tainted:
		return "Add a node, or tolerate the taint in spec.podTemplate.tolerations"
	default:
		return "Label a node as spec.podTemplate asks for, or add one"
	}
}
