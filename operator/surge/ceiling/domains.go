// SPDX-License-Identifier: Apache-2.0

package ceiling

import (
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// domains follow one rule on which other pods run in the same domain: a node, a zone, or whatever has the label of the rule's topology.
type domains struct {
	kind     ruleKind
	topology string
	// self: the pool's own pods are among those that are counted.
	self bool
	// skew is the maximum skew of a spread constraint.
	skew int
	// held counts the pods in each domain.
	held map[string]int
	// fewest is the least of these; -1: it is to be counted.
	fewest int
}

type ruleKind int

const (
	apart    ruleKind = iota // required anti-affinity
	together                 // required affinity
	evenly                   // a spread constraint with DoNotSchedule
)

// rulesOf are the rules of a pool's template that leave nodes out.
func rulesOf(pool *Pool, nodes []node) []domains {
	var all []domains
	spec := &pool.Template.Spec
	if a := spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		for i := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			all = append(all, termOf(apart, &a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i], pool, nodes))
		}
	}
	if a := spec.Affinity; a != nil && a.PodAffinity != nil {
		for i := range a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			all = append(all, termOf(together, &a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i], pool, nodes))
		}
	}
	for _, c := range spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable != corev1.DoNotSchedule {
			continue
		}
		d := domainsOf(evenly, c.TopologyKey, c.LabelSelector, []string{pool.Namespace}, pool, nodes)
		d.skew = int(c.MaxSkew)
		for i := range nodes { // only those that the pods may go to count
			if in, has := nodes[i].Labels[c.TopologyKey]; has && nodes[i].allows(spec).rank == takes {
				d.held[in] += 0
			}
		}
		all = append(all, d)
	}
	return all
}

func termOf(kind ruleKind, term *corev1.PodAffinityTerm, pool *Pool, nodes []node) domains {
	names := term.Namespaces
	if len(names) == 0 && term.NamespaceSelector == nil {
		names = []string{pool.Namespace}
	}
	return domainsOf(kind, term.TopologyKey, term.LabelSelector, names, pool, nodes)
}

// domainsOf counts pods; those of all namespaces where no names are given, as the labels of namespaces are not known here.
func domainsOf(kind ruleKind, topology string, selector *metav1.LabelSelector, names []string, pool *Pool, nodes []node) domains {
	d := domains{kind: kind, topology: topology, held: map[string]int{}, fewest: -1}
	which, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil { // the API server takes none of these
		which = labels.Nothing()
	}
	matches := func(namespace string, of map[string]string) bool {
		return (len(names) == 0 || slices.Contains(names, namespace)) && which.Matches(labels.Set(of))
	}
	d.self = matches(pool.Namespace, pool.Template.Labels)
	for i := range nodes {
		in, has := nodes[i].Labels[topology]
		if !has {
			continue
		}
		for _, pod := range nodes[i].pods {
			if pod.DeletionTimestamp == nil && matches(pod.Namespace, pod.Labels) {
				d.held[in]++
			}
		}
	}
	return d
}

// refuses says why no further pod may go to a node.
func (d *domains) refuses(n *node) refusal {
	in, has := n.Labels[d.topology]
	switch {
	case !has && d.kind == apart:
		return refusal{}
	case !has:
		return refusal{unselected, fmt.Sprintf("the label %s is missing on %%s", d.topology)}
	case d.kind == apart && d.held[in] > 0:
		return refusal{crowded, fmt.Sprintf("a pod that has to be apart (%s) is on %%s", d.topology)}
	case d.kind == together && d.held[in] == 0 && !(d.self && d.none()):
		return refusal{crowded, fmt.Sprintf("no pod that they have to be with (%s) is on %%s", d.topology)}
	case d.kind == evenly && d.held[in]+1-d.least() > d.skew:
		return refusal{crowded, fmt.Sprintf("topologySpreadConstraints (%s, maxSkew %d) allow no more on %%s", d.topology, d.skew)}
	}
	return refusal{}
}

func (d *domains) none() bool {
	for _, n := range d.held {
		if n > 0 {
			return false
		}
	}
	return true
}

// least is the number of pods in the domain that has fewest. It is counted once for each pod that is placed: there may be as many domains
// as nodes, and each asks for it.
func (d *domains) least() int {
	if d.fewest >= 0 {
		return d.fewest
	}
	d.fewest = math.MaxInt
	for _, n := range d.held {
		d.fewest = min(d.fewest, n)
	}
	return d.fewest
}

// placed notes that one of the pool's pods went to a node.
func (d *domains) placed(n *node) {
	if in, has := n.Labels[d.topology]; has && d.self {
		d.held[in]++
		d.fewest = -1
	}
}
