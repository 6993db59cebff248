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

// Rank says who gives way to whom while a server has too little for all: those of a lower rank do, to those of a higher one.
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
	// fullAt is how full a budget is when some give way, and calmAt how full when they are let in again. In between all stays as it is. The
	// operator's loop adds pods from 0.7 on, so in a pool that may grow nobody gives way for long.
	fullAt, calmAt = 0.95, 0.8
	// stepDown and stepUp are by how many percent of a rank is let in less or more, each second: a rank that is let in again fills the
	// budget again, so it comes back more slowly than it gave way.
	stepDown, stepUp = 25, 10
	// giveWayAfter is when those who gave way may come again, in seconds, and giveWaySpread up to how much later, so that
	// they do not come together.
	giveWayAfter, giveWaySpread = 30, 30
)

// Precedence has some clients give way to others while a budget of the server is full: first robots, then bulk readers.
type Precedence struct {
	refused *prometheus.CounterVec

	mu    sync.Mutex
	cause string
	// parts are how many percent of each rank below People are let in, and owed what the last requests left over of one.
	parts, owed [People]int
	// turnedAway is how many were not let in since the start.
	turnedAway uint64
}

// NewPrecedence lets all in, and counts in metrics who is not.
func NewPrecedence(metrics prometheus.Registerer) *Precedence {
	return &Precedence{parts: [People]int{all, all}, refused: metric.Counters(metrics, "substorm_archive_gave_way_total",
		"Requests that were answered 503 because a budget of the pod is full and others go first, by rank (Robots, Bulk) and by the budget (CPU, Requests).", "rank", "cause")}
}

// Look is told each second how full budgets are, by cause.
func (p *Precedence) Look(full map[string]float64) {
	cause, most := "", 0.0
	for c, fill := range full {
		if fill > most || fill == most && c < cause {
			cause, most = c, fill
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case most >= fullAt:
		p.cause = cause
		for rank := range p.parts { // robots first
			if p.parts[rank] > 0 {
				p.parts[rank] = max(0, p.parts[rank]-stepDown)
				return
			}
		}
	case most < calmAt:
		for rank := Bulk; rank >= Robots; rank-- { // robots last
			if p.parts[rank] < all {
				p.parts[rank] = min(all, p.parts[rank]+stepUp)
				return
			}
		}
		p.cause = ""
	}
}

// GivingWay returns which parts of robots and bulk readers are let in, in percent, and which budget is full; "": all are.
func (p *Precedence) GivingWay() (cause string, robots, bulk int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cause, p.parts[Robots], p.parts[Bulk]
}

// Admit says why one of a rank is not let in.
func (p *Precedence) Admit(rank Rank) *problem.Problem {
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
	p.turnedAway++
	p.refused.WithLabelValues(rank.String(), p.cause).Inc()
	return problem.New(http.StatusServiceUnavailable, "this replica has too little %s for all now, and %s: ask again later", spelledCause(p.cause), whoGoesFirst(rank)).
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

// rankOf is the rank of who asks, for something that is read in bulk or not.
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
