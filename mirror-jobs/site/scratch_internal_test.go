// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"errors"
	"testing"
)

func TestScratchShared(t *testing.T) {
	t.Parallel()
	s := &scratch{free: 10, changed: make(chan struct{})}
	if err := s.take(t.Context(), 6); err != nil {
		t.Fatal(err)
	}
	var full *scratchError
	if err := s.take(t.Context(), 11); !errors.As(err, &full) || full.has != 10 {
		t.Errorf("more than there is: %v", err)
	}
	got := make(chan error)
	go func() { got <- s.take(t.Context(), 5) }()
	select {
	case err := <-got:
		t.Fatalf("more than is free: %v", err)
	default:
	}
	s.giveBack(6, 6)
	if err := <-got; err != nil {
		t.Errorf("once it is free: %v", err)
	}
	go func() { got <- s.take(t.Context(), 6) }()
	s.giveBack(5, 0) // it stays on the disk
	if err := <-got; !errors.As(err, &full) || full.has != 5 {
		t.Errorf("what will never be free: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := s.take(ctx, 5); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := s.take(ctx, 5); !errors.Is(err, context.Canceled) {
		t.Errorf("a run that is over: %v", err)
	}
}
