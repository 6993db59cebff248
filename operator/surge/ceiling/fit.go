// SPDX-License-Identifier: Apache-2.0

package ceiling

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	scheduling "k8s.io/component-helpers/scheduling/corev1"

	"github.com/substorm/substorm/operator/surge/autoscale"
)

// Fit returns how many pods a pool can have, those that it has included, and why not more. It counts no further than most.
func (s *Space) Fit(pool *Pool, most int32) autoscale.Count {
	byQuota := s.byQuota(pool, most)
	byNodes := s.byNodes(pool, most)
	switch {
	case byQuota.Replicas < byNodes.Replicas:
		return byQuota
	case byQuota.Replicas == byNodes.Replicas && byNodes.Replicas < most:
		return autoscale.Count{Replicas: byNodes.Replicas, Why: byNodes.Why + "; " + byQuota.Why}
	default:
		return byNodes
	}
}

// With is the space that is left once a pool has so many pods, as far as they fit.
func (s *Space) With(pool *Pool, replicas int32) *Space {
	left := &Space{Quotas: s.quotasWith(pool, replicas), Claims: s.Claims, Pods: s.Pods, Unread: s.Unread}
	if s.Nodes == nil {
		return left
	}
	p := s.place(pool, replicas)
	nodes := *s.Nodes
	nodes.nodes = p.nodes
	nodes.waiting = slices.DeleteFunc(slices.Clone(nodes.waiting), pool.owns)
	if p.supply != nil {
		nodes.volumes = slices.DeleteFunc(slices.Clone(nodes.volumes), func(v *corev1.PersistentVolume) bool { return p.supply.taken[v.Name] != nil })
	}
	left.Nodes = &nodes
	return left
}

// owns says whether a pod is the pool's.
func (p *Pool) owns(pod *corev1.Pod) bool {
	return pod.Namespace == p.Namespace && labels.SelectorFromSet(p.Selector).Matches(labels.Set(pod.Labels))
}

// ordinal is the number of a StatefulSet's pod, and -1 of another.
func (p *Pool) ordinal(pod *corev1.Pod) int32 {
	digits, is := strings.CutPrefix(pod.Name, p.Name+"-")
	n, err := strconv.ParseInt(digits, 10, 32)
	if !is || err != nil || p.Claim == nil {
		return -1
	}
	return int32(n)
}

// placement places a pool's pods on nodes.
type placement struct {
	nodes  []node
	rules  []domains
	need   amounts
	supply *supply
	// allowed has, for each node, why it accepts none of the pods at all.
	allowed []refusal
	// has are the ordinals of pods that run, and runs is how many pods do.
	has  map[int32]bool
	runs int32
	// placed is how many pods there are in the end, those that run included, and refusals why there are no more, for each node.
	placed   int32
	refusals []refusal
}

func (s *Space) byNodes(pool *Pool, most int32) autoscale.Count {
	if s.Nodes == nil {
		return s.byPending(pool, most)
	}
	p := s.place(pool, most)
	if p.placed >= most {
		return autoscale.Count{Replicas: p.placed, Why: fmt.Sprintf("the nodes can take %d", most)}
	}
	return autoscale.Count{Replicas: p.placed, Why: p.why()}
}

// place puts pods on nodes until there are so many, or none fits.
func (s *Space) place(pool *Pool, most int32) *placement {
	p := &placement{supply: s.Nodes.supplyFor(pool), has: map[int32]bool{}}
	var own []*corev1.Pod
	for i := range s.Nodes.nodes {
		n := s.Nodes.nodes[i].clone()
		for _, pod := range n.pods {
			switch {
			case !pool.owns(pod):
			case pod.DeletionTimestamp != nil: // another one takes its place
				n.free.add(needs(pod))
			default:
				own = append(own, pod)
			}
		}
		p.nodes = append(p.nodes, n)
	}
	p.need = needs(pool.asAdmitted(own))
	seat(p.nodes, s.Nodes.waiting, pool, pool.priority(own))
	p.rules = rulesOf(pool, p.nodes)
	for i := range p.nodes {
		p.allowed = append(p.allowed, p.nodes[i].allows(&pool.Template.Spec))
	}
	for _, pod := range own {
		p.has[pool.ordinal(pod)] = true
	}
	p.runs = int32(len(own))
	for p.placed = p.runs; p.placed < most; p.placed++ {
		if !p.next(s, pool) {
			break
		}
	}
	return p
}

