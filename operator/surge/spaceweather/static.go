// SPDX-License-Identifier: Apache-2.0

package spaceweather

import (
	"context"
	"fmt"
	"time"

	"github.com/substorm/substorm/operator/surge"
)

// static returns declared values.
type static struct {
	values map[surge.Quantity]float64
	since  time.Time
}

// NewStatic returns a source that has the same values at all times: for tests of levels, and to hold a Site at one by hand.
func NewStatic(values map[surge.Quantity]float64) (Source, error) {
	if len(values) == 0 {
		return nil, fmt.Errorf("no value: declare one of %v", surge.Quantities)
	}
	for q, value := range values {
		if err := possible(q, value); err != nil {
			return nil, err
		}
	}
	return &static{values: values}, nil
}

// Quantities implements Source.
func (s *static) Quantities() []surge.Quantity { return declared(s.values) }

// Ask implements Source: one sample, from before all history that is kept to beyond the next question. A rule that wants a value for
// some time is fulfilled at once.
func (s *static) Ask(_ context.Context, now time.Time) (Answer, error) {
	if since := now.Add(-kinds[surge.Kp].kept).UTC(); s.since.IsZero() || since.Before(s.since) { // the clock was ahead
		s.since = since
	}
	r := newReadings(now)
	for q, value := range s.values {
		r.answer.Samples[q] = []surge.Sample{{From: s.since, To: now.Add(time.Hour).UTC(), Value: value}}
	}
	return r.done()
}
