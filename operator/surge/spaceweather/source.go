// SPDX-License-Identifier: Apache-2.0

// Package spaceweather reads space weather where it is published: by NOAA's Space Weather Prediction Center (SWPC), by any server that
// answers JSON, from a recorded file, or from the manifest itself. A Poller asks one source and keeps its answers as the signals from which
// package surge derives levels.
//
//	SWPC, JSON ─ fetcher ─► body ─┐
//	Recorded, Static ─────────────┴─► readings ─► Answer ─► Poller: history ─► surge.Signals
//
// Answers of a source are judged before they become samples: impossible values and times in the future are refused and counted. A source
// that fails leaves the samples as they are. They get old, and package surge decides when they are too old to be used.
package spaceweather

import (
	"context"
	"fmt"
	"time"

	"github.com/substorm/substorm/operator/surge"
)

// Source is where space weather is read.
type Source interface {
	// Quantities are the quantities of its samples, always the same.
	Quantities() []surge.Quantity
	// Ask returns the source's answer at now. It is called by one goroutine at a time and returns soon after ctx ends. The text of its
	// error is for people who run a Site. If the source says when it may be asked again, the error wraps a LaterError.
	Ask(ctx context.Context, now time.Time) (Answer, error)
}

// Answer is the answer of a source.
type Answer struct {
	// Unchanged says that the last answer still holds; Samples and Refused are empty then.
	Unchanged bool
	// Samples of each quantity, in any order. If several have the same time, the last one counts. Samples that were answered
	// before and are not contradicted remain.
	Samples map[surge.Quantity][]surge.Sample
	Refused Refused
	// Early says that samples were refused because their time has not come. They may be taken when it has, so the whole document is asked for
	// again, even if it is the same then.
	Early bool
}

// Refused are samples that were answered and not taken.
type Refused struct {
	Samples int
	// First describes the first of them, and why it was refused.
	First string
}

// LaterError is of a source that says when it may be asked again.
type LaterError struct {
	After time.Duration
	Err   error
}

// Error implements error. The text leaves out for how long, since that differs with each question: see sameError.
func (e *LaterError) Error() string { return fmt.Sprintf("%v (it says when to ask again)", e.Err) }

// Unwrap returns the error without the time.
func (e *LaterError) Unwrap() error { return e.Err }
