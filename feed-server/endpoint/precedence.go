// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"math/rand/v2"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/problem"
)

// Rank orders clients while a server has too little for all: clients of a lower rank give way to clients of a higher one.
type Rank int

// The ranks, in the order in which they give way. Connections of FeedConsumers have none, and what instruments send does not come
// here: neither ever gives way.
const (
	// Robots are programs that show no token.
	Robots Rank = iota
	// Bulk are bundles, mirrors and rsync, and programs that show a token.
	Bulk
	// People never give way to others.
	People
)

// String is the rank as metrics and reports spell it.
func (r Rank) String() string {
	return [...]string{"Robots", "Bulk", "People"}[r]
}

// Causes for which some give way to others.
const (
	CauseCPU      = "CPU"
	CauseRequests = "Requests"
)

// all is a rank that does not give way, in percent.
const all = 100

const (
	// fullAt is how much of the CPU limit is used when some give way, and calmAt how much when they are let in again. In between nothing
	// changes. The operator's loop adds pods from 0.7 on, so in a pool that may grow no client gives way for long.
	fullAt, calmAt = 0.95, 0.8
	// stepDown and stepUp are by how many percent of a rank is let in less or more, each second: a rank that is let in again uses the
	// CPU again, so it comes back more slowly than it gave way.
	stepDown, stepUp = 25, 10
	// robotPlaces and bulkPlaces are the parts of the places for requests that may be taken when a robot, and when a bulk reader, gets one.
	// The rest is for higher ranks: a place that a slow client has is not free again before its answer is sent, which may take hours.
	robotPlaces, bulkPlaces = 0.8, 0.9
	// calmFor is for how many seconds every request of a rank has to find a place until it counts as let in again: who gives way for want of
	// places does so whenever one more is taken, and not when one less is.
	calmFor = 10
	// giveWayAfter is when clients that gave way may retry, in seconds, and giveWaySpread up to how much later, so that
	// they do not retry together.
	giveWayAfter, giveWaySpread = 30, 30
)

// Precedence has some clients give way to others while a budget of the server is full: first robots, then bulk readers.
type Precedence struct {
	// on: clients give way at all.
	on      bool
	refused *prometheus.CounterVec

	mu sync.Mutex
	// parts are how many percent of each rank below People are let in as of the CPU, and owed what the last requests left over of one.
	parts, owed [People]int
	places      [People]found
	// turnedAway is how many were not let in since the start.
	turnedAway uint64
}

// found is which part of a rank finds a place.
type found struct {
	// asked is how many asked for a place since the last look, and lacked how many of them did not get one.
	asked, lacked int
	// part is how many percent got one when one last did not, and calm for how many looks each has got one.
	part, calm int
}

// NewPrecedence admits all clients, and counts in metrics the requests that are not admitted. No
// client gives way unless it is on.
func NewPrecedence(on bool, metrics prometheus.Registerer) *Precedence {
	return &Precedence{on: on, parts: [People]int{all, all}, places: [People]found{{part: all}, {part: all}},
		refused: metric.Counters(metrics, "substorm_archive_gave_way_total",
			"Requests that were answered 503 because a budget of the pod is full and others go first, by rank (Robots, Bulk) and by the budget (CPU, Requests).", "rank", "cause")}
}

// Look is called each second with the used part of the CPU limit.
func (p *Precedence) Look(cpu float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for rank := range p.places {
		p.places[rank].updatePart()
	}
	switch {
	case cpu >= fullAt:
		for rank := range p.parts { // robots first
			if p.parts[rank] > 0 {
				p.parts[rank] = max(0, p.parts[rank]-stepDown)
				return
			}
		}
	case cpu < calmAt:
		for rank := Bulk; rank >= Robots; rank-- { // robots last
			if p.parts[rank] < all {
				p.parts[rank] = min(all, p.parts[rank]+stepUp)
				return
			}
		}
	}
}

func (f *found) updatePart() {
	if f.lacked > 0 {
		f.part, f.calm = all*(f.asked-f.lacked)/f.asked, 0
	} else if f.calm++; f.calm >= calmFor {
		f.part = all
	}
	f.asked, f.lacked = 0, 0
}

// GivingWay returns which parts of robots and bulk readers are let in, in percent, and which budget is full; "": all are.
func (p *Precedence) GivingWay() (cause string, robots, bulk int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	robots, bulk = min(p.parts[Robots], p.places[Robots].part), min(p.parts[Bulk], p.places[Bulk].part)
	switch {
	case p.parts != [People]int{all, all}:
		cause = CauseCPU
	case min(robots, bulk) < all:
		cause = CauseRequests
	}
	return cause, robots, bulk
}

// admit says why one of a rank is not let in, as of the CPU.
func (p *Precedence) admit(rank Rank) *problem.Problem {
	if rank >= People {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.parts[rank] >= all {
		return nil
	}
	if p.owed[rank] += p.parts[rank]; p.owed[rank] >= all {
		p.owed[rank] -= all
		return nil
	}
	return p.refuse(rank, CauseCPU)
}

// maxShare is which part of the places for requests may be taken when one of a rank gets one.
func (p *Precedence) maxShare(rank Rank) float64 {
	switch {
	case !p.on || rank >= People:
		return 1
	case rank == Bulk:
		return bulkPlaces
	default:
		return robotPlaces
	}
}

// recordPlacement notes whether one of a rank found a place, and says why not.
func (p *Precedence) recordPlacement(rank Rank, got bool) *problem.Problem {
	if rank >= People {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.places[rank].asked++
	if got {
		return nil
	}
	p.places[rank].lacked++
	return p.refuse(rank, CauseRequests)
}

// refuse counts one that is not let in; the lock is held.
func (p *Precedence) refuse(rank Rank, cause string) *problem.Problem {
	p.turnedAway++
	p.refused.WithLabelValues(rank.String(), cause).Inc()
	return problem.New(http.StatusServiceUnavailable, "this replica has too little %s for all now, and %s: ask again later", spelledCause(cause), whoGoesFirst(rank)).
		After(giveWayAfter + rand.IntN(giveWaySpread))
}

// TurnedAway is how many were not let in since the start.
func (p *Precedence) TurnedAway() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.turnedAway
}

func spelledCause(cause string) string {
	if cause == CauseRequests {
		return "memory for requests"
	}
	return cause
}

func whoGoesFirst(rank Rank) string {
	if rank == Robots {
		return "programs that show no token give way to readers of bundles and mirrors, and these to people"
	}
	return "bundles, mirrors, rsync and programs give way to people"
}

// rankOf is the rank of a client, for a request that reads in bulk or not.
func rankOf(class Class, who Identity, bulk bool) Rank {
	switch {
	case bulk || class == Robot && !who.Reader.Anonymous():
		return Bulk
	case class == Robot:
		return Robots
	default:
		return People
	}
}
