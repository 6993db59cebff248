// SPDX-License-Identifier: Apache-2.0

package store

import (
	"sync"
	"time"
)

const (
	// leastStep is what counts as a step of the clock; less is how it is kept right.
	leastStep = time.Second
	// slew is how much of the time that passed, as its inverse, a clock may gain or lose
	// while it is kept right: 500 ppm is what systems do, and this is twice that.
	slew = 1000
	// stepLasts is how long objects bear a step that is not undone: by then it was
	// the step that set the clock right.
	stepLasts = time.Hour
)

// steps knows by how much the clock was set lately. It is unknown whether the times before a step
// or those after it are right, until the clock is set back, or is not.
type steps struct {
	mu sync.Mutex
	// offset is the clock's less the time since the boot, as last seen; known: it was.
	offset time.Duration
	known  bool
	seen   time.Duration
	// by is the sum of the steps since the clock was last believed, at when the last
	// of them was, since the boot.
	by, at time.Duration
}

// see notes what the clock says, and the time since the boot, and returns by how much the clock was
// set within stepLasts; 0 if it was not, or was set back again.
func (s *steps) see(wall, boot time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	offset := wall - boot
	if !s.known {
		s.known, s.offset, s.seen = true, offset, boot
		return 0
	}
	moved := offset - s.offset
	if moved.Abs() >= leastStep+(boot-s.seen)/slew {
		s.by, s.at = s.by+moved, boot
	}
	s.offset, s.seen = offset, boot
	if s.by.Abs() < leastStep || boot-s.at >= stepLasts {
		s.by = 0
	}
	return s.by
}
