// SPDX-License-Identifier: Apache-2.0

package surge

import "time"

// Level is a state of space weather at which a Site has more pods.
type Level struct {
	Name string
	// AnyOf are the rules, one of which is enough.
	AnyOf []Rule
	// Floors of pools while the level lasts.
	Floors []Floor
	// Hold is for how long the level lasts after its rules were last fulfilled.
	Hold time.Duration
	// ReleaseEvery is how long each pool then takes to lower its floor by one pod.
	ReleaseEvery time.Duration
}

// Rule is fulfilled while all of its thresholds are.
type Rule []Threshold

// Threshold bounds a quantity.
type Threshold struct {
	Quantity Quantity
	// AtLeast or AtMost, of which one is set.
	AtLeast, AtMost *float64
	// For is for how long all samples are to be beyond it; 0: the newest one is.
	For time.Duration
}

// Kinds of pools.
const (
	KindIngestGateway = "IngestGateway"
	KindFeedServer    = "FeedServer"
)

// Floor is below how many pods pools are not scaled.
type Floor struct {
	Kind string
	// Name of one; empty: each of the kind that no other floor of the level names.
	Name     string
	Replicas int32
}
