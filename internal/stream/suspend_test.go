// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"errors"
	"testing"
	"time"
)

// A machine that was suspended for longer than the lease lasts finds it lost, although
// the clock of the process stood still.
func TestLeaseAfterSuspend(t *testing.T) {
	now := 10 * time.Second
	l := &Lease{key: "x", now: func() time.Duration { return now }, deadline: 14 * time.Second}
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	now += time.Hour
	if err := l.Check(); !errors.Is(err, ErrLeaseLost) {
		t.Errorf("an hour later: %v", err)
	}
}
