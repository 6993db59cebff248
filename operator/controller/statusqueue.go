// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"container/heap"
	"time"

	"github.com/substorm/substorm/operator/plan"
)

// pendingStatus is a status that waits to be written.
type pendingStatus struct {
	planned
	// since it was first asked for.
	since time.Time
	// retryAt delays a failed write.
	retryAt time.Time
	// due is when it may be written.
	due time.Time
	// place in its heap; held: in none, since the one before is being written.
	place int
}

const held = -1

// statusQueue holds one status for each resource. The most urgent comes first, of these
// the one that has been due for longest.
type statusQueue struct {
	waiting   map[resource]*pendingStatus
	byUrgency [plan.UrgencyFigures + 1]statusHeap
}

// put takes a status in the place of the one that waits for the same resource.
func (q *statusQueue) put(p *pendingStatus, hold bool) {
	q.remove(p.resource)
	q.waiting[p.resource] = p
	p.place = held
	if !hold {
		heap.Push(&q.byUrgency[p.urgency], p)
	}
}

// release allows the held status of a resource to be written.
func (q *statusQueue) release(r resource) {
	if p := q.waiting[r]; p != nil && p.place == held {
		heap.Push(&q.byUrgency[p.urgency], p)
	}
}

func (q *statusQueue) remove(r resource) {
	if p := q.waiting[r]; p != nil && p.place != held {
		heap.Remove(&q.byUrgency[p.urgency], p.place)
	}
	delete(q.waiting, r)
}

// first returns the most overdue status of those with an urgency; nil if there is none.
func (q *statusQueue) first(u plan.Urgency) *pendingStatus {
	if len(q.byUrgency[u]) == 0 {
		return nil
	}
	return q.byUrgency[u][0]
}

// statusHeap is a heap.Interface: the one first that is due first.
type statusHeap []*pendingStatus

func (h statusHeap) Len() int { return len(h) }

func (h statusHeap) Less(i, j int) bool {
	if order := h[i].due.Compare(h[j].due); order != 0 {
		return order < 0
	}
	return h[i].since.Before(h[j].since)
}

func (h statusHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *statusHeap) Push(x any) {
	p := x.(*pendingStatus)
	p.place = len(*h)
	*h = append(*h, p)
}

func (h *statusHeap) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return p
}
