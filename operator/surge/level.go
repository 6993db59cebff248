// SPDX-License-Identifier: Apache-2.0

package surge

import (
	"slices"
	"time"
)

// Level is a state of space weather at which a Site has more pods. Levels are declared from the lowest to the highest.
type Level struct {
	Name string
	// AnyOf are the rules; one of them is enough.
	AnyOf []Rule
	// Floors of pools while the level lasts.
	Floors []Floor
	// Hold is for how long the level lasts after its rules were last fulfilled, LeastHold at least.
	Hold time.Duration
	// ReleaseEvery is how long each pool then takes to lower its floor by one pod, LeastReleaseEvery at least.
	ReleaseEvery time.Duration
}

// The least times of levels, as exercises have them. The solar wind is published each minute: with a Hold of less than some minutes, a
// signal that is above a threshold in one minute and below it in the next adds and removes pods each time.
const (
	LeastHold         = 10 * time.Second
	LeastReleaseEvery = 5 * time.Second
)

// releaseUndeclared is ReleaseEvery for a level that is not declared any more.
const releaseUndeclared = time.Minute

func (l *Level) hold() time.Duration         { return max(l.Hold, LeastHold) }
func (l *Level) releaseEvery() time.Duration { return max(l.ReleaseEvery, LeastReleaseEvery) }

// Floor returns the floor of a pool; 0: the level has none.
func (l *Level) Floor(of Pool) int32 {
	var all int32
	for _, f := range l.Floors {
		switch {
		case f.Kind != of.Kind:
		case f.Name == of.Name:
			return f.Replicas
		case f.Name == "":
			all = f.Replicas
		}
	}
	return all
}

// Asked are the quantities that levels ask for, in the order of Quantities.
func Asked(levels []Level) (all []Quantity) {
	for _, q := range Quantities {
		if slices.ContainsFunc(levels, func(l Level) bool { return l.asks(q) }) {
			all = append(all, q)
		}
	}
	return all
}

func (l *Level) asks(q Quantity) bool {
	return slices.ContainsFunc(l.AnyOf, func(r Rule) bool {
		return slices.ContainsFunc(r, func(t Threshold) bool { return t.Quantity == q })
	})
}

// Rule is fulfilled while all of its thresholds are; one without thresholds never is.
type Rule []Threshold

// Threshold bounds a quantity.
type Threshold struct {
	Quantity Quantity
	// AtLeast or AtMost; one of them is set.
	AtLeast, AtMost *float64
	// For is for how long all samples are to be beyond it; 0: the newest one is.
	For time.Duration
}

// Kinds of pools.
const (
	KindIngestGateway = "IngestGateway"
	KindFeedServer    = "FeedServer"
)

// Pool is one of a Site. As a key of floors, one without a name is each of the kind that no floor names.
type Pool struct {
	Kind string `json:"kind"`
	Name string `json:"name,omitempty"`
}

// Floor is below how many pods pools are not scaled.
type Floor struct {
	Kind string
	// Name of one; empty: each of the kind that no other floor of the level names.
	Name     string
	Replicas int32
}