// next places one more pod.
func (p *placement) next(s *Space, pool *Pool) bool {
	var claim *corev1.PersistentVolumeClaim
	var ordinal int32
	if pool.Claim != nil {
		for p.has[ordinal] {
			ordinal++
		}
		claim = s.claimOf(pool, ordinal)
	}
	best, volume := -1, (*corev1.PersistentVolume)(nil)
	p.refusals = make([]refusal, len(p.nodes))
	for i := range p.nodes {
		n := &p.nodes[i]
		var found *corev1.PersistentVolume
		if found, p.refusals[i] = p.takes(i, claim); p.refusals[i].rank == takes && (best < 0 || p.fitting(n) > p.fitting(&p.nodes[best])) {
			best, volume = i, found
		}
	}
	if best < 0 {
		return false
	}
	n := &p.nodes[best]
	n.free.sub(p.need)
	for i := range p.rules {
		p.rules[i].placed(n)
	}
	if volume != nil {
		p.supply.taken[volume.Name] = volume
	}
	p.has[ordinal] = true
	return true
}

// takes says why a node does not take one more pod.
func (p *placement) takes(i int, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, refusal) {
	n := &p.nodes[i]
	if p.allowed[i].rank != takes {
		return nil, p.allowed[i]
	}
	if name := n.free.short(p.need); name != "" {
		return nil, refusal{short, spelled(name) + " is short on %s"}
	}
	for j := range p.rules {
		if why := p.rules[j].refuses(n); why.rank != takes {
			return nil, why
		}
	}
	return p.supply.reaches(n, claim)
}

// fitting is how many more pods would fit on a node. Pods go where there is most, as kube-scheduler's do: pods that are bound to a node by
// their volume then find more space there.
func (p *placement) fitting(n *node) int64 {
	count := int64(1 << 32)
	for name, need := range p.need {
		if need > 0 {
			count = min(count, n.free[name]/need)
		}
	}
	return count
}

// asAdmitted is a pod of the template. A LimitRange may have filled in resources that the template does not specify: a pod that runs shows them.
func (p *Pool) asAdmitted(own []*corev1.Pod) *corev1.Pod {
	pod := &corev1.Pod{Spec: *p.Template.Spec.DeepCopy()}
	pod.Labels, pod.Namespace = p.Template.Labels, p.Namespace
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		for _, o := range own {
			k := slices.IndexFunc(o.Spec.Containers, func(r corev1.Container) bool { return r.Name == c.Name })
			if k < 0 {
				continue
			}
			c.Resources.Requests = filled(c.Resources.Requests, o.Spec.Containers[k].Resources.Requests)
			c.Resources.Limits = filled(c.Resources.Limits, o.Spec.Containers[k].Resources.Limits)
			break
		}
	}
	return pod
}

func filled(list, with corev1.ResourceList) corev1.ResourceList {
	all := maps.Clone(with)
	if all == nil {
		all = corev1.ResourceList{}
	}
	maps.Copy(all, list)
	return all
}

// priority of the pool's pods, which the API server has filled in: 0 while none runs.
func (p *Pool) priority(own []*corev1.Pod) int32 {
	if len(own) == 0 {
		return 0
	}
	return scheduling.PodPriority(own[0])
}

// byPending: where nodes may not be read, pods are added until one finds no node.
func (s *Space) byPending(pool *Pool, most int32) autoscale.Count {
	var on int32
	var waits []string
	said := ""
	for i := range s.Pods {
		pod := &s.Pods[i]
		if !pool.owns(pod) || ended(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		if pod.Spec.NodeName != "" {
			on++
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
				waits, said = append(waits, pod.Name), strings.TrimSuffix(c.Message, ".")
			}
		}
	}
	if len(waits) == 0 {
		return autoscale.Count{Replicas: most, Why: "no pod waits for a node, and that is all that is known: " + s.Unread}
	}
	slices.Sort(waits)
	return autoscale.Count{Replicas: on, Why: fmt.Sprintf("%d run, and no node takes %s: %s. Add a node, or ask for less in spec.podTemplate.resources. "+
		"This is all that is known: %s", on, some(waits), said, s.Unread)}
}
